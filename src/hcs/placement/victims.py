"""The smallest set of pods whose end makes room on one node: the exact search behind preemption.

Sets are tried by size, so the first size that serves is the smallest, and no proper subset of its sets serves. Taking
one pod more away never makes a node worse: where even all the rest would not do, a branch ends. A budget bounds the
search; past it the pods that are worth most are spared one by one as long as the pod still fits, which leaves a set
without superfluous victims, if perhaps not a smallest one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from hcs.model.allocations import Allocation
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal
from hcs.placement.engine import pick, placement_of
from hcs.placement.fleet import Integers
from hcs.placement.plans import Placement
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot

BUDGET: Final = 400
"""Times one node is looked at with some of its pods gone; one look takes about a tenth of a millisecond."""


class RunningPod(msgspec.Struct, frozen=True):
    """A bound pod that could be evicted, or only stands in the way.

    ``milli_cpu`` and ``memory`` (bytes) are its requests on the node. ``lost_seconds`` is how much work it would lose:
    the age of its newest complete checkpoint, or of the pod where it keeps none. ``allocation`` is None for a pod
    without cards. ``terminating``: it ends already, so what it holds counts as free.
    """

    uid: str
    key: str
    node: str
    priority: int = 0
    allocation: Allocation | None = None
    milli_cpu: int = 0
    memory: int = 0
    lost_seconds: int = 0
    owner: str = ""
    terminating: bool = False


class Budget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget: how many of these pods (UIDs) may be disrupted now."""

    name: str
    pods: frozenset[str]
    allowed: int


class Ask(msgspec.Struct, frozen=True):
    """What has to fit: the pod's request for cards, CPU and memory."""

    request: ComputeRequest
    milli_cpu: int = 0
    memory: int = 0


Serves = Callable[[str, Sequence[RunningPod]], bool]
"""Whether a node would do once these pods are gone, in some respect that placement does not know."""


class NodeView:
    """One node with some of its pods gone: does the pod fit then? Answers are remembered."""

    def __init__(
        self,
        snapshot: Snapshot,
        node: str,
        ask: Ask,
        appraisals: Sequence[Appraisal],
        room: Room | None = None,
        serves: Serves | None = None,
    ) -> None:
        """Look at one node of the snapshot as if it were the whole fleet.

        Args:
            snapshot: the fleet.
            node: the node's name.
            ask: what has to fit.
            appraisals: of the request, against the whole fleet.
            room: what is free there beside the cards; None: enough.
            serves: what else must hold of the node once some pods are gone.
        """
        number = snapshot.fleet.node_index[node]
        inside = snapshot.fleet.slice_of(number)
        self._now = snapshot.only(number)
        self._ask, self._room, self._node, self._serves = ask, room, node, serves
        # Devices stand in the same order in both fleets, so each kind here is the one that its first device has there.
        _, first = np.unique(self._now.fleet.kind, return_index=True)
        self._appraisals = tuple(_narrowed(one, snapshot.fleet.kind[inside][first]) for one in appraisals)
        self._answers: dict[frozenset[str], Placement | None] = {}

    def fits(self, gone: Sequence[RunningPod]) -> Placement | None:
        """Where the pod would go once these pods are gone, or None."""
        key = frozenset(pod.uid for pod in gone)
        if key not in self._answers:
            able = self.has_room(gone) and (self._serves is None or self._serves(self._node, gone))
            self._answers[key] = self._place(gone) if able else None
        return self._answers[key]

    def has_room(self, gone: Sequence[RunningPod]) -> bool:
        """Whether CPU, memory and pod slots suffice once these pods are gone."""
        if self._room is None:
            return True
        freed = self._room.without(-sum(pod.milli_cpu for pod in gone), -sum(pod.memory for pod in gone), -len(gone))
        return freed.holds(self._ask.milli_cpu, self._ask.memory)

    def _place(self, gone: Sequence[RunningPod]) -> Placement | None:
        snapshot = self._now.without_all(pod.allocation for pod in gone if pod.allocation is not None)
        everywhere = np.ones(len(snapshot.fleet.nodes), dtype=np.bool_)
        chosen = pick(snapshot, self._appraisals, everywhere, request=self._ask.request)
        return None if chosen is None else placement_of(snapshot, self._ask.request, self._appraisals, chosen)


