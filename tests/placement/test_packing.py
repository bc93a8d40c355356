"""The search for devices inside a group finds a choice exactly when there is one."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.placement.packing import BUDGET, Card, Choice, Need, first_fit, pack

SHARE, WHOLE = False, True


def free(position: int, size: int, *needs: Need | None, empty: bool = True, degraded: bool = False) -> Card:
    """A card with so much free, of memory and of compute alike."""
    return Card(position, size, size, empty, degraded, needs)


def part(size: int) -> Need:
    """A share of that size."""
    return Need(1, size, size, SHARE)


def all_of(cards: int) -> Need:
    """That many whole cards."""
    return Need(cards, 100, 100, WHOLE)


def serves(cards: Sequence[Card], choice: Choice) -> bool:
    """Whether a choice gives every container what it needs, worked out card by card."""
    for card in cards:
        takers = [number for number, devices in enumerate(choice) if card.position in devices]
        needs = [card.needs[number] for number in takers]
        if any(need is None or need.cards > len(choice[number]) for need, number in zip(needs, takers, strict=True)):
            return False
        real = [need for need in needs if need is not None]
        if any(need.whole for need in real):
            if len(real) > 1 or not card.empty:
                return False
        elif sum(n.bytes for n in real) > card.free_bytes or sum(n.milliacu for n in real) > card.free_milliacu:
            return False
    return all(len(set(devices)) == len(devices) > 0 for devices in choice)


def brute_force(cards: Sequence[Card], containers: int) -> bool:
    """Whether any choice at all serves."""
    subsets = [
        chosen
        for count in range(1, len(cards) + 1)
        for chosen in itertools.combinations([card.position for card in cards], count)
    ]
    return any(serves(cards, choice) for choice in itertools.product(subsets, repeat=containers))


def needs(containers: int) -> st.SearchStrategy[tuple[Need | None, ...]]:
    one = st.one_of(st.none(), st.integers(1, 60).map(part), st.integers(1, 3).map(all_of))
    return st.lists(one, min_size=containers, max_size=containers).map(tuple)


@st.composite
def groups(draw: st.DrawFn) -> tuple[tuple[Card, ...], int]:
    containers = draw(st.integers(1, 3))
    common = draw(needs(containers))
    cards = []
    for position in range(draw(st.integers(0, 4))):
        empty = draw(st.booleans())
        own = draw(st.sampled_from((common, common, draw(needs(containers)))))
        used = 0 if empty else draw(st.integers(0, 100))
        # A container is either given shares or whole cards of one group, never a mixture.
        kinds = tuple(
            None if n is None or (c is not None and n.whole != c.whole) else n for n, c in zip(own, common, strict=True)
        )
        cards.append(free(position, 100 - used, *kinds, empty=empty, degraded=draw(st.booleans())))
    return tuple(cards), containers


@given(group=groups())
def test_a_choice_is_found_exactly_when_there_is_one(group: tuple[tuple[Card, ...], int]) -> None:
    cards, containers = group
    found = pack(cards, containers)
    assert (found is not None) == brute_force(cards, containers)
    assert found is None or serves(cards, found)


@given(group=groups())
def test_first_fit_never_lies_and_never_finds_more(group: tuple[tuple[Card, ...], int]) -> None:
    cards, containers = group
    found = first_fit(cards, containers)
    if found is not None:
        assert serves(cards, found)
        assert pack(cards, containers) is not None


@pytest.mark.parametrize(
    ("cards", "containers", "expected"),
    [
        pytest.param([free(0, 90, part(10)), free(1, 20, part(10), empty=False)], 1, ((1,),), id="the-tightest-share"),
        pytest.param(
            [free(0, 20, part(10), degraded=True), free(1, 90, part(10))], 1, ((1,),), id="healthy-before-tight"
        ),
        pytest.param(
            [free(0, 100, all_of(2), degraded=True), free(1, 100, all_of(2)), free(2, 100, all_of(2))],
            1,
            ((1, 2),),
            id="healthy-whole-cards-first",
        ),
        pytest.param(
            [free(0, 100, all_of(3)), free(1, 100, all_of(2)), free(2, 100, all_of(2))],
            1,
            ((1, 2),),
            id="no-card-more-than-needed",
        ),
        pytest.param(
            [free(n, 100, all_of(1), all_of(2)) for n in range(3)], 2, ((2,), (0, 1)), id="the-hardest-container-first"
        ),
        pytest.param([], 1, None, id="no-cards"),
    ],
)
def test_the_best_choice_comes_first(cards: list[Card], containers: int, expected: Choice | None) -> None:
    assert pack(cards, containers) == expected


def test_a_hostile_pod_costs_a_budget_and_gets_the_simple_answer() -> None:
    """Forty containers on cards that all differ: more ways than anybody can try, and none of them serves."""
    containers = 40
    cards = [free(n, 100 + n, *(part(70 + c % 3) for c in range(containers))) for n in range(30)]
    assert len(cards) ** 3 > BUDGET
    assert pack(cards, containers) is None
    assert first_fit(cards, containers) is None
