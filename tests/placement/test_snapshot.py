"""The ledger: sums that add up, go back exactly, and forget nothing that does not fit the hardware any more."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import Nodes, inventories, node, placed, requests, share, whole

from hcs.model.allocations import Allocation, Grant
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot, SnapshotError, StrayGrant


def held(pod: str, where: str, *grants: Grant, exclusive: bool = False) -> Allocation:
    """An allocation of one container."""
    return Allocation("v1", pod, where, "nvidia", "T4", {"main": grants}, exclusive=exclusive)


def test_free_is_what_nobody_holds() -> None:
    snapshot = Snapshot.build([node("a", "t4", "t4")], [held("p", "a", Grant("a/t4-1", 4 * GIB, 5_000))])
    assert snapshot.free_bytes.tolist() == [16 * GIB, 12 * GIB]
    assert snapshot.free_milliacu.tolist() == [20_000, 15_000]
    assert snapshot.tenants.tolist() == [0, 1]
    assert snapshot.whole.tolist() == [0, 0]
    assert snapshot.overcommitted == ()


def test_a_snapshot_never_changes() -> None:
    before = Snapshot.build([node("a", "t4")])
    after = before.with_allocation(placed(before, ComputeRequest((share(4),))))
    assert before.tenants.tolist() == [0]
    assert after.tenants.tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        after.used[0, 0] = 0


def test_a_card_that_is_gone_keeps_its_pod_in_sight() -> None:
    lost, left = held("p", "a", Grant("a/t4-0", GIB, 0), Grant("a/gone", GIB, 0)), held("q", "b", Grant("x", GIB, 0))
    snapshot = Snapshot.build([node("a", "t4")], [lost, left])
    assert snapshot.stray == (StrayGrant("a", "a/gone", "p", "main"), StrayGrant("b", "x", "q", "main"))
    assert snapshot.free_bytes.tolist() == [15 * GIB]
    assert snapshot.without(left).stray == snapshot.stray[:1]
    assert snapshot.without(lost).without(left).same_as(Snapshot.build([node("a", "t4")]))


@pytest.mark.parametrize(
    "allocations",
    [
        pytest.param([held("p", "a", Grant("a/t4-0", 20 * GIB, 0))], id="more-memory-than-it-has"),
        pytest.param([held("p", "a", Grant("a/t4-0", GIB, 30_000))], id="more-compute-than-it-has"),
        pytest.param([held("p", "a", Grant("a/t4-0", 1 << 70, 1 << 70))], id="more-than-64-bits"),
        pytest.param(
            [held("p", "a", Grant("a/t4-0", GIB, 0), exclusive=True), held("q", "a", Grant("a/t4-0", GIB, 0))],
            id="a-tenant-beside-an-owner",
        ),
    ],
)
def test_an_over_commitment_is_shown_and_gives_nothing_away(allocations: list[Allocation]) -> None:
    snapshot = Snapshot.build([node("a", "t4", "t4")], allocations)
    assert snapshot.overcommitted == (("a", "a/t4-0"),)
    assert snapshot.free_bytes.min() >= 0
    assert snapshot.free_milliacu.min() >= 0
    assert placed(snapshot, ComputeRequest((share(15, 15),))).devices() == {"a/t4-1"}
    for allocation in allocations:
        snapshot = snapshot.without(allocation)
    assert snapshot.same_as(Snapshot.build([node("a", "t4", "t4")]))


@pytest.mark.parametrize("where", ["a", "elsewhere"])
def test_what_is_not_held_cannot_be_given_back(where: str) -> None:
    snapshot = Snapshot.build([node("a", "t4")])
    with pytest.raises(SnapshotError, match="does not hold"):
        snapshot.without(held("p", where, Grant("a/t4-0", GIB, 0)))


def test_an_owner_of_a_card_that_reports_more_memory_today_is_still_alone() -> None:
    snapshot = Snapshot.build([node("a", "t4")], [held("p", "a", Grant("a/t4-0", 15 * GIB, 20_000), exclusive=True)])
    assert not isinstance(place(snapshot, ComputeRequest((share(1),))), Placement)


@given(nodes=inventories(), wishes=st.lists(requests(), max_size=6), data=st.data())
def test_steps_and_a_fresh_start_lead_to_the_same_snapshot(
    nodes: Nodes, wishes: list[ComputeRequest], data: st.DataObject
) -> None:
    snapshot = Snapshot.build(nodes)
    live: list[Allocation] = []
    for number, request in enumerate(wishes):
        answer = place(snapshot, request)
        if isinstance(answer, Placement):
            allocation = answer.allocation(f"pod-{number}")
            after = snapshot.with_allocation(allocation)
            assert after.without(allocation).same_as(snapshot)
            assert not after.same_as(snapshot)
            snapshot = after
            live.append(allocation)
        ends: bool = data.draw(st.booleans(), label="one ends")
        if live and ends:
            ended = live.pop(data.draw(st.integers(0, len(live) - 1), label="which"))
            snapshot = snapshot.without(ended)
    assert snapshot.same_as(Snapshot.build(nodes, live))
    assert snapshot.same_as(Snapshot.build(reversed(nodes), reversed(live)))


def test_two_snapshots_differ_where_the_hardware_does() -> None:
    nodes = node("a", "t4"), node("b", "t4")
    ready = Snapshot.build(nodes)
    assert ready.same_as(Snapshot.build(nodes))
    assert not ready.same_as(Snapshot.build([nodes[0], msgspec.structs.replace(nodes[1], ready=False)]))
    assert placed(ready, ComputeRequest((whole(),), sharing="exclusive")).node == "a"
