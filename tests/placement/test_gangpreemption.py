"""Victims for whole gangs: enough of everything on all nodes at once, and nobody for nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import node, share, whole
from tests.placement.test_preemption import OWNER, Scene

from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import VendorBound
from hcs.placement.gangplanner import plan_gang
from hcs.placement.gangpreemption import GangVictims, choose_gang_victims
from hcs.placement.gangs import Gang, GangPlan, Member, check_plan
from hcs.placement.rooms import Room
from hcs.placement.victims import Budget

GIB = 1 << 30


def pair(cpu: int = 0, memory: int = 0) -> Gang:
    return Gang("g", tuple(Member(f"m{n}", OWNER, milli_cpu=cpu, memory=memory) for n in range(2)))


def test_a_gang_evicts_no_more_than_its_plan_needs() -> None:
    scene = Scene(node("a", "a100", "a100"), node("b", "a100"), node("c", "a100"))
    first, second = scene.run("a", OWNER), scene.run("a", OWNER)
    scene.run("b", OWNER, priority=50)
    gang = Gang("g", (Member("m0", OWNER), Member("m1", OWNER)))
    answer = choose_gang_victims(scene.snapshot, gang, 100, scene.pods)
    assert isinstance(answer, GangVictims)
    assert answer.victims == (first, second), "one node is nearer than two"
    freed = scene.snapshot.without_all(pod.allocation for pod in scene.pods[:2] if pod.allocation is not None)
    assert check_plan(freed, answer.plan) is None
    budget = Budget("quorum", frozenset({first, second}), allowed=0)
    assert isinstance(choose_gang_victims(scene.snapshot, gang, 20, scene.pods, budgets=[budget]), Refusal)
    never = choose_gang_victims(scene.snapshot, gang, 100, scene.pods, policy="Never")
    assert isinstance(never, Refusal)
    assert never.reason == "PreemptionNever"


def test_nobody_goes_where_the_node_can_never_hold_the_members() -> None:
    """Evicting all would free the cards, and one member would still find no CPU."""
    scene = Scene(node("a", "a100", "a100"))
    for _ in range(2):
        scene.run("a", OWNER, cpu=1000)
    rooms = {"a": Room(6000, 64 * GIB)}
    never = choose_gang_victims(scene.snapshot, pair(cpu=5000), 100, scene.pods, rooms=rooms)
    assert isinstance(never, Refusal)
    assert never.reason == "EvictionDoesNotHelp"
    assert isinstance(choose_gang_victims(scene.snapshot, pair(cpu=4000), 100, scene.pods, rooms=rooms), GangVictims)


@pytest.mark.parametrize("what", ["cpu", "memory", "pods"])
def test_a_pod_without_cards_goes_for_the_cpu_memory_or_slot_that_it_holds(what: str) -> None:
    scene = Scene(node("a", "a100", "a100"))
    holder = scene.run("a", None, cpu=3000)
    bystander = scene.run("a", None, cpu=10, lost=5)
    scene.pods[0] = msgspec.structs.replace(scene.pods[0], memory=3 * GIB)
    room = Room(1000 if what == "cpu" else 9000, (1 if what == "memory" else 9) * GIB, 1 if what == "pods" else 9)
    found = choose_gang_victims(scene.snapshot, pair(2000, 2 * GIB), 100, scene.pods, rooms={"a": room})
    assert isinstance(found, GangVictims)
    assert len(found.victims) == 1
    assert what == "pods" or found.victims == (holder,)
    assert bystander not in found.victims or what == "pods"


def test_victims_of_the_wrong_vendor_are_left_alone() -> None:
    """The members run on one vendor only; its cards are too few even when all are free."""
    scene = Scene(node("a", "a100", "a100"), node("b", "910b"))
    for _ in range(2):
        scene.run("a", OWNER)
    scene.run("b", OWNER)
    bound = VendorBound(frozenset({"ascend"}), Refusal("RuntimeNotOffered", "only there"))
    answer = choose_gang_victims(scene.snapshot, pair(), 100, scene.pods, bounds={"m0": bound, "m1": bound})
    assert isinstance(answer, Refusal)


@given(st.data())
def test_victims_make_room_for_all_and_none_of_them_is_superfluous(data: st.DataObject) -> None:
    nodes = [node(name, *["a100"] * data.draw(st.integers(1, 3))) for name in "ab"]
    scene = Scene(*nodes)
    for _ in range(data.draw(st.integers(1, 5))):
        where = data.draw(st.sampled_from("ab"))
        asked = data.draw(st.sampled_from([None, OWNER, ComputeRequest((share(30),))]))
        cpu = data.draw(st.integers(0, 4)) * 1000
        if asked is not None and isinstance(
            plan_gang(scene.snapshot, Gang("x", (Member("x", asked, frozenset({where})),))), GangPlan
        ):
            scene.run(where, asked, data.draw(st.integers(0, 3)), cpu=cpu)
        elif asked is None:
            scene.run(where, None, data.draw(st.integers(0, 3)), cpu=cpu)
    rooms = {name: Room(data.draw(st.integers(0, 6)) * 1000, GIB) for name in "ab"}
    members = data.draw(
        st.lists(
            st.sampled_from([OWNER, ComputeRequest((share(50),)), ComputeRequest((whole(2),), sharing="exclusive")]),
            min_size=1,
            max_size=3,
        )
    )
    cpu = data.draw(st.integers(0, 3)) * 1000
    gang = Gang("g", tuple(Member(f"m{n}", asked, milli_cpu=cpu) for n, asked in enumerate(members)))
    answer = choose_gang_victims(scene.snapshot, gang, 3, scene.pods, rooms=rooms)
    if isinstance(answer, Refusal):
        return

    def holds(gone: set[str]) -> bool:
        pods = [pod for pod in scene.pods if pod.uid in gone]
        left = scene.snapshot.without_all(pod.allocation for pod in pods if pod.allocation is not None)
        used: dict[str, int] = {}
        for one in answer.plan.members:
            used[one.placement.node] = used.get(one.placement.node, 0) + cpu
        return check_plan(left, answer.plan) is None and all(
            amount <= rooms[name].milli_cpu + sum(pod.milli_cpu for pod in pods if pod.node == name)
            for name, amount in used.items()
        )

    victims = set(answer.victims)
    assert all(pod.priority < 3 for pod in scene.pods if pod.uid in victims)
    assert holds(victims)
    assert not any(holds(victims - {one}) for one in victims)
