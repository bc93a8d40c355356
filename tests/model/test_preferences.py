"""Wishes about nodes and prices of nodes: what is read, and that nonsense wishes nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.preferences import NodePreference, Requirement, read_cost, read_preferences

LABELS = {"tier": "spot", "generation": "7"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("tier", "In", ("spot", "cheap"), True),
        ("tier", "In", ("paid",), False),
        ("absent", "In", ("spot",), False),
        ("tier", "NotIn", ("spot",), False),
        ("absent", "NotIn", ("spot",), True),
        ("tier", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("tier", "DoesNotExist", (), False),
        ("absent", "DoesNotExist", (), True),
        ("generation", "Gt", ("6",), True),
        ("generation", "Gt", ("7",), False),
        ("generation", "Lt", ("10",), True),
        ("generation", "Lt", ("7",), False),
        ("tier", "Gt", ("0",), False),
        ("absent", "Lt", ("0",), False),
        ("generation", "Gt", (), False),
        ("tier", "Resembles", ("spot",), False),
    ],
)
def test_a_requirement_holds_as_in_kubernetes(key: str, operator: str, values: tuple[str, ...], holds: bool) -> None:
    assert Requirement(key, operator, values).holds(LABELS) is holds


def preferring(*terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def test_terms_are_read_and_those_that_say_nothing_are_left_out() -> None:
    spot = {"key": "tier", "operator": "In", "values": ["spot"]}
    named = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    found = read_preferences(
        preferring(
            {"weight": 30, "preference": {"matchExpressions": [spot], "matchFields": [named]}},
            {"weight": 101, "preference": {"matchExpressions": [spot]}},
            {"weight": 5, "preference": {}},
        )
    )
    wish = NodePreference(30, (Requirement("tier", "In", ("spot",)),), (Requirement("metadata.name", "In", ("n",)),))
    assert found == (wish,)
    assert wish.holds("n", LABELS)
    assert not wish.holds("m", LABELS)
    assert not wish.holds("n", {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("weight", "preference", "matchExpressions", "key", "values")), inner)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_nonsense_never_fails(about_nodes: Any, term: Any) -> None:
    assert read_preferences({"nodeAffinity": about_nodes}) == ()
    for wish in read_preferences(preferring(term)):
        wish.holds("n", LABELS)


@pytest.mark.parametrize(
    ("text", "cost"),
    [("0", 0), ("2", 2_000_000), ("2.48", 2_480_000), ("0.0000019", 1), ("", None), ("-1", None), ("1e3", None),
     ("NaN", None), ("٣", None), ("1.", None)],
)  # fmt: skip
def test_a_cost_is_a_plain_number(text: str, cost: int | None) -> None:
    assert read_cost({"ai.compute/cost": text}) == cost
    assert read_cost({}) is None
