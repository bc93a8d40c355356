"""The book of gangs: who is in which, how complete it is, and whose turn it is."""

import msgspec
from tests.router.scene import pod_manifest

from hcs.model import names
from hcs.model.gangs import PodGroup
from hcs.model.pods import Pod
from hcs.router.gangs import GangBook


def member(name: str, gang: str = "g", size: int = 3, *, node: str = "", phase: str = "", priority: int = 0) -> Pod:
    notes = {names.GANG: gang, names.GANG_SIZE: str(size)}
    body = pod_manifest(name, annotations=notes, spec={"nodeName": node or None, "priority": priority}, uid=name)
    return msgspec.convert({**body, "status": {"phase": phase}}, Pod)


def book(*pods: Pod) -> GangBook:
    made = GangBook()
    for pod in pods:
        made.pod_changed("ADDED", pod, ours=True)
    return made


def test_members_are_counted_until_they_are_all_there() -> None:
    made = book(member("a"), member("b"))
    gang = made.of("a")
    assert gang is not None
    assert (gang.missing(None), gang.least(None)) == (1, 2)
    made.pod_changed("ADDED", member("c"), ours=True)
    assert (gang.missing(None), gang.least(None)) == (0, 3)


def test_numbers_in_names_are_numbers() -> None:
    gang = book(member("g-10"), member("g-9"), member("g-1")).of("g-1")
    assert gang is not None
    assert [pod.metadata.name for pod in gang.pending] == ["g-1", "g-9", "g-10"]


def test_those_that_succeeded_count_only_while_others_run() -> None:
    """A gang of the same name that ran yesterday must not complete today's."""
    made = book(*(member(f"old-{n}", phase="Succeeded") for n in range(3)), member("new"))
    gang = made.of("new")
    assert gang is not None
    assert gang.missing(None) == 2
    made.pod_changed("ADDED", member("beside", node="n"), ours=True)
    assert gang.missing(None) == 0


def test_a_member_whose_binding_is_written_and_not_seen_waits_for_nothing() -> None:
    made = book(member("a"), member("b"), member("c"))
    gang = made.of("a")
    assert gang is not None
    gang.started.add("a")
    assert ([pod.metadata.name for pod in gang.pending], len(gang.running), gang.least(None)) == (["b", "c"], 1, 2)
    made.pod_changed("MODIFIED", member("a", node="n"), ours=True)
    assert gang.started == set()


def test_the_podgroup_says_how_many() -> None:
    made = book(member("a", size=1))
    gang = made.of("a")
    assert gang is not None
    group = PodGroup("default", "g", "hcs", 2)
    made.group_changed("ADDED", group)
    assert gang.missing(made.group(gang)) == 1
    made.group_changed("DELETED", group)
    assert made.group(gang) is None


def test_of_each_task_of_a_volcano_job_enough_must_come_and_start() -> None:
    """Four of six start together, among them the one master and two workers, whatever their names."""

    def of(task: str, name: str, node: str = "") -> Pod:
        notes = {names.VOLCANO_ANNOTATIONS[0]: "g", names.VOLCANO_TASK: task}
        body = pod_manifest(name, annotations=notes, spec={"nodeName": node or None}, uid=name)
        return msgspec.convert(body, Pod)

    made = book(*(of("worker", f"a-{n}") for n in range(5)))
    group = PodGroup("default", "g", "volcano", 4, tasks=(("master", 1), ("worker", 2)))
    made.group_changed("ADDED", group)
    gang = made.of("a-0")
    assert gang is not None
    assert gang.missing(group) == 1, "five are there, and no master"
    made.pod_changed("ADDED", of("master", "z-0"), ours=True)
    assert gang.missing(group) == 0
    assert [pod.metadata.name for pod in gang.in_turn(group)] == ["a-0", "a-1", "z-0", "a-2", "a-3", "a-4"]
    assert gang.least(group) == 4
    for n in range(4):
        made.pod_changed("MODIFIED", of("worker", f"a-{n}", node="n"), ours=True)
    assert [pod.metadata.name for pod in gang.in_turn(group)] == ["z-0", "a-4"]
    assert gang.least(group) == 1
    made.pod_changed("DELETED", of("master", "z-0"), ours=True)
    assert gang.missing(group) == 1


def test_a_gang_that_is_gone_is_forgotten() -> None:
    made = book(member("a"))
    made.pod_changed("DELETED", member("a"), ours=True)
    assert (len(made), made.of("a")) == (0, None)


def test_gangs_that_met_take_turns_and_others_need_not_wait() -> None:
    made = book(member("a", "a"), member("b", "b"), member("c", "c"))
    a, b, c = (made.of(name) for name in "abc")
    assert a is not None
    assert b is not None
    assert c is not None
    a.contends = b.contends = True
    assert made.may_plan(a)
    a.phase = "planned"
    assert (made.may_plan(b), made.may_plan(c)) == (False, True)
    a.phase = "waiting"
    assert made.may_plan(b)


def test_pauses_grow_and_end() -> None:
    gang = book(member("a")).of("a")
    assert gang is not None
    pauses = []
    for _ in range(12):
        gang.fail(0.0, contends=False)
        pauses.append(gang.not_before)
    assert pauses[:4] == [2.0, 4.0, 8.0, 16.0]
    assert pauses[-1] == 300.0
