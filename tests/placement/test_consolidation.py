"""Consolidation: what the moves free is free, nothing else breaks, and the limits are kept."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import node, placed, share, whole

from hcs.model.devices import NodeInventory
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest
from hcs.placement.consolidation import ConsolidationPlan, Freed, Movable, plan_consolidation
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot
from hcs.placement.victims import Budget, RunningPod

SMALL = ComputeRequest((share(16),))
OWNER = ComputeRequest((whole(),), sharing="exclusive")


class Scene:
    """A fleet with pods on it."""

    def __init__(self, *nodes: NodeInventory) -> None:
        self.snapshot = Snapshot.build(nodes)
        self.pods: list[Movable] = []

    def run(self, where: str, asked: ComputeRequest = SMALL, lost: int = 10, *, movable: bool = True) -> str:
        """Run a pod on a node; returns its UID."""
        uid = f"p{len(self.pods)}"
        allocation = placed(self.snapshot, asked, uid, nodes=[where])  # type: ignore[arg-type]
        self.snapshot = self.snapshot.with_allocation(allocation)
        pod = RunningPod(uid, f"default/{uid}", where, 0, allocation, 1000, GIB, lost)
        self.pods.append(Movable(pod, asked, movable))
        return uid

    def plan(self, **fields: object) -> ConsolidationPlan:
        """The plan."""
        return plan_consolidation(self.snapshot, self.pods, **fields)  # type: ignore[arg-type]

    def carried_out(self, plan: ConsolidationPlan) -> Snapshot:
        """The fleet once all moves are made, one after the other."""
        snapshot = self.snapshot
        held = {one.pod.uid: one.pod.allocation for one in self.pods}
        for move in plan.moves:
            before = held[move.pod]
            assert before is not None
            snapshot = snapshot.without(before).with_allocation(move.target.allocation(move.pod))
        return snapshot


def test_the_node_that_is_cheapest_to_empty_is_emptied() -> None:
    scene = Scene(node("a", "a100", "a100"), node("b", "a100", "a100"), node("c", "a100"))
    for _ in range(3):
        scene.run("a")
    lone = scene.run("b", lost=42)
    plan = scene.plan()
    assert plan.freed == (Freed("b"),)
    assert [(move.pod, move.source, move.target.node) for move in plan.moves] == [(lone, "b", "a")]
    assert plan.summary == "1 move frees 1 node with 2 cards; 42 s of work since the last checkpoints are lost"
    assert "c" not in {move.target.node for move in plan.moves}, "an empty node stays empty"


def test_a_card_is_freed_within_its_own_node() -> None:
    """Two shares on two cards of one node: no node can be freed, a card can."""
    scene = Scene(node("a", "a100", "t4"))
    scene.run("a", ComputeRequest((share(40),)))
    scene.run("a", ComputeRequest((share(10),), models=("T4",)))
    scene.pods[1] = msgspec.structs.replace(scene.pods[1], request=ComputeRequest((share(10),)))
    assert scene.plan().freed == ()
    plan = scene.plan(goal="cards")
    assert plan.freed == (Freed("a", "a/t4-1"),)
    assert scene.carried_out(plan).overcommitted == ()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"max_moves": 0}, "moves more than the 0 allowed", id="moves"),
        pytest.param({"max_lost_seconds": 5}, "10 s of work", id="lost-work"),
        pytest.param({"budgets": [Budget("q", frozenset({"p0", "p1"}), 0)]}, "disruption budget", id="budget"),
        pytest.param(
            {"rooms": {"a": Room(100, GIB), "b": Room(100, GIB)}}, "no place on cards in use", id="cpu-elsewhere"
        ),
    ],
)
def test_limits_are_kept_and_named(fields: dict[str, object], why: str) -> None:
    scene = Scene(node("a", "a100"), node("b", "a100"))
    scene.run("a")
    scene.run("b")
    assert len(scene.plan().freed) == 1
    plan = scene.plan(**fields)
    assert plan.moves == ()
    assert plan.freed == ()
    assert plan.summary == "no node can be freed within these limits"
    assert all(why in said for _, said in plan.skipped)


def test_a_pod_that_must_stay_keeps_its_node() -> None:
    scene = Scene(node("a", "a100"), node("b", "a100"))
    scene.run("a", movable=False)
    scene.run("b", movable=False)
    plan = scene.plan()
    assert plan.moves == ()
    assert dict(plan.skipped)["a"] == "default/p0 is not to be moved"


def test_devices_promised_to_others_are_left_alone() -> None:
    scene = Scene(node("a", "a100", "a100"), node("b", "a100"))
    scene.run("a")
    scene.run("b")
    promised = placed(scene.snapshot, OWNER, "promised", nodes=["a"])  # type: ignore[arg-type]
    scene.snapshot = scene.snapshot.with_allocation(promised)
    plan = scene.plan()
    assert plan.freed == (Freed("b"),)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    scene = Scene(
        *(
            node(f"n{n}", *draw(st.lists(st.sampled_from(("t4", "a100", "910b")), min_size=1, max_size=3)))
            for n in range(draw(st.integers(1, 4)))
        )
    )
    asked = st.one_of(st.sampled_from((4, 8, 16)).map(lambda size: ComputeRequest((share(size),))), st.just(OWNER))
    for _ in range(draw(st.integers(1, 8))):
        where, wanted = draw(st.sampled_from(scene.snapshot.fleet.nodes)).name, draw(asked)
        if isinstance(place(scene.snapshot, wanted, nodes=[where]), Placement):
            scene.run(where, wanted, draw(st.integers(0, 9)), movable=draw(st.integers(0, 4)) > 0)
    return scene


@given(scene=scenes(), goal=st.sampled_from(("nodes", "cards")), moves=st.integers(0, 6), lost=st.integers(0, 30))
def test_moves_free_what_they_say_and_break_nothing(scene: Scene, goal: str, moves: int, lost: int) -> None:
    budget = Budget("q", frozenset({"p0", "p1", "p2"}), 1)
    plan = scene.plan(goal=goal, max_moves=moves, max_lost_seconds=lost, budgets=[budget])
    after = scene.carried_out(plan)
    assert after.overcommitted == ()
    for freed in plan.freed:
        inside = after.fleet.slice_of(after.fleet.node_index[freed.node])
        positions = (
            [after.fleet.device_index[freed.node, freed.device]] if freed.device else range(inside.start, inside.stop)
        )
        assert all(after.tenants[position] == 0 for position in positions)
        assert any(scene.snapshot.tenants[position] > 0 for position in positions), "it was not free before"
    moved = [move.pod for move in plan.moves]
    assert len(set(moved)) == len(moved) <= moves
    assert plan.lost_seconds <= lost
    assert len(budget.pods & set(moved)) <= 1
    assert all(one.movable for one in scene.pods if one.pod.uid in moved)
    used = {
        name
        for name in after.fleet.node_index
        if after.fleet.any_on_node(scene.snapshot.tenants > 0)[after.fleet.node_index[name]]
    }
    assert {move.target.node for move in plan.moves} <= used, "only what is in use is filled"