def smallest_sets(
    view: NodeView,
    candidates: Sequence[RunningPod],
    gone: Sequence[RunningPod],
    allowed: Mapping[str, Sequence[Budget]],
) -> list[tuple[RunningPod, ...]]:
    """The sets of candidates of the smallest size that make room, within the disruption budgets; empty where none do.

    Args:
        view: the node.
        candidates: pods that may be evicted, those to evict first in front.
        gone: pods that are gone in any case.
        allowed: pod UID → the budgets it counts against, each with what is left of it.
    """
    left = [BUDGET]
    if view.fits([*gone, *candidates]) is None:
        return []
    for size in range(1, len(candidates) + 1):
        found = list(_of_size(view, candidates, gone, allowed, size, left))
        if found:
            return found
        if left[0] <= 0:
            spared = _spared(view, candidates, gone, allowed)
            return [spared] if spared is not None else []
    return []


def limits_of(budgets: Iterable[Budget]) -> dict[str, list[Budget]]:
    """Pod UID → the budgets it counts against."""
    limits: dict[str, list[Budget]] = {}
    for budget in budgets:
        for uid in budget.pods:
            limits.setdefault(uid, []).append(budget)
    return limits


def within(victims: Sequence[RunningPod], allowed: Mapping[str, Sequence[Budget]]) -> bool:
    """Whether the victims are no more than the budgets allow."""
    spent: dict[str, int] = {}
    limits: dict[str, int] = {}
    for pod in victims:
        for budget in allowed.get(pod.uid, ()):
            spent[budget.name] = spent.get(budget.name, 0) + 1
            limits[budget.name] = budget.allowed
    return all(count <= limits[name] for name, count in spent.items())


def _of_size(
    view: NodeView,
    candidates: Sequence[RunningPod],
    gone: Sequence[RunningPod],
    allowed: Mapping[str, Sequence[Budget]],
    size: int,
    left: list[int],
) -> Iterator[tuple[RunningPod, ...]]:
    def go(start: int, chosen: tuple[RunningPod, ...]) -> Iterator[tuple[RunningPod, ...]]:
        if len(chosen) == size:
            left[0] -= 1
            if view.fits([*gone, *chosen]) is not None:
                yield chosen
            return
        for place in range(start, len(candidates) - (size - len(chosen)) + 1):
            grown = (*chosen, candidates[place])
            if left[0] <= 0:
                return
            if not within(grown, allowed):
                continue
            if len(grown) < size:
                left[0] -= 1
                if view.fits([*gone, *grown, *candidates[place + 1 :]]) is None:
                    continue
            yield from go(place + 1, grown)

    yield from go(0, ())


def _spared(
    view: NodeView,
    candidates: Sequence[RunningPod],
    gone: Sequence[RunningPod],
    allowed: Mapping[str, Sequence[Budget]],
) -> tuple[RunningPod, ...] | None:
    """A set without superfluous pods: all that the budgets allow, minus, one by one, those that need not go."""
    victims: list[RunningPod] = []
    for pod in candidates:
        if within([*victims, pod], allowed):
            victims.append(pod)
    if view.fits([*gone, *victims]) is None:
        return None
    for pod in reversed(victims.copy()):
        rest = [other for other in victims if other.uid != pod.uid]
        if view.fits([*gone, *rest]) is not None:
            victims = rest
    return tuple(victims)


def _narrowed(appraisal: Appraisal, kinds: Integers) -> Appraisal:
    """The appraisal for some of the fleet's kinds only, in this order."""
    arrays = ("vendor_able", "vendor_allowed", "model_allowed", "substitute", "cards", "bytes", "milliacu", "whole")
    return msgspec.structs.replace(
        appraisal,
        demands=tuple(appraisal.demands[int(kind)] for kind in kinds),
        **{name: getattr(appraisal, name)[kinds] for name in arrays},
    )
