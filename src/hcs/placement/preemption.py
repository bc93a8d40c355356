"""Whom to evict so that a pod of higher priority has a place: the smallest set that frees devices *and* CPU and memory.

kube-scheduler cannot do this: it does not see device shortages, so to its own preemption every node fits already. Here
victims are chosen by these rules, in this order: never a pod of the same or a higher priority; no more than a
disruption budget allows; the highest priority among the victims as low as possible; as few pods as possible; as little
lost work as possible, counted from each pod's newest complete checkpoint. No victim is superfluous: without any one of
them the pod would not fit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal, ReferenceRates, VendorBound, appraise
from hcs.placement.filters import eligible
from hcs.placement.fleet import Mask
from hcs.placement.plans import Placement
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot
from hcs.placement.supply import cards_needed, nodes_of
from hcs.placement.victims import Ask, Budget, NodeView, RunningPod, Serves, limits_of, smallest_sets

NODES: Final = 128
"""Nodes looked at closely, those with the fewest pods in question first; evicting is rare and need not be the best of
ten thousand."""

__all__ = [
    "Budget",
    "Preemptor",
    "Room",
    "RunningPod",
    "VictimPlan",
    "choose_victims",
    "correct_victims",
    "place_to_keep",
]


class Preemptor(msgspec.Struct, frozen=True):
    """The pod that needs a place. ``policy`` is its ``preemptionPolicy``; ``nodes`` those it may go to (None: all)."""

    uid: str
    request: ComputeRequest
    priority: int
    policy: str = "PreemptLowerPriority"
    milli_cpu: int = 0
    memory: int = 0
    nodes: frozenset[str] | None = None

    @property
    def ask(self) -> Ask:
        """What has to fit."""
        return Ask(self.request, self.milli_cpu, self.memory)


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
    serves: Serves | None = None,
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
        serves: what else must hold of a node once some pods are gone.

    Returns:
        A plan, or why nobody is evicted: ``PreemptionNever``, ``NobodyLower``, ``EvictionDoesNotHelp``, or
        ``RoomIsComing`` where there is room already or pods that end make enough of it.
    """
    if preemptor.policy == "Never":
        return Refusal(
            "PreemptionNever", "the pod's preemptionPolicy is Never; it waits until others end by themselves"
        )
    pods = sorted(running, key=first_to_go)
    leaving = [pod for pod in pods if pod.terminating]
    lower = [pod for pod in pods if pod.priority < preemptor.priority and not pod.terminating]
    limits = limits_of(budgets)
    appraisals = appraise(snapshot.fleet, preemptor.request, reference_rates, bound)
    rooms = rooms or {}

    def view(node: str) -> NodeView:
        return NodeView(snapshot, node, preemptor.ask, appraisals, rooms.get(node), serves)

    for node in _promising(snapshot, appraisals, preemptor, leaving)[:NODES]:
        if view(node).fits([pod for pod in leaving if pod.node == node]) is not None:
            return Refusal("RoomIsComing", f"{node} has room, or will have once pods that end already are gone")
    if not lower:
        return Refusal(
            "NobodyLower",
            f"no pod with cards on these nodes has a priority below {preemptor.priority}; nobody is evicted",
        )
    for priority in sorted({pod.priority for pod in lower}):
        found = []
        among = [pod for pod in lower if pod.priority <= priority]
        nodes = _promising(snapshot, appraisals, preemptor, [*leaving, *among])
        by_node = _by_node(among, nodes)
        for node in sorted(by_node, key=lambda name: (len(by_node[name]), name))[:NODES]:
            one = view(node)
            gone = [pod for pod in leaving if pod.node == node]
            found += [
                (_cost(victims), node, victims, one.fits([*gone, *victims]))
                for victims in smallest_sets(one, _in_question(one, by_node[node], gone), gone, limits)
            ]
        if found:
            _, node, victims, placement = min(found, key=lambda entry: entry[:2])
            assert placement is not None  # only sets that serve are found
            return VictimPlan(node, tuple(sorted(pod.uid for pod in victims)), placement, told(victims, node))
    return Refusal(
        "EvictionDoesNotHelp",
        f"evicting pods of a priority below {preemptor.priority} makes no room for this pod on any node, "
        "within their disruption budgets",
    )


