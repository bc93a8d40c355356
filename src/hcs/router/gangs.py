"""The gangs of the cluster: who is in which, what is planned for them, and how far they are.

A gang goes through three phases. *Waiting*: not all members are there, or no plan holds all of them. *Planned*: the
devices of every member are reserved, in one stretch of code and therefore all or none, the gates open, and each member
is led to its planned node; its bind waits at the barrier for the others. *Binding*: the last one has come, the plan was
checked once more, and all Bindings are on their way. Whatever fails before that costs nobody anything but time: the
reservations go, and the gang is planned again.

Two gangs cannot starve each other: devices are never held by half a gang, and gangs that met at kube-scheduler's other
resources (each holding CPU that the other needs) take turns from then on, one at a time.

Nothing here is saved. After a restart gates, allocations and pods say all there is to know.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from hcs.kube.informer import ChangeKind
from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.gangs import Membership, PodGroup, read_membership
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.placement.gangs import GangPlan

Phase = Literal["waiting", "planned", "binding"]

BARRIER_SECONDS: Final = 20.0
"""How long the first bind waits for the last; kube-scheduler gives a bind up after 30 s (httpTimeout)."""
AVOID_SECONDS: Final = 60.0
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 300.0


class Standing(msgspec.Struct):
    """One gang, as it stands.

    ``members`` are its unfinished pods that ask for compute, ``idle`` those that ask for none and are counted only;
    ``done`` have succeeded; ``tasks`` says of which task of a Volcano Job each is. ``allocations`` are what its plan
    gives to each, by UID. ``left`` are the members whose Binding is not concluded, ``started`` those whose Binding is
    written and not seen yet, ``restarting`` those that started without the others and must go again.
    """

    membership: Membership
    members: dict[str, Pod] = {}
    idle: set[str] = set()
    done: set[str] = set()
    tasks: dict[str, str] = {}
    phase: Phase = "waiting"
    plan: GangPlan | None = None
    allocations: Mapping[str, Allocation] = {}
    until: float = 0.0
    not_before: float = 0.0
    failures: int = 0
    contends: bool = False
    dirty: bool = True
    arrived: set[str] = set()
    left: set[str] = set()
    bound: set[str] = set()
    failed: set[str] = set()
    started: set[str] = set()
    restarting: set[str] = set()
    avoided: dict[tuple[str, str], float] = {}
    refused: set[str] = set()
    told: str = ""

    @property
    def key(self) -> str:
        """What tells it apart."""
        return self.membership.key

    @property
    def pending(self) -> list[Pod]:
        """Members without a node, in the order in which they are planned: by name, numbers as numbers."""
        waits = (pod for uid, pod in self.members.items() if not pod.spec.nodeName and uid not in self.started)
        return sorted(waits, key=_by_name)

    @property
    def running(self) -> list[Pod]:
        """Members that have their node."""
        return [pod for uid, pod in self.members.items() if pod.spec.nodeName or uid in self.started]

    @property
    def priority(self) -> int:
        """The highest of its members'."""
        return max((pod.spec.priority or 0 for pod in self.members.values()), default=0)

    @property
    def since(self) -> str:
        """When its oldest pending member was made."""
        return min((pod.metadata.creationTimestamp or "" for pod in self.pending), default="")

    def size(self, group: PodGroup | None) -> int:
        """How many members start together; 0 while nobody has said so."""
        return group.minimum if group is not None else self.membership.size

    def present(self) -> int:
        """Members that count towards the size. Those that succeeded count only while others of theirs run."""
        return len(self.members) + len(self.idle) + (len(self.done) if self.running else 0)

    def missing(self, group: PodGroup | None) -> int:
        """How many members have yet to come."""
        size = self.size(group)
        if not size:
            return 1
        return max(0, size - self.present(), sum(self._short(group, {*self._held(), *self.members}).values()))

    def least(self, group: PodGroup | None) -> int:
        """How many of the pending members must be placed now."""
        held = self._held()
        return max(
            1,
            min(len(self.pending), self.size(group) - len(held)),
            sum(self._short(group, held).values()),
        )

    def in_turn(self, group: PodGroup | None) -> list[Pod]:
        """The pending members as they are planned: in front those without whom a task would have too few."""
        short = self._short(group, self._held())
        first, rest = [], []
        for pod in self.pending:
            task = self.tasks.get(pod.metadata.uid, "")
            if short.get(task, 0) > 0:
                short[task] -= 1
                first.append(pod)
            else:
                rest.append(pod)
        return [*first, *rest]

    def _held(self) -> set[str]:
        """Who counts as started already."""
        running = {pod.metadata.uid for pod in self.running}
        return running | self.idle | (self.done if running else set())

    def _short(self, group: PodGroup | None, there: set[str]) -> dict[str, int]:
        """Task → how many more of it must come to these members."""
        found = {}
        for task, least in group.tasks if group is not None else ():
            found[task] = max(0, least - sum(self.tasks.get(uid, "") == task for uid in there))
        return found

    def forget_plan(self) -> list[str]:
        """Back to waiting; the members whose promises are to be dropped."""
        planned = [member.pod for member in self.plan.members] if self.plan is not None else []
        self.plan, self.phase, self.dirty, self.allocations = None, "waiting", True, {}
        self.arrived, self.left, self.bound, self.failed = set(), set(), set(), set()
        return planned

    def fail(self, now: float, *, contends: bool) -> list[str]:
        """The plan came to nothing: try again after a growing pause. As :meth:`forget_plan`."""
        self.failures += 1
        self.contends = self.contends or contends
        self.not_before = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 20))
        return self.forget_plan()


