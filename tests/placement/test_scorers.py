"""The two measures of what is left, checked against their definitions written out as loops; and the steps."""

from math import exp

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import node, placed, share, whole

from hcs.model.devices import Device, NodeInventory
from hcs.model.requests import ComputeRequest
from hcs.placement.asks import CARD, Ask
from hcs.placement.fleet import Fleet, build_fleet
from hcs.placement.outlook import Outlook, look_ahead
from hcs.placement.rows import rows_of, shares_that_fit
from hcs.placement.scorers import fragments, fragments_cleared, steps, use_lost_to_cards, use_lost_to_shares
from hcs.placement.snapshot import Snapshot


def fleet_of(cards: int, cpu: int) -> Fleet:
    """One node whose cards have a thousand bytes each, and some CPU."""
    devices = tuple(Device(str(i), i, "trace", "card", CARD, verdict="Healthy") for i in range(cards))
    return build_fleet([NodeInventory("a", devices, capacities=(("cpu", cpu),))])


def ask(cards: int, milli: int, cpu: int) -> Ask:
    """So many thousandths of so many cards, and CPU."""
    amounts = np.array([milli if cards else 0], dtype=np.int64)
    return Ask(
        cards=np.array([cards]),
        bytes=amounts,
        milliacu=np.array([0]),
        whole=np.array([milli == CARD]),
        serves=np.array([cards > 0]),
        substitute=np.array([False]),
        share=amounts,
        needs=np.array([cpu]),
        thrift=np.array([0]),
    )


def holding(fleet: Fleet, taken: list[int], cpu: int) -> Snapshot:
    """The fleet with so much taken of each card, and of the CPU."""
    snapshot = Snapshot.of(fleet).writable()
    snapshot.used[0, :] = taken
    snapshot.used[2, :] = [amount > 0 for amount in taken]
    snapshot.taken[0, 0] = cpu
    return snapshot


asks = st.one_of(
    st.builds(ask, st.just(1), st.integers(1, CARD), st.integers(0, 8)),
    st.builds(ask, st.integers(1, 4), st.just(CARD), st.integers(0, 8)),
    st.builds(ask, st.just(0), st.just(0), st.integers(0, 8)),
)
mixes = st.lists(st.tuples(asks, st.integers(1, 9)), min_size=1, max_size=5)
states = st.tuples(st.lists(st.integers(0, CARD), min_size=1, max_size=4), st.integers(0, 20))


def useless(free: list[int], cpu: int, outlook: Outlook) -> float:
    """The published definition of a node's fragments, times the total."""
    found = 0.0
    for number, weight in enumerate(outlook.weight):
        cards, milli = outlook.cards[0, number], outlook.share[0, number]
        fits = cards > 0 and cpu >= outlook.needs[number, 0] and sum(one >= milli for one in free) >= cards
        found += weight * sum(one for one in free if not fits or one < milli)
    return found


@given(state=states, mix=mixes, milli=st.integers(1, CARD), cpu=st.integers(0, 5))
def test_fragments_are_what_their_definition_says(
    state: tuple[list[int], int], mix: list[tuple[Ask, int]], milli: int, cpu: int
) -> None:
    taken, busy = state
    fleet = fleet_of(len(taken), 20)
    outlook, snapshot = look_ahead(fleet, mix, 1.0), holding(fleet, taken, busy)
    rows, free = rows_of(snapshot), [CARD - amount for amount in taken]
    assert fragments(rows, outlook)[0] == useless(free, 20 - busy, outlook)
    wish = ask(1, milli, cpu)
    fits = shares_that_fit(rows, msgspec.structs.replace(wish, whole=np.array([False])))
    cleared = fragments_cleared(rows, wish, fits, None, outlook)
    for place in np.flatnonzero(fits[0]):
        after = [amount - milli * (number == place) for number, amount in enumerate(free)]
        assert cleared[0, place] == useless(free, 20 - busy, outlook) - useless(after, 20 - busy - cpu, outlook)


