"""Gangs: all members or none, on as few places as possible, and never on anything twice."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import CARDS, inventories, node, placed, requests, share, whole
from tests.placement.wired import after, at, halves, nic

from hcs.model.devices import NodeInventory, Quarantine
from hcs.model.locality import FabricRule, LinkRule, Locality
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import appraise
from hcs.placement.filters import eligible
from hcs.placement.gangplanner import plan_gang
from hcs.placement.gangs import Gang, GangPlan, Member, Spread, check_plan
from hcs.placement.packing import cards_of, pack
from hcs.placement.plans import Unplaceable
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot

OWNER = ComputeRequest((whole(),), sharing="exclusive")
PAIR = ComputeRequest((whole(2),), sharing="exclusive")


def gang(*asked: ComputeRequest, minimum: int = 0, portable: bool = False) -> Gang:
    """A gang whose members ask for these."""
    members = tuple(Member(f"m{number}", request) for number, request in enumerate(asked))
    return Gang("hcs:default/g", members, minimum, portable)


def plan(snapshot: Snapshot, *asked: ComputeRequest, **fields: object) -> GangPlan:
    """The plan of a gang that must have one."""
    found = plan_gang(snapshot, gang(*asked, **fields))  # type: ignore[arg-type]
    assert isinstance(found, GangPlan), found
    return found


def nodes_of(found: GangPlan) -> list[str]:
    return [member.placement.node for member in found.members]


def test_the_narrowest_place_that_holds_all_is_taken() -> None:
    """Four nodes in two racks; four members of one card: the only rack whose two nodes have two free cards each."""
    fleet = [
        node("a", "a100", "a100"),
        node("b", "a100"),
        node("c", "a100", "a100"),
        node("d", "a100", "a100"),
    ]
    racks = ["r1", "r1", "r2", "r2"]
    snapshot = Snapshot.build(
        msgspec.structs.replace(one, location=at("z", rack)) for one, rack in zip(fleet, racks, strict=True)
    )
    found = plan(snapshot, OWNER, OWNER, OWNER, OWNER)
    assert sorted(nodes_of(found)) == ["c", "c", "d", "d"]
    assert found.spread == Spread(1, 1, 1, 2, 2)
    assert found.reason == "all 4 members placed together on 1 zone, 1 rack, 2 nodes"


def test_a_link_domain_is_nearer_than_a_rack() -> None:
    """Two nodes of one NVLink domain hold the gang; so would a pair from different domains of the same rack."""
    fleet = [
        msgspec.structs.replace(node(name, "a100"), location=at("z", "r", domain))
        for name, domain in (("a", "x"), ("b", "y"), ("c", "z"), ("d", "y"))
    ]
    assert nodes_of(plan(Snapshot.build(fleet), OWNER, OWNER)) == ["b", "d"]


def test_wide_levels_are_kept_few_before_narrow_ones() -> None:
    """No zone holds five; two zones do, though three nodes in one of them are in three racks."""
    fleet = [
        msgspec.structs.replace(node(name, "a100", "a100"), location=at(zone, rack))
        for name, zone, rack in (("a", "z1", "r1"), ("b", "z1", "r2"), ("c", "z2", "r3"), ("d", "z3", "r4"))
    ]
    found = plan(Snapshot.build(fleet), *([OWNER] * 5))
    assert found.spread.zones == 2
    assert found.spread.nodes == 3


def test_of_zones_that_hold_all_the_one_with_fewer_racks_is_taken() -> None:
    """Zone x holds four members in three racks and nothing to spare, zone y in two racks with a card left."""
    sizes = {"a": 2, "b": 1, "c": 1, "d": 3, "e": 2}
    fleet = [
        msgspec.structs.replace(node(name, *(["a100"] * size)), location=at("x" if name < "d" else "y", f"r-{name}"))
        for name, size in sizes.items()
    ]
    found = plan(Snapshot.build(fleet), *([OWNER] * 4))
    assert set(nodes_of(found)) == {"d", "e"}


def test_the_last_place_is_the_smallest_that_suffices() -> None:
    """Three cards: a full node of two and the node that has just one, not a piece of another big one."""
    fleet = [node("a", "a100", "a100"), node("b", "a100", "a100"), node("c", "a100")]
    assert sorted(nodes_of(plan(Snapshot.build(fleet), *([OWNER] * 3)))) == ["a", "a", "c"]


def test_one_vendor_unless_portable() -> None:
    fleet = [node("gpu", "a100", "a100"), node("npu", "910b", "910b")]
    refused = plan_gang(Snapshot.build(fleet), gang(OWNER, OWNER, OWNER))
    assert isinstance(refused, Unplaceable)
    assert "of one vendor" in refused.summary
    found = plan(Snapshot.build(fleet), OWNER, OWNER, OWNER, portable=True)
    assert {member.placement.vendor for member in found.members} == {"nvidia", "ascend"}


def test_one_model_before_several_of_a_vendor() -> None:
    """Two cards of one model in two racks are better than two models on one node: the slower holds up the faster."""
    fleet = [node("a", "a100", "t4"), node("b", "a100")]
    found = plan(Snapshot.build(fleet), OWNER, OWNER)
    assert {member.placement.model for member in found.members} == {"A100-SXM4-80GB"}
    mixed = plan(Snapshot.build([fleet[0]]), OWNER, OWNER)
    assert {member.placement.model for member in mixed.members} == {"A100-SXM4-80GB", "T4"}


def test_named_cards_come_before_substitutes() -> None:
    """Named cards in two zones, substitutes on one node: exchange is for what cannot be had."""
    asked = ComputeRequest((whole(),), models=("A100-SXM4-80GB",), sharing="exclusive", substitution="auto")
    fleet = [
        msgspec.structs.replace(node("a", "a100"), location=at("z1")),
        msgspec.structs.replace(node("b", "a100"), location=at("z2")),
        node("c", "910b", "910b"),
    ]
    assert nodes_of(plan(Snapshot.build(fleet), asked, asked)) == ["a", "b"]
    assert nodes_of(plan(Snapshot.build(fleet[1:]), asked, asked)) == ["c", "c"]


def test_members_of_different_sizes() -> None:
    """A pair, a whole card and two shares: the pair needs the node with two empty cards."""
    fleet = [node("a", "a100"), node("b", "a100", "a100")]
    found = plan(Snapshot.build(fleet), ComputeRequest((share(16),)), PAIR, ComputeRequest((share(50),)))
    assert nodes_of(found) == ["a", "b", "a"]
    assert [member.pod for member in found.members] == ["m0", "m1", "m2"], "in the order of the gang"


def test_nothing_for_anybody_where_not_all_find_a_place() -> None:
    snapshot = Snapshot.build([node("a", "a100", "a100")])
    refused = plan_gang(snapshot, gang(PAIR, OWNER))
    assert isinstance(refused, Unplaceable)
    assert not refused.resolvable, "not even the empty fleet would do"
    assert "2 members" in refused.summary
    busy = snapshot.with_allocation(placed(snapshot, OWNER))
    waits = plan_gang(busy, gang(OWNER, OWNER))
    assert isinstance(waits, Unplaceable)
    assert waits.resolvable
    assert "taken by other pods" in waits.summary


def test_what_a_waiting_gang_reads_does_not_change_as_others_come_and_go() -> None:
    """kube-scheduler tries again without a pause when a text changes."""
    empty = Snapshot.build([node("a", "a100", "a100"), node("b", "t4")])
    asked = gang(*([ComputeRequest((whole(vram=40),), sharing="exclusive")] * 2))
    texts = set()
    one = placed(empty, OWNER, nodes=["a"])  # type: ignore[arg-type]
    two = placed(empty.with_allocation(one), OWNER, "other", nodes=["a"])  # type: ignore[arg-type]
    for snapshot in (after(empty, [one]), after(empty, [one, two])):
        refused = plan_gang(snapshot, asked)
        assert isinstance(refused, Unplaceable)
        texts.add((refused.summary, refused.refusals))
    assert len(texts) == 1


def test_beyond_the_minimum_members_may_wait() -> None:
    found = plan(Snapshot.build([node("a", "a100", "a100")]), OWNER, OWNER, OWNER, minimum=2)
    assert [member.pod for member in found.members] == ["m0", "m1"]
    assert found.waiting == ("m2",)


def test_a_gang_that_is_not_complete_is_not_planned() -> None:
    refused = plan_gang(Snapshot.build([node("a", "a100")]), gang(OWNER, minimum=3))
    assert isinstance(refused, Unplaceable)
    assert "starts with 3 members; 1 are there" in refused.summary


def test_a_sub_healthy_card_serves_a_single_pod_and_no_gang() -> None:
    fleet = [node("a", "a100", "a100:SubHealthy")]
    assert isinstance(plan_gang(Snapshot.build(fleet), gang(OWNER, OWNER)), Unplaceable)
    single = plan_gang(Snapshot.build([node("a", "a100:SubHealthy")]), gang(OWNER))
    assert isinstance(single, GangPlan)


def test_members_that_require_a_network_stay_in_one() -> None:
    """Either network alone is too small; both together are not one."""
    fleet = [
        msgspec.structs.replace(node(name, "a100", "a100"), nics=(nic("mlx5_0", fabric),))
        for name, fabric in (("a", "ib-a"), ("b", "ib-b"), ("c", "ib-b"))
    ]
    rule = Locality(fabric=FabricRule())
    asked = msgspec.structs.replace(OWNER, locality=rule)
    found = plan(Snapshot.build(fleet), *([asked] * 3))
    assert set(nodes_of(found)) == {"b", "c"}
    assert isinstance(plan_gang(Snapshot.build(fleet[:2]), gang(*([asked] * 3))), Unplaceable)
    named = msgspec.structs.replace(OWNER, locality=Locality(fabric=FabricRule(("ib-a",))))
    assert set(nodes_of(plan(Snapshot.build(fleet), named, named))) == {"a"}


def test_members_that_require_links_get_cards_that_have_them() -> None:
    """Four pairs on a node of two halves: no pair lies across."""
    asked = msgspec.structs.replace(PAIR, locality=Locality(links=LinkRule(("nvlink",))))
    found = plan(Snapshot.build([halves("a", cards=8)]), *([asked] * 4))
    for member in found.members:
        first, second = (int(grant.device.rpartition("-")[2]) for grant in member.placement.containers["main"])
        assert (first < 4) == (second < 4)


def test_a_plan_is_stale_once_one_of_its_cards_is_taken_or_sick() -> None:
    snapshot = Snapshot.build([node("a", "a100", "a100"), node("b", "a100")])
    found = plan(snapshot, OWNER, OWNER)
    assert check_plan(snapshot, found) is None
    other = placed(snapshot, OWNER, "other", nodes=["a"])  # type: ignore[arg-type]
    stale = check_plan(snapshot.with_allocation(other), found)
    assert stale is not None
    assert stale.reason == "StalePlan"
    elsewhere = placed(snapshot, OWNER, "other", nodes=["b"])  # type: ignore[arg-type]
    assert check_plan(snapshot.with_allocation(elsewhere), found) is None
    for changed in (
        node("a", "a100", "a100", quarantine=(Quarantine("*", "Drill"),)),
        node("a", "a100", "a100", ready=False),
        node("a", "a100"),
    ):
        assert check_plan(Snapshot.build([changed]), found) is not None


def test_a_share_is_stale_once_the_rest_of_the_card_is_too_small() -> None:
    snapshot = Snapshot.build([node("a", "t4")])
    found = plan(snapshot, ComputeRequest((share(6),)), ComputeRequest((share(6),)))
    assert check_plan(snapshot, found) is None
    assert check_plan(after(snapshot, [placed(snapshot, ComputeRequest((share(5),)), "x")]), found) is not None


def test_cpu_beside_the_cards_counts() -> None:
    """The rack with all the cards has CPU for one member only, so they go where there is enough for all."""
    fleet = [
        msgspec.structs.replace(node(name, "a100", "a100"), location=at("z", rack))
        for name, rack in (("a", "r1"), ("b", "r2"), ("c", "r2"))
    ]
    members = tuple(Member(f"m{n}", OWNER, milli_cpu=4000) for n in range(2))
    rooms = {"a": Room(6000, GIB), "b": Room(4000, GIB), "c": Room(5000, GIB)}
    found = plan_gang(Snapshot.build(fleet), Gang("g", members), rooms=rooms)
    assert isinstance(found, GangPlan)
    assert sorted(nodes_of(found)) == ["b", "c"]
    refused = plan_gang(Snapshot.build(fleet), Gang("g", members), rooms=dict.fromkeys("abc", Room(3000, GIB)))
    assert isinstance(refused, Unplaceable)
    assert refused.resolvable
    assert "CPU and memory beside them" in refused.summary


def test_what_else_a_node_offers_is_counted_for_all_members() -> None:
    """Two cards and one slot on a: a card alone is not enough for the second member."""
    fleet = [
        msgspec.structs.replace(node("a", "a100", "a100"), capacities=(("slots", 1),)),
        msgspec.structs.replace(node("b", "a100"), capacities=(("slots", 1),)),
    ]
    asked = msgspec.structs.replace(OWNER, capacities=(("slots", 1),))
    found = plan(Snapshot.build(fleet), asked, asked)
    assert sorted(nodes_of(found)) == ["a", "b"]
    mixed = plan(Snapshot.build(fleet), asked, msgspec.structs.replace(asked, vendors=("nvidia",)))
    assert sorted(nodes_of(mixed)) == ["a", "b"]
    assert isinstance(plan_gang(Snapshot.build(fleet[:1]), gang(asked, asked)), Unplaceable)


# What must always hold.


@st.composite
def gangs(draw: st.DrawFn) -> tuple[ComputeRequest, ...]:
    kinds = [draw(requests()) for _ in range(draw(st.integers(1, 2)))]
    return tuple(draw(st.sampled_from(kinds)) for _ in range(draw(st.integers(1, 4))))


@given(fleet=inventories(), asked=gangs(), portable=st.booleans())
def test_all_members_fit_side_by_side_or_none_is_placed(
    fleet: tuple[NodeInventory, ...], asked: tuple[ComputeRequest, ...], portable: bool
) -> None:
    snapshot = Snapshot.build(fleet)
    found = plan_gang(snapshot, gang(*asked, portable=portable))
    assert found == plan_gang(Snapshot.build(reversed(fleet)), gang(*asked, portable=portable)), "the same plan always"
    if isinstance(found, Unplaceable):
        return
    assert [member.pod for member in found.members] == [f"m{n}" for n in range(len(asked))]
    held = after(snapshot, found.allocations())
    assert held.overcommitted == ()
    assert held.stray == ()
    assert check_plan(snapshot, found) is None
    if not portable:
        assert len({member.placement.vendor for member in found.members}) == 1


@st.composite
def tiny(draw: st.DrawFn) -> tuple[tuple[NodeInventory, ...], tuple[ComputeRequest, ...]]:
    """A handful of cards and members that just fit or just do not."""
    fleet = tuple(
        node(f"n{n}", *draw(st.lists(st.sampled_from(("t4", "t4", "910b")), min_size=1, max_size=3)))
        for n in range(draw(st.integers(1, 3)))
    )
    part = st.builds(share, st.sampled_from((4, 5, 6, 8, 10)), st.sampled_from((0, 8)))
    member = st.one_of(
        part.map(lambda one: ComputeRequest((one,))),
        st.integers(1, 2).map(lambda cards: ComputeRequest((whole(cards),), sharing="exclusive")),
        st.tuples(part, part).map(lambda two: ComputeRequest((two[0], msgspec.structs.replace(two[1], name="second")))),
    )
    kinds = draw(st.lists(member, min_size=1, max_size=3))
    return fleet, tuple(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)))


def brute_force(snapshot: Snapshot, asked: Sequence[ComputeRequest], cpu: Sequence[int], free: dict[str, int]) -> bool:
    """Whether any way to give every member a group of one vendor serves, worked out by trying all of them."""
    fleet = snapshot.fleet
    weighed = [appraise(fleet, request) for request in asked]
    vendors = [fleet.devices[int(first)].vendor for first in fleet.group_first[:-1]]
    for groups in itertools.product(range(len(vendors)), repeat=len(asked)):
        if len({vendors[group] for group in groups}) > 1:
            continue
        where = [fleet.nodes[int(fleet.group_node[group])].name for group in groups]
        if any(sum(c for c, at in zip(cpu, where, strict=True) if at == name) > free[name] for name in where):
            continue
        for group in set(groups):
            inside = [
                appraisal for one, where in zip(weighed, groups, strict=True) if where == group for appraisal in one
            ]
            cards = cards_of(snapshot, inside, [eligible(snapshot, one) for one in inside], group)
            if pack(cards, len(inside)) is None:
                break
        else:
            return True
    return False


@given(
    case=tiny(),
    cpu=st.lists(st.sampled_from((1, 1, 2)), min_size=5, max_size=5),
    free=st.lists(st.integers(1, 6), min_size=3, max_size=3),
)
def test_a_plan_is_found_exactly_when_there_is_one(
    case: tuple[tuple[NodeInventory, ...], tuple[ComputeRequest, ...]], cpu: list[int], free: list[int]
) -> None:
    """Over cards and CPU."""
    fleet, asked = case
    snapshot = Snapshot.build(fleet)
    members = tuple(Member(f"m{n}", request, milli_cpu=cpu[n]) for n, request in enumerate(asked))
    rooms = {one.name: Room(free[n], GIB) for n, one in enumerate(fleet)}
    found = plan_gang(snapshot, Gang("g", members), rooms=rooms)
    assert isinstance(found, GangPlan) == brute_force(
        snapshot, asked, cpu[: len(asked)], {name: room.milli_cpu for name, room in rooms.items()}
    )
    if isinstance(found, GangPlan):
        assert after(snapshot, found.allocations()).overcommitted == ()
        for name, room in rooms.items():
            assert sum(cpu[n] for n, where in enumerate(nodes_of(found)) if where == name) <= room.milli_cpu


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    zones=st.lists(st.sampled_from("xy"), min_size=8, max_size=8),
    racks=st.lists(st.sampled_from("12"), min_size=8, max_size=8),
    members=st.integers(1, 8),
)
def test_equal_members_reach_over_as_few_zones_racks_and_nodes_as_can_be(
    sizes: list[int], zones: list[str], racks: list[str], members: int
) -> None:
    """Against all subsets of nodes; the number of nodes only counts where one rack holds all."""
    fleet = [
        msgspec.structs.replace(node(f"n{n}", *(["a100"] * size)), location=at(zones[n], racks[n]))
        for n, size in enumerate(sizes)
    ]
    snapshot = Snapshot.build(fleet)
    found = plan_gang(snapshot, gang(*([OWNER] * members)))
    if sum(sizes) < members:
        assert isinstance(found, Unplaceable)
        return
    assert isinstance(found, GangPlan)
    best = min(
        (len({zones[n] for n in chosen}), len({(zones[n], racks[n]) for n in chosen}), len(chosen))
        for count in range(1, len(sizes) + 1)
        for chosen in itertools.combinations(range(len(sizes)), count)
        if sum(sizes[n] for n in chosen) >= members
    )
    assert found.spread.zones == best[0]
    if best[0] == 1:
        assert found.spread.racks == best[1]
        if best[1] == 1:
            assert found.spread.nodes == best[2]


@pytest.mark.parametrize("kind", sorted(CARDS))
def test_a_gang_of_one_is_a_pod(kind: str) -> None:
    snapshot = Snapshot.build([node("a", kind)])
    assert nodes_of(plan(snapshot, OWNER)) == ["a"]