class GangBook:
    """All gangs, by key, and which pod is in which."""

    def __init__(self) -> None:
        self._gangs: dict[str, Standing] = {}
        self._of: dict[str, str] = {}
        self.groups: dict[str, PodGroup] = {}
        self.refused: dict[str, str] = {}
        """Gang → why its PodGroup object cannot be read."""
        self.turn = ""
        """The one gang, of those that met at resources that are not ours, that may hold devices now."""

    def __len__(self) -> int:
        return len(self._gangs)

    def __iter__(self) -> Iterator[Standing]:
        return iter(sorted(self._gangs.values(), key=lambda gang: (-gang.priority, gang.since, gang.key)))

    def of(self, uid: str) -> Standing | None:
        """The gang a pod is in."""
        key = self._of.get(uid)
        return self._gangs.get(key) if key is not None else None

    def group(self, gang: Standing) -> PodGroup | None:
        """The PodGroup object of a gang, where it has one."""
        return self.groups.get(gang.key)

    def pod_changed(self, kind: ChangeKind, pod: Pod, *, ours: bool) -> Standing | None:
        """A pod is there, changed or is gone; returns the gang it is or was in.

        Args:
            kind: of change.
            pod: as it is now.
            ours: whether it asks for compute and names our scheduler.
        """
        uid = pod.metadata.uid
        membership = _membership(pod)
        before = self.of(uid)
        if before is not None and (membership is None or membership.key != before.key):
            self._leave(before, uid)
        if membership is None:
            return before
        gang = self._gangs.setdefault(membership.key, Standing(membership))
        gang.tasks[uid] = pod.annotations.get(names.VOLCANO_TASK, "")
        if membership.size > gang.membership.size:
            gang.membership = membership
        gone = kind == "DELETED" or pod.finished or bool(pod.metadata.deletionTimestamp)
        if kind != "DELETED" and pod.status.phase == "Succeeded":
            gang.done.add(uid)
        else:
            gang.done.discard(uid)
        if gone:
            self._leave(gang, uid, keep=uid in gang.done)
            return gang
        self._of[uid] = gang.key
        known = gang.members.get(uid)
        if pod.spec.nodeName:
            gang.started.discard(uid)
        if ours:
            gang.members[uid] = pod
        elif uid not in gang.idle:
            gang.idle.add(uid)
            gang.dirty = True
        if ours and (known is None or (known.spec.nodeName != pod.spec.nodeName) or _asked(known) != _asked(pod)):
            gang.dirty = True
        return gang

    def group_changed(self, kind: ChangeKind, group: PodGroup) -> None:
        """A PodGroup object is there, changed or is gone."""
        if kind == "DELETED":
            self.groups.pop(group.key, None)
        else:
            self.groups[group.key] = group
        gang = self._gangs.get(group.key)
        if gang is not None:
            gang.dirty = True

    def group_refused(self, key: str, why: str) -> None:
        """A PodGroup object cannot be read, so nothing of it holds any more; the empty string: it can, or is gone."""
        if not why:
            self.refused.pop(key, None)
            return
        self.groups.pop(key, None)
        self.refused[key] = why
        gang = self._gangs.get(key)
        if gang is not None:
            gang.dirty = True

    def grown(self) -> None:
        """More may be free than before."""
        for gang in self._gangs.values():
            gang.dirty = True

    def may_plan(self, gang: Standing) -> bool:
        """Whether it is a contending gang's turn; every other gang may always."""
        if not gang.contends:
            return True
        holder = self._gangs.get(self.turn)
        if holder is None or holder.phase == "waiting":
            self.turn = gang.key
        return self.turn == gang.key

    def _leave(self, gang: Standing, uid: str, *, keep: bool = False) -> None:
        self._of.pop(uid, None)
        gang.members.pop(uid, None)
        gang.idle.discard(uid)
        gang.started.discard(uid)
        gang.refused.discard(uid)
        gang.avoided = {key: until for key, until in gang.avoided.items() if key[0] != uid}
        if not keep:
            gang.done.discard(uid)
            gang.tasks.pop(uid, None)
        gang.dirty = True
        if not gang.members and not gang.idle and not gang.done and gang.plan is None:
            self._gangs.pop(gang.key, None)


def is_held(pod: Pod) -> bool:
    """Whether our gate for gangs holds the pod."""
    return any(gate.name == names.GANG_GATE for gate in pod.spec.schedulingGates or ())


def _membership(pod: Pod) -> Membership | None:
    """The gang of a pod; a marking that cannot be read is refused where the pod is placed, and is none here."""
    try:
        return read_membership(pod)
    except RefusedError:
        return None


def _asked(pod: Pod) -> tuple[object, ...]:
    """What of a member its plan depends on."""
    others = {key: text for key, text in pod.annotations.items() if key not in names.OUR_ANNOTATIONS}
    return others, pod.spec.nodeSelector, pod.spec.affinity, [c.resources for c in pod.spec.containers]


def _by_name(pod: Pod) -> tuple[tuple[bool, int, str], ...]:
    parts = re.split(r"([0-9]+)", pod.metadata.name)
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts if part)