@given(state=states, mix=mixes, milli=st.integers(1, CARD - 1), cpu=st.integers(0, 5))
def test_taking_a_share_counts_the_same_whichever_way_it_is_reckoned(
    state: tuple[list[int], int], mix: list[tuple[Ask, int]], milli: int, cpu: int
) -> None:
    """What a device loses is worked out from the row's sums; here the row is measured before and after."""
    taken, busy = state
    fleet = fleet_of(len(taken), 20)
    outlook, rows = look_ahead(fleet, mix, 1.0), rows_of(holding(fleet, taken, busy))
    wish = ask(1, milli, cpu)
    fits = shares_that_fit(rows, wish)
    gained = use_lost_to_shares(rows, wish, fits, outlook)
    for place in np.flatnonzero(fits[0]):
        amounts = np.zeros(rows.free.shape)
        amounts[0, place] = milli
        assert gained[0, place] == use_lost_to_cards(rows, wish, amounts, outlook)[0]


def test_crumbs_that_only_rare_asks_fit_are_worth_little() -> None:
    fleet = fleet_of(1, 20)
    often = look_ahead(fleet, [(ask(1, 810, 0), 10), (ask(1, 190, 0), 10)], 1.0)
    rarely = look_ahead(fleet, [(ask(1, 810, 0), 999), (ask(1, 190, 0), 1)], 1.0)
    large = list(often.share[0]).index(810)
    assert often.use[0, CARD, large] > 810 + 150
    assert 810 < rarely.use[0, CARD, list(rarely.share[0]).index(810)] < 810 + 10


def test_cards_without_cpu_are_no_use() -> None:
    fleet = fleet_of(2, 20)
    outlook = look_ahead(fleet, [(ask(1, CARD, 10), 1)], 1.0)
    wish, both = ask(1, CARD, 10), np.array([[float(CARD), 0.0]])
    starved = rows_of(holding(fleet, [0, 0], 10))
    assert use_lost_to_cards(starved, wish, both, outlook)[0] == 0  # one is left, and nothing for it: as good as none
    greedy = ask(1, CARD, 20)
    assert use_lost_to_cards(rows_of(holding(fleet, [0, 0], 0)), greedy, both, outlook)[0] == -CARD


def test_asks_for_several_cards_count_what_is_left_in_lots() -> None:
    fleet = fleet_of(4, 20)
    outlook = look_ahead(fleet, [(ask(4, CARD, 0), 1)], 1.0)
    rows = rows_of(Snapshot.of(fleet))
    one = np.array([[float(CARD), 0.0, 0.0, 0.0]])
    assert use_lost_to_cards(rows, ask(1, CARD, 0), one, outlook)[0] == CARD - 4 * CARD
    assert use_lost_to_cards(rows, ask(4, CARD, 0), np.full((1, 4), float(CARD)), outlook)[0] == 0


@pytest.mark.parametrize("gained", [-9.5, -1.0, -0.1, 0.0, 0.1, 2.7, 9.5])
def test_steps_are_the_logistic_function_cut_off(gained: float) -> None:
    outlook = look_ahead(fleet_of(1, 1), [(ask(1, CARD, 0), 7)], 1.0)
    thousandths = np.array([round(gained * CARD * outlook.total)])
    for levels, reach in ((100, 1.0), (25, 2.0)):
        expected = int(levels / (1 + exp(-gained / reach)))
        assert steps(thousandths, outlook, levels, reach).tolist() == [expected]


def test_a_weak_card_that_suffices_is_taken_before_a_strong_one_and_any_named_one_before_both() -> None:
    snapshot = Snapshot.build([node("a", "a100"), node("b", "910b"), node("c", "t4")])
    assert placed(snapshot, ComputeRequest((share(8, 10),))).node == "c"
    named = ComputeRequest((share(8, 10),), models=("A100-SXM4-80GB",), substitution="auto")
    assert placed(snapshot, named).node == "a"
    sick = Snapshot.build([node("a", "a100"), node("c", "t4:SubHealthy")])
    assert placed(sick, ComputeRequest((whole(),), sharing="exclusive")).node == "a"
