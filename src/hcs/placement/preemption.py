"""Whom to evict so that a pod of higher priority has a place: the smallest set that frees devices *and* CPU and memory.

kube-scheduler cannot do this: it does not see device shortages, so to its own preemption every node fits already. Here
victims are chosen by these rules, in this order: never a pod of the same or a higher priority; no more than a
disruption budget allows; the highest priority among the victims as low as possible; as few pods as possible; as little
lost work as possible, counted from each pod's newest complete checkpoint. No victim is superfluous: without any one of
them the pod would not fit.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from hcs.model.allocations import Allocation
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates, VendorBound
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot


class RunningPod(msgspec.Struct, frozen=True):
    """A bound pod that could be evicted, or only stands in the way.

    ``milli_cpu`` and ``memory`` (bytes) are its requests on the node. ``lost_seconds`` is how much work it would lose:
    the age of its newest complete checkpoint, or of the pod where it keeps none. ``allocation`` is None for a pod
    without cards.
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


class Room(msgspec.Struct, frozen=True):
    """What is free on a node beside its cards: thousandths of a CPU, bytes of memory, and pods; can be negative."""

    milli_cpu: int
    memory: int
    pods: int = 110


class Preemptor(msgspec.Struct, frozen=True):
    """The pod that needs a place. ``policy`` is its ``preemptionPolicy``; ``nodes`` those it may go to (None: all)."""

    uid: str
    request: ComputeRequest
    priority: int
    policy: str = "PreemptLowerPriority"
    milli_cpu: int = 0
    memory: int = 0
    nodes: frozenset[str] | None = None


class VictimPlan(msgspec.Struct, frozen=True):
    """Evict ``victims`` (UIDs, sorted) on ``node`` and the pod fits as ``placement`` says."""

    node: str
    victims: tuple[str, ...]
    placement: Placement
    reason: str = ""


def choose_victims(
    snapshot: Snapshot,
    preemptor: Preemptor,
    running: Iterable[RunningPod],
    *,
    rooms: Mapping[str, Room] | None = None,
    budgets: Iterable[Budget] = (),
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
) -> VictimPlan | Refusal:
    """Choose the node and the victims.

    Args:
        snapshot: the fleet and all that is taken, the running pods' allocations among it, and what is promised.
        preemptor: the pod without a place.
        running: all pods on the nodes, with cards or without.
        rooms: what is free of CPU, memory and pod slots by node; a node that is missing has enough. None: all have.
        budgets: disruption budgets in force.
        reference_rates: as for :func:`hcs.placement.engine.place`.
        bound: as there.

    Returns:
        A plan, or why eviction does not help: ``PreemptionNever``, ``NobodyLower``, ``EvictionDoesNotHelp``.
    """
    raise NotImplementedError


def correct_victims(
    snapshot: Snapshot,
    preemptor: Preemptor,
    proposed: Mapping[str, Collection[str]],
    running: Iterable[RunningPod],
    *,
    budgets: Iterable[Budget] = (),
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
) -> dict[str, tuple[str, ...]]:
    """Look at the victims kube-scheduler chose for CPU and memory, node by node: the extender's ``preempt`` verb.

    A node stays with the same victims where evicting them also frees the devices the pod needs; with the fewest further
    victims where it takes those; and is left out where nothing helps.

    Args:
        snapshot: as for :func:`choose_victims`.
        preemptor: the pod.
        proposed: node → UIDs of the victims chosen there; UIDs we do not know are kept, their node knows them.
        running: pods with cards on these nodes; no others are added.
        budgets: as for :func:`choose_victims`.
        reference_rates: as there.
        bound: as there.
    """
    raise NotImplementedError
