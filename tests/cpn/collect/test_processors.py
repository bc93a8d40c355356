"""The CPU beside the cards: nothing is given twice, nonsense counts as nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.cpn.collect.processors import beside_cards, cpu_asked, cpu_offered
from hcs.model.pods import Container, Pod, PodSpec, Resources

NODES, KINDS = st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(["A", "B"])
AMOUNTS = st.integers(0, 128_000)


@given(
    st.dictionaries(st.tuples(NODES, KINDS), st.integers(0, 8)),
    st.dictionaries(NODES, st.none() | AMOUNTS),
    st.dictionaries(NODES, AMOUNTS),
)
def test_cards_have_no_more_cpu_together_than_their_nodes_and_no_less_is_asked_of_it(
    by_node: dict[tuple[str, str], int], offered: dict[str, int | None], asked: dict[str, int]
) -> None:
    found = beside_cards(by_node, offered, asked)
    told = {node for (node, _), count in by_node.items() if count and offered.get(node)}
    cards = {kind: sum(n for (node, k), n in by_node.items() if k == kind and node in told) for kind in found}
    assert sum(found[kind].share * cards[kind] for kind in found) <= sum(offered[node] or 0 for node in told)
    theirs = sum(found[kind].asked * cards[kind] for kind in found)
    assert theirs >= sum(asked.get(node, 0) for node in told) - len(by_node)
    assert all(one.asked <= max(asked.values(), default=0) for one in found.values())
    assert set(found) == {kind for (node, kind), count in by_node.items() if count and node in told}


@pytest.mark.parametrize("amount", ["-1", "eight", "", "1e400", "9" * 30, "1e999"])
def test_an_amount_that_cannot_be_is_none(amount: str) -> None:
    assert cpu_offered({"allocatable": {"cpu": amount}}) is None
    assert cpu_asked(_pod({"cpu": amount})) == 0


@given(st.dictionaries(st.sampled_from(["cpu", "memory"]), st.text(max_size=6) | st.integers() | st.floats()))
def test_any_resources_are_an_amount_of_cpu(amounts: dict[str, Any]) -> None:
    assert cpu_asked(_pod(amounts)) >= 0
    assert (cpu_offered({"allocatable": amounts}) or 0) >= 0


def test_what_a_pod_asks_is_that_of_all_its_containers() -> None:
    assert cpu_asked(_pod({"cpu": "500m"}, {"cpu": 2})) == 2500
    assert cpu_offered({"allocatable": {"cpu": "7910m"}}) == 7910
    assert cpu_offered({}) is None


def _pod(*requests: dict[str, Any]) -> Pod:
    made = [Container(f"c{place}", resources=Resources(requests=one)) for place, one in enumerate(requests)]
    return Pod(spec=PodSpec(containers=made))
