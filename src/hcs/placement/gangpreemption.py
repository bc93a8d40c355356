"""Whom to evict so that a whole gang has its place at once: cards, spikes, CPU and memory of all its nodes together.

The gang is planned on the fleet as it would be without pods of lower priority, the lowest first; then everyone who need
not go for that plan stays. So no victim is superfluous *for this plan*, and nobody goes where the gang could not start
all the same: where a node can never hold its members' CPU and memory there is no plan, and nobody is evicted.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from hcs.model.refusals import Refusal
from hcs.placement.appraisals import ReferenceRates, VendorBound
from hcs.placement.gangplanner import plan_gang
from hcs.placement.gangs import Gang, GangPlan, check_plan
from hcs.placement.preemption import first_to_go, freed, told
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot
from hcs.placement.victims import Budget, RunningPod, limits_of, within


class GangVictims(msgspec.Struct, frozen=True):
    """Evict ``victims`` (UIDs, sorted) and the gang fits as ``plan`` says."""

    victims: tuple[str, ...]
    plan: GangPlan
    reason: str = ""


def choose_gang_victims(
    snapshot: Snapshot,
    gang: Gang,
    priority: int,
    running: Iterable[RunningPod],
    *,
    policy: str = "PreemptLowerPriority",
    nodes: Collection[str] | None = None,
    rooms: Mapping[str, Room] | None = None,
    budgets: Iterable[Budget] = (),
    reference_rates: ReferenceRates | None = None,
    bounds: Mapping[str, VendorBound] | None = None,
) -> GangVictims | Refusal:
    """Choose victims for a whole gang: the plan on a fleet without the lower pods, then nobody who need not go for it.

    Args:
        snapshot: the fleet and all that is taken and promised, but not to this gang.
        gang: what has to fit.
        priority: whoever goes is below it.
        running: all pods on the nodes, with cards or without.
        policy: the gang's ``preemptionPolicy``.
        nodes: names of the nodes to choose from; None for all.
        rooms: what is free of CPU, memory and pod slots by node; a node that is missing has enough. None: all have.
        budgets: disruption budgets in force.
        reference_rates: as for :func:`hcs.placement.engine.place`.
        bounds: per pod, the only vendors it can run on.

    Returns:
        A plan, or why nobody is evicted, by the reasons of :func:`hcs.placement.preemption.choose_victims`.
    """
    if policy == "Never":
        return Refusal(
            "PreemptionNever", "the gang's preemptionPolicy is Never; it waits until others end by themselves"
        )
    pods = sorted(running, key=first_to_go)
    rooms, limits = rooms or {}, limits_of(budgets)
    leaving = [pod for pod in pods if pod.terminating]
    lower = [pod for pod in pods if pod.priority < priority and not pod.terminating]
    for level in (None, *sorted({pod.priority for pod in lower})):
        victims = [pod for pod in lower if level is not None and pod.priority <= level]
        gone = [*leaving, *victims]
        plan = plan_gang(
            freed(snapshot, gone),
            gang,
            nodes=nodes,
            reference_rates=reference_rates,
            bounds=bounds,
            rooms=vacated(rooms, gone),
        )
        if not isinstance(plan, GangPlan):
            continue
        if level is None:
            return Refusal("RoomIsComing", "there is room for the gang, or will be once pods that end are gone")
        chosen = _needed(snapshot, gang, plan, leaving, victims, rooms)
        if within(chosen, limits):
            return GangVictims(tuple(sorted(pod.uid for pod in chosen)), plan, told(chosen, "the gang's nodes"))
    if not lower:
        return Refusal("NobodyLower", f"no pod on these nodes has a priority below {priority}; nobody is evicted")
    return Refusal(
        "EvictionDoesNotHelp",
        f"evicting pods of a priority below {priority} makes no room for all members of gang {gang.key}, "
        "within their disruption budgets",
    )


def _needed(
    snapshot: Snapshot,
    gang: Gang,
    plan: GangPlan,
    leaving: Sequence[RunningPod],
    victims: Sequence[RunningPod],
    rooms: Mapping[str, Room],
) -> list[RunningPod]:
    """Those of the victims without whose end the plan does not hold; whoever is worth most is spared first."""
    used = {member.placement.node for member in plan.members}
    rooms = {node: rooms[node] for node in used if node in rooms}
    needed = [pod for pod in victims if pod.node in used]
    stay = freed(snapshot, [*leaving, *needed])
    for pod in reversed(needed.copy()):
        kept = stay.with_allocation(pod.allocation) if pod.allocation is not None else stay
        rest = [one for one in needed if one is not pod]
        if _holds(kept, gang, plan, vacated(rooms, [*leaving, *rest])):
            stay, needed = kept, rest
    return needed


def _holds(snapshot: Snapshot, gang: Gang, plan: GangPlan, rooms: Mapping[str, Room]) -> bool:
    """Whether all members fit as planned."""
    if check_plan(snapshot, plan) is not None:
        return False
    asked, left = {member.pod: member for member in gang.members}, dict(rooms)
    spikes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in plan.members:
        node, member = one.placement.node, asked[one.pod]
        spikes[node].update(one.placement.capacities)
        if node in left:
            if not left[node].holds(member.milli_cpu, member.memory):
                return False
            left[node] = left[node].without(member.milli_cpu, member.memory)
    fleet = snapshot.fleet
    return all(
        amount <= snapshot.room[fleet.node_index[node], fleet.columns.index(name)]
        for node, amounts in spikes.items()
        for name, amount in amounts.items()
    )


def vacated(rooms: Mapping[str, Room], gone: Iterable[RunningPod]) -> dict[str, Room]:
    """The rooms once these pods are gone."""
    found = dict(rooms)
    for pod in gone:
        if pod.node in found:
            found[pod.node] = found[pod.node].without(-pod.milli_cpu, -pod.memory, -1)
    return found
