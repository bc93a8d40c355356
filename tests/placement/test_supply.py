"""How many cards a container needs of each group, also where the cards of one model differ."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import card, node, rates, whole

from hcs.model import names
from hcs.model.devices import NodeInventory
from hcs.model.requests import ComputeRequest, ContainerRequest, Total
from hcs.placement.appraisals import appraise
from hcs.placement.fleet import Fleet, build_fleet
from hcs.placement.supply import cards_needed


def measured(**nodes: list[int]) -> Fleet:
    """Nodes of one model whose cards were measured at so many ACU each."""
    return build_fleet(
        NodeInventory(name, tuple(card("a100", i, name, rates=rates(gemm=acu)) for i, acu in enumerate(cards)))
        for name, cards in nodes.items()
    )


def total_acu(amount: int) -> ComputeRequest:
    return ComputeRequest((ContainerRequest("main", total=Total(names.TOTAL_ACU, amount)),), sharing="exclusive")


@pytest.mark.parametrize(
    ("cards", "needed"),
    [
        pytest.param([100, 100, 100], 2, id="equal-cards"),
        pytest.param([200], 1, id="one-that-is-fast-enough"),
        pytest.param([100, 200], 1, id="which-may-be-the-second"),
        pytest.param([90, 110, 90], 3, id="a-fast-and-a-slow-one-are-not-sure-to-do"),
        pytest.param([100, 110, 50], 2, id="the-slow-one-is-left-out"),
        pytest.param([100], 0, id="too-few"),
        pytest.param([], 0, id="none"),
    ],
)
def test_the_smallest_number_that_is_sure_to_do(cards: list[int], needed: int) -> None:
    fleet = measured(a=cards, b=[10], c=[200])
    (appraisal,) = appraise(fleet, total_acu(200))
    by_node = dict(
        zip(
            (fleet.nodes[number].name for number in fleet.group_node),
            cards_needed(fleet, appraisal, np.ones(len(fleet.devices), dtype=np.bool_)).tolist(),
            strict=True,
        )
    )
    assert by_node == {**({"a": needed} if cards else {}), "b": 0, "c": 1}


def test_only_kept_devices_count() -> None:
    fleet = build_fleet([node("a", "t4", "t4", "t4")])
    (appraisal,) = appraise(fleet, ComputeRequest((whole(2),), sharing="exclusive"))
    assert cards_needed(fleet, appraisal, np.array([True, False, True])).tolist() == [2]
    assert cards_needed(fleet, appraisal, np.array([True, False, False])).tolist() == [0]


@given(cards=st.lists(st.integers(20, 130), max_size=6), asked=st.integers(1, 400))
def test_the_cards_together_do_what_was_asked(cards: list[int], asked: int) -> None:
    fleet = measured(a=cards)
    (appraisal,) = appraise(fleet, total_acu(asked))
    (needed,) = cards_needed(fleet, appraisal, np.ones(len(cards), dtype=np.bool_)).tolist() or [0]
    sure = [
        count
        for count in range(1, len(cards) + 1)
        if any(
            all(-(-asked // acu) <= count for acu in chosen) and sum(chosen) >= asked
            for chosen in itertools.combinations(cards, count)
        )
    ]
    assert needed == min(sure, default=0)
