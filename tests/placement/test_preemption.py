"""Preemption: the victims make room, none of them is superfluous, and nobody is evicted who must not be."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import node, placed, share, whole

from hcs.model.allocations import Allocation
from hcs.model.devices import NodeInventory
from hcs.model.quantities import GIB
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import appraise
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.preemption import (
    Budget,
    Preemptor,
    RunningPod,
    VictimPlan,
    choose_victims,
    correct_victims,
)
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot
from hcs.placement.victims import BUDGET, Ask, NodeView, smallest_sets

OWNER = ComputeRequest((whole(),), sharing="exclusive")
PAIR = ComputeRequest((whole(2),), sharing="exclusive")


class Scene:
    """A fleet on which pods are placed one after the other, each where it is told."""

    def __init__(self, *nodes: NodeInventory) -> None:
        self.snapshot = Snapshot.build(nodes)
        self.pods: list[RunningPod] = []

    def run(
        self,
        where: str,
        asked: ComputeRequest | None,
        priority: int = 0,
        lost: int = 0,
        *,
        cpu: int = 0,
        ending: bool = False,
    ) -> str:
        """Run a pod on a node; returns its UID."""
        uid = f"p{len(self.pods)}"
        allocation: Allocation | None = None
        if asked is not None:
            allocation = placed(self.snapshot, asked, uid, nodes=[where])  # type: ignore[arg-type]
            self.snapshot = self.snapshot.with_allocation(allocation)
        self.pods.append(RunningPod(uid, f"default/{uid}", where, priority, allocation, cpu, 0, lost, "", ending))
        return uid

    def choose(self, asked: ComputeRequest, priority: int = 100, **fields: object) -> VictimPlan | Refusal:
        """Choose victims for a pod."""
        rooms, budgets = fields.pop("rooms", None), fields.pop("budgets", ())
        preemptor = Preemptor("new", asked, priority, **fields)  # type: ignore[arg-type]
        return choose_victims(self.snapshot, preemptor, self.pods, rooms=rooms, budgets=budgets)  # type: ignore[arg-type]

    def victims(self, asked: ComputeRequest, priority: int = 100, **fields: object) -> tuple[str, ...]:
        """The victims, who must exist and make room."""
        plan = self.choose(asked, priority, **fields)
        assert isinstance(plan, VictimPlan), plan
        assert fits(self.snapshot, self.pods, asked, plan.victims, plan.node) is not None
        return plan.victims


def fits(
    snapshot: Snapshot, pods: Sequence[RunningPod], asked: ComputeRequest, gone: Sequence[str], where: str
) -> Placement | None:
    """Whether the pod has a place on the node once these are gone."""
    left = snapshot.without_all(pod.allocation for pod in pods if pod.uid in gone and pod.allocation is not None)
    answer = place(left, asked, nodes=[where])
    return answer if isinstance(answer, Placement) else None


def test_the_lowest_priority_goes_first() -> None:
    scene = Scene(node("a", "a100"), node("b", "a100"))
    scene.run("a", OWNER, priority=20)
    low = scene.run("b", OWNER, priority=10, lost=9999)
    assert scene.victims(OWNER) == (low,)


def test_few_pods_before_little_lost_work() -> None:
    """On the one node a single pod with much to lose, on the other two with little."""
    scene = Scene(node("a", "a100"), node("b", "a100"))
    one = scene.run("a", OWNER, lost=5000)
    for _ in range(2):
        scene.run("b", ComputeRequest((share(30),)), lost=1)
    assert scene.victims(OWNER) == (one,)


def test_among_equals_who_saved_last_loses_least() -> None:
    scene = Scene(node("a", "a100", "a100"), node("b", "a100"))
    scene.run("a", OWNER, lost=600)
    recent = scene.run("a", OWNER, lost=30)
    scene.run("b", OWNER, lost=300)
    assert scene.victims(OWNER) == (recent,)
    assert scene.choose(OWNER).reason.endswith("30 s of work since the last checkpoints are lost")


def test_only_pods_on_the_cards_that_are_needed_go() -> None:
    """A share on each of two cards; one card is enough, whichever costs less."""
    scene = Scene(node("a", "a100", "a100"))
    scene.run("a", ComputeRequest((share(60),)), lost=50)
    cheap = scene.run("a", ComputeRequest((share(60),)), lost=10)
    assert scene.victims(ComputeRequest((share(40),))) == (cheap,)


def test_cpu_needs_victims_too() -> None:
    """The cards are there, the CPU is not: a pod without cards goes."""
    scene = Scene(node("a", "a100"))
    busy = scene.run("a", None, cpu=4000)
    scene.run("a", None, cpu=500)
    rooms = {"a": Room(milli_cpu=1000, memory=64 * GIB)}
    assert scene.victims(OWNER, rooms=rooms, milli_cpu=4000) == (busy,)
    both = Scene(node("a", "a100"))
    card, cpu = both.run("a", OWNER, cpu=100), both.run("a", None, cpu=4000)
    assert both.victims(OWNER, rooms=rooms, milli_cpu=4000) == tuple(sorted((card, cpu)))


def test_nobody_of_equal_or_higher_priority_is_evicted() -> None:
    scene = Scene(node("a", "a100"))
    scene.run("a", OWNER, priority=100)
    answer = scene.choose(OWNER, priority=100)
    assert isinstance(answer, Refusal)
    assert answer.reason == "NobodyLower"


def test_never_means_never() -> None:
    scene = Scene(node("a", "a100"))
    scene.run("a", OWNER)
    answer = scene.choose(OWNER, policy="Never")
    assert isinstance(answer, Refusal)
    assert answer.reason == "PreemptionNever"


def test_a_disruption_budget_is_kept() -> None:
    """The cheap pod may not be disturbed, so a dearer one goes; where none is left, nobody does."""
    scene = Scene(node("a", "a100", "a100"))
    guarded, other = scene.run("a", OWNER, priority=1), scene.run("a", OWNER, priority=2)
    budget = Budget("quorum", frozenset({guarded}), allowed=0)
    assert scene.victims(OWNER, budgets=[budget]) == (other,)
    both = Budget("quorum", frozenset({guarded, other}), allowed=1)
    answer = scene.choose(PAIR, budgets=[both])
    assert isinstance(answer, Refusal)
    assert answer.reason == "EvictionDoesNotHelp"
    assert scene.victims(PAIR, budgets=[msgspec.structs.replace(both, allowed=2)]) == (guarded, other)


def test_who_ends_already_needs_no_eviction() -> None:
    scene = Scene(node("a", "a100"), node("b", "a100"))
    scene.run("a", OWNER)
    scene.run("b", OWNER, ending=True)
    answer = scene.choose(OWNER)
    assert isinstance(answer, Refusal)
    assert answer.reason == "RoomIsComing"


def test_eviction_cannot_make_a_card_larger() -> None:
    scene = Scene(node("a", "t4"))
    scene.run("a", ComputeRequest((share(4),)))
    answer = scene.choose(ComputeRequest((share(40),)))
    assert isinstance(answer, Refusal)
    assert answer.reason == "EvictionDoesNotHelp"


def test_only_nodes_the_pod_may_go_to() -> None:
    scene = Scene(node("a", "a100"), node("b", "a100"))
    scene.run("a", OWNER, priority=0)
    there = scene.run("b", OWNER, priority=5)
    assert scene.victims(OWNER, nodes=frozenset({"b"})) == (there,)


def test_a_crowded_node_is_thinned_without_superfluous_victims() -> None:
    """Sixteen shares on a card of many tenants: more sets than the budget, so pods are spared one by one."""
    scene = Scene(node("a", "a100", "a100"))
    for number in range(32):
        scene.run("a", ComputeRequest((share(5),)), priority=number % 3, lost=number)
    victims = scene.victims(ComputeRequest((share(60),)))
    for spared in victims:
        rest = [uid for uid in victims if uid != spared]
        assert fits(scene.snapshot, scene.pods, ComputeRequest((share(60),)), rest, "a") is None
    assert BUDGET < 2**32


# The extender's preempt verb.


def test_kube_schedulers_victims_are_kept_completed_or_vetoed() -> None:
    scene = Scene(node("a", "a100"), node("b", "a100"), node("c", "t4"))
    enough = scene.run("a", OWNER, cpu=1000)
    card, cpu = scene.run("b", OWNER), scene.run("b", None, cpu=1000)
    small = scene.run("c", OWNER)
    asked = Preemptor("new", ComputeRequest((whole(vram=40),), sharing="exclusive"), 100)
    proposed = {"a": [enough], "b": [cpu], "c": [small], "nowhere": ["x"]}
    assert correct_victims(scene.snapshot, asked, proposed, scene.pods) == {
        "a": (enough,),
        "b": tuple(sorted((card, cpu))),
    }
    budget = Budget("quorum", frozenset({card, cpu}), allowed=1)
    assert correct_victims(scene.snapshot, asked, {"b": [cpu]}, scene.pods, budgets=[budget]) == {}
    never = msgspec.structs.replace(asked, policy="Never")
    assert correct_victims(scene.snapshot, never, proposed, scene.pods) == {}


def test_a_victim_without_cards_that_nobody_knows_is_kept() -> None:
    """kube-scheduler sees pods that ask for nothing of ours; their node knows them."""
    scene = Scene(node("a", "a100"))
    asked = Preemptor("new", OWNER, 100)
    assert correct_victims(scene.snapshot, asked, {"a": ["somebody"]}, []) == {"a": ("somebody",)}


# What must always hold.


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Scene, ComputeRequest, list[Budget], dict[str, Room]]:
    """One or two nodes full of pods of all sizes and priorities, and a pod that wants in."""
    nodes = [
        node(f"n{n}", *draw(st.lists(st.sampled_from(("t4", "a100")), min_size=1, max_size=3)))
        for n in range(draw(st.integers(1, 2)))
    ]
    scene = Scene(*nodes)
    asked = st.one_of(
        st.sampled_from((4, 8, 12, 40)).map(lambda size: ComputeRequest((share(size),))),
        st.integers(1, 2).map(lambda cards: ComputeRequest((whole(cards),), sharing="exclusive")),
    )
    for _ in range(draw(st.integers(1, 6))):
        wanted, where = draw(st.one_of(st.none(), asked, asked)), draw(st.sampled_from(nodes)).name
        if wanted is None or isinstance(place(scene.snapshot, wanted, nodes=[where]), Placement):
            scene.run(
                where,
                wanted,
                draw(st.integers(0, 3)),
                draw(st.sampled_from((0, 10, 100))),
                cpu=draw(st.sampled_from((0, 500, 1000))),
            )
    budgets = [
        Budget(f"b{n}", frozenset(draw(st.sets(st.sampled_from([pod.uid for pod in scene.pods] or ["x"])))), n)
        for n in range(draw(st.integers(0, 2)))
    ]
    rooms = {one.name: Room(draw(st.sampled_from((0, 2000))), GIB, 10) for one in nodes}
    return scene, draw(asked), budgets, rooms


@given(scene=scenes(), priority=st.integers(1, 4), cpu=st.sampled_from((0, 800)))
def test_victims_suffice_are_minimal_and_lower(
    scene: tuple[Scene, ComputeRequest, list[Budget], dict[str, Room]], priority: int, cpu: int
) -> None:
    """Against all subsets of all pods on each node."""
    stage, asked, budgets, rooms = scene
    answer = stage.choose(asked, priority, budgets=budgets, rooms=rooms, milli_cpu=cpu)

    def serves(gone: Sequence[RunningPod], where: str) -> bool:
        enough = rooms[where].milli_cpu + sum(pod.milli_cpu for pod in gone) >= cpu
        kept = all(sum(pod.uid in budget.pods for pod in gone) <= budget.allowed for budget in budgets)
        return enough and kept and fits(stage.snapshot, stage.pods, asked, [p.uid for p in gone], where) is not None

    lower = {name: [p for p in stage.pods if p.node == name and p.priority < priority] for name in rooms}
    ways = [
        (max((pod.priority for pod in gone), default=-1), len(gone), sum(pod.lost_seconds for pod in gone))
        for name, pods in lower.items()
        for count in range(len(pods) + 1)
        for gone in itertools.combinations(pods, count)
        if serves(gone, name)
    ]
    if isinstance(answer, Refusal):
        assert not ways or min(ways)[1] == 0, "nobody is evicted where nobody must be, or nothing helps"
        return
    victims = [pod for pod in stage.pods if pod.uid in answer.victims]
    assert all(pod.priority < priority and pod.node == answer.node for pod in victims)
    assert serves(victims, answer.node)
    for count in range(len(victims)):
        for part in itertools.combinations(victims, count):
            assert not serves(part, answer.node), "no proper part of the victims would do"
    best = (max(p.priority for p in victims), len(victims), sum(p.lost_seconds for p in victims))
    assert best == min(ways)


@pytest.mark.parametrize("size", [1, 2])
def test_sets_come_in_their_smallest_size(size: int) -> None:
    scene = Scene(node("a", "a100", "a100"))
    for _ in range(4):
        scene.run("a", ComputeRequest((share(40),)))
    asked = OWNER if size == 2 else ComputeRequest((share(30),))
    view = NodeView(scene.snapshot, "a", Ask(asked), appraise(scene.snapshot.fleet, asked))
    assert {len(found) for found in smallest_sets(view, scene.pods, [], {})} == {size}