def place_to_keep(
    snapshot: Snapshot,
    preemptor: Preemptor,
    node: str,
    running: Iterable[RunningPod],
    *,
    rooms: Mapping[str, Room] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    serves: Serves | None = None,
) -> Placement | None:
    """Where a pod goes on the node it was promised, once pods that end already are gone; None: it has no place there.

    Arguments as for :func:`choose_victims`; ``running`` are the pods on the node.
    """
    if node not in snapshot.fleet.node_index or (preemptor.nodes is not None and node not in preemptor.nodes):
        return None
    appraisals = appraise(snapshot.fleet, preemptor.request, reference_rates, bound)
    view = NodeView(snapshot, node, preemptor.ask, appraisals, (rooms or {}).get(node), serves)
    return view.fits([pod for pod in running if pod.terminating and pod.node == node])


def correct_victims(
    snapshot: Snapshot,
    preemptor: Preemptor,
    proposed: Mapping[str, Collection[str]],
    running: Iterable[RunningPod],
    *,
    budgets: Iterable[Budget] = (),
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    serves: Serves | None = None,
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
        serves: as there.
    """
    pods = sorted(running, key=first_to_go)
    limits = tuple(budgets)
    appraisals = appraise(snapshot.fleet, preemptor.request, reference_rates, bound)
    result: dict[str, tuple[str, ...]] = {}
    for node in sorted(proposed):
        if node not in snapshot.fleet.node_index or preemptor.policy == "Never":
            continue
        here = [pod for pod in pods if pod.node == node]
        gone = [pod for pod in here if pod.uid in proposed[node] or pod.terminating]
        view = NodeView(snapshot, node, preemptor.ask, appraisals, None, serves)
        if view.fits(gone) is not None:
            result[node] = tuple(sorted(proposed[node]))
            continue
        lower = [
            pod for pod in here if pod.priority < preemptor.priority and pod not in gone and pod.allocation is not None
        ]
        spent = limits_of(
            msgspec.structs.replace(budget, allowed=budget.allowed - len(budget.pods & set(proposed[node])))
            for budget in limits
        )
        more = smallest_sets(view, lower, gone, spent)
        if more:
            added = min(more, key=_cost)
            result[node] = tuple(sorted({*proposed[node], *(pod.uid for pod in added)}))
    return result


def first_to_go(pod: RunningPod) -> tuple[int, int, str]:
    """Sorts pods by how readily they are evicted."""
    return pod.priority, pod.lost_seconds, pod.uid


def _cost(victims: Sequence[RunningPod]) -> tuple[int, int, int, int, tuple[str, ...]]:
    return (
        max((pod.priority for pod in victims), default=0),
        len(victims),
        sum(pod.lost_seconds for pod in victims),
        sum(pod.priority for pod in victims),
        tuple(sorted(pod.uid for pod in victims)),
    )


def _promising(
    snapshot: Snapshot, appraisals: Sequence[Appraisal], preemptor: Preemptor, gone: Sequence[RunningPod]
) -> list[str]:
    """The nodes that could serve with these pods gone, as far as each container alone can tell, by name."""
    fleet = snapshot.fleet
    then = freed(snapshot, gone)
    groups: Mask = np.ones(len(fleet.group_node), dtype=np.bool_)
    for appraisal in appraisals:
        groups = groups & (cards_needed(fleet, appraisal, eligible(then, appraisal)) > 0)
    able = nodes_of(fleet, groups)
    for name, amount in preemptor.request.capacities:
        column = fleet.columns.index(name) if name in fleet.columns else None
        able = able & (then.room[:, column] >= amount if column is not None else False)
    names = (fleet.nodes[int(node)].name for node in np.flatnonzero(able))
    return [name for name in names if preemptor.nodes is None or name in preemptor.nodes]


def freed(snapshot: Snapshot, gone: Sequence[RunningPod]) -> Snapshot:
    """The fleet once these pods are gone."""
    return snapshot.without_all(pod.allocation for pod in gone if pod.allocation is not None)


def _by_node(pods: Iterable[RunningPod], nodes: Collection[str]) -> dict[str, list[RunningPod]]:
    allowed = set(nodes)
    found: dict[str, list[RunningPod]] = {}
    for pod in pods:
        if pod.node in allowed:
            found.setdefault(pod.node, []).append(pod)
    return found


def _in_question(view: NodeView, pods: Sequence[RunningPod], gone: Sequence[RunningPod]) -> list[RunningPod]:
    """Pods whose end could help: where CPU and memory suffice already, only those with cards."""
    return [pod for pod in pods if pod.allocation is not None] if view.has_room(gone) else list(pods)


def told(victims: Sequence[RunningPod], where: str) -> str:
    """Who goes, for what, and what that costs, in one sentence."""
    who = ", ".join(sorted(pod.key for pod in victims)[:3])
    more = f" and {len(victims) - 3} more" if len(victims) > 3 else ""
    lost = sum(pod.lost_seconds for pod in victims)
    return f"evicting {who}{more} makes room on {where}; {lost} s of work since the last checkpoints are lost"
