"""Shares of one group on one card: nobody else comes there, they go nowhere else, and no engine forgets it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import Nodes, inventories, node, placed, requests, share, whole

from hcs.model.allocations import Allocation, decode_allocation, encode_allocation
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import explain, place
from hcs.placement.gangs import GangPlan, MemberPlan, check_plan, spread_of
from hcs.placement.misses import nearest_miss
from hcs.placement.placer import Placer
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.policies import POLICIES
from hcs.placement.snapshot import Snapshot, key_of


def asks(vram: int = 4, group: str = "") -> ComputeRequest:
    return ComputeRequest((share(vram),), group=f"default/{group}" if group else "")


def devices(*wishes: ComputeRequest, cards: int = 2, policy: str = "hcs") -> list[int]:
    """The card that each gets, one after the other; -1: none."""
    snapshot, found = Snapshot.build([node("a", *["t4"] * cards)]), list[int]()
    for number, request in enumerate(wishes):
        answer = place(snapshot, request, policy=policy)
        if isinstance(answer, Unplaceable):
            found.append(-1)
            continue
        snapshot = snapshot.with_allocation(answer.allocation(f"p{number}"))
        found.append(int(next(iter(answer.devices))[-1]))
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("wishes", "kept"),
    [
        pytest.param([asks(), asks()], [0, 0], id="without groups they fill one card"),
        pytest.param([asks(group="one"), asks(group="one")], [0, 0], id="a group fills its card under every policy"),
        pytest.param([asks(group="one"), asks(group="two")], [0, 1], id="two groups never share"),
        pytest.param([asks(group="one"), asks()], [0, 1], id="nobody comes into a group"),
        pytest.param([asks(), asks(group="one")], [0, 1], id="a group joins nobody else"),
        pytest.param([asks(group="one"), asks(group="two"), asks(group="one")], [0, 1, 0], id="they find each other"),
        pytest.param([asks(group="one"), asks(14), asks(8, "one")], [0, 1, 0], id="also on the fuller card"),
        pytest.param([asks(14, "one"), asks(8, "one")], [0, 1], id="what does not fit goes to an empty card"),
        pytest.param([asks(group="one"), asks(group="two"), asks(group="three")], [0, 1, -1], id="no card is left"),
    ],
)
def test_who_is_on_which_card(policy: str, wishes: list[ComputeRequest], kept: list[int]) -> None:
    found = devices(*wishes, policy=policy)
    if wishes == [asks(), asks()] and policy in ("random", "spread"):
        return  # they need not
    assert [found.index(one) for one in found] == [kept.index(one) for one in kept]
    assert [one < 0 for one in found] == [one < 0 for one in kept]


@given(nodes=inventories(), wishes=st.lists(requests(), min_size=1, max_size=12))
def test_no_card_ever_has_shares_of_two_groups(nodes: Nodes, wishes: list[ComputeRequest]) -> None:
    placer, held = Placer(nodes), list[Allocation]()
    for number, request in enumerate(wishes):
        answer = placer.place(request)
        if isinstance(answer, Placement):
            held.append(decode_allocation(encode_allocation(answer.allocation(f"p{number}"))))
            placer.bind(f"p{number}", held[-1])
    groups: dict[tuple[str, str], set[str]] = {}
    for allocation in held:
        for device in allocation.devices():
            groups.setdefault((allocation.node, device), set()).add(allocation.group)
    assert all(len(found) == 1 for found in groups.values())
    assert not placer.snapshot.overcommitted
    assert not any(allocation.exclusive and allocation.group for allocation in held)


def test_a_card_whose_group_has_ended_is_open_to_all() -> None:
    before = Snapshot.build([node("a", "t4")])
    held = placed(before, asks(group="one"))
    during = before.with_allocation(held)
    assert isinstance(place(during, asks()), Unplaceable)
    assert isinstance(place(during.without(held), asks()), Placement)
    assert during.without(held).same_as(before)


def test_why_not_says_that_the_card_is_taken_and_what_is_free_of_it() -> None:
    snapshot = Snapshot.build([node("a", "t4")])
    snapshot = snapshot.with_allocation(placed(snapshot, asks(group="one")))
    [refusal] = explain(snapshot, asks()).refusals
    assert refusal.refusal.reason == "CardsTaken"
    miss = nearest_miss(snapshot, asks(group="two"))
    assert miss is not None
    assert "has 0 free" in miss.sentence
    assert nearest_miss(snapshot, asks(group="one")) is None


def test_whole_cards_have_no_group() -> None:
    snapshot = Snapshot.build([node("a", "t4")])
    request = ComputeRequest((whole(),), sharing="exclusive", group="default/one")
    held = placed(snapshot, request)
    assert (held.exclusive, held.group) == (True, "")
    assert key_of("") == 0
    assert msgspec.structs.asdict(placed(snapshot, asks(group="one")))["group"] == "default/one"


def test_a_gangs_plan_holds_only_while_its_cards_are_open_to_its_group() -> None:
    empty = Snapshot.build([node("a", "t4")])
    taken = empty.with_allocation(placed(empty, asks(group="one")))
    for snapshot, group, holds in ((empty, "", True), (taken, "", False), (taken, "two", False), (taken, "one", True)):
        answer = place(empty, asks(group=group))
        assert isinstance(answer, Placement)
        plan = GangPlan("g", (MemberPlan("p", answer),), spread_of(empty, ["a"]))
        assert (check_plan(snapshot, plan) is None) == holds
