"""Finds a gang its places: cards, CPU and memory, and rectangles of cores, for all members at once or for none.

Every member that waits is planned in one go by :func:`hcs.placement.gangs.plan_gang`. What placement counts and does
not draw, the rectangles on spiking boards, is drawn here member by member; where a node with enough cores has no
rectangle left, the plan is made once more without that node for those that found none.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hcs.model.allocations import Allocation, allocation_of
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import VendorBound
from hcs.placement.gangplanner import plan_gang
from hcs.placement.gangpreemption import choose_gang_victims, vacated
from hcs.placement.gangs import Gang, GangPlan, Member
from hcs.placement.plans import Unplaceable
from hcs.placement.preemption import RunningPod, freed
from hcs.router.desk import Desk
from hcs.router.gangs import GangBook, Standing
from hcs.router.machines import amounts_of

_ROUNDS: Final = 8


class Found(msgspec.Struct, frozen=True):
    """A plan, and by pod (UID) what it gives, rectangles included."""

    plan: GangPlan
    allocations: Mapping[str, Allocation]


class Asked(msgspec.Struct, frozen=True):
    """What is to be planned of a gang: its pending members, and the vendors each is bound to."""

    gang: Gang
    bounds: Mapping[str, VendorBound]


class GangPlanner:
    """Plans the gangs of a book at one desk."""

    def __init__(self, desk: Desk, book: GangBook) -> None:
        """Prepare."""
        self._desk, self._book = desk, book

    def find(self, gang: Standing) -> Found | str:
        """A plan on which everything suffices, or why there is none."""
        asked = self.asked(gang)
        return asked if isinstance(asked, str) else self._find(gang, asked, ())

    def find_again(self, gang: Standing) -> Found | str:
        """A plan on the nodes that the members were nominated for, as if pods that end already were gone."""
        asked = self.asked(gang, nominated=True)
        if isinstance(asked, str):
            return asked
        nodes = {node for member in asked.gang.members for node in member.nodes or ()}
        leaving = [pod for pod in self._desk.running(nodes) if pod.terminating]
        return self._find(gang, asked, leaving)

    def victims(self, gang: Standing, priority: int, policy: str) -> tuple[tuple[str, ...], str, Found] | Refusal:
        """Whom to evict (UIDs) so that the gang has its places, what to say of it, and the places."""
        asked = self.asked(gang, roomy=False)
        if isinstance(asked, str):
            return Refusal("NoOpenNode", asked)
        desk, uids = self._desk, {member.pod for member in asked.gang.members}
        nodes = {node for member in asked.gang.members for node in member.nodes or ()}
        chosen = choose_gang_victims(
            desk.snapshot_without(uids),
            asked.gang,
            priority,
            desk.running(sorted(nodes)),
            policy=policy,
            rooms=desk.view.machines.rooms(nodes),
            budgets=desk.budgets(),
            reference_rates=desk.rates(),
            bounds=asked.bounds,
        )
        if isinstance(chosen, Refusal):
            return chosen
        allocations = desk.view.allocations
        gone = [held for uid in chosen.victims if (held := allocations.get(uid)) is not None]
        drawn, without = self._drawn(gang, chosen.plan, gone)
        if without:
            return Refusal("Fragmented", "no free rectangle of the boards would hold every member's cores")
        return chosen.victims, chosen.reason, Found(chosen.plan, drawn)

    def asked(self, gang: Standing, *, roomy: bool = True, nominated: bool = False) -> Asked | str:
        """What is to be planned of a gang, or why nothing is.

        Args:
            gang: which.
            roomy: whether only nodes count that have the CPU and memory for a member now.
            nominated: whether only the node counts that a member was nominated for, full or not.
        """
        members, bounds, portable = [], {}, True
        nodes_of: dict[bytes, list[str]] = {}
        group, now = self._book.group(gang), self._desk.now()
        for pod in gang.in_turn(group):
            uid = pod.metadata.uid
            try:
                request = self._desk.request_of(pod)
            except RefusedError as error:
                return f"member {pod.metadata.name}: {error}"
            if request is None:
                return f"member {pod.metadata.name} asks for nothing of ours"
            portable = portable and request.portable
            cpu, memory = amounts_of(pod)
            alike = msgspec.json.encode(
                (pod.spec.nodeSelector, pod.spec.affinity, pod.spec.tolerations, cpu, memory), order="sorted"
            )
            if alike not in nodes_of:
                full = nominated or not roomy
                nodes_of[alike] = self._desk.open_nodes(pod) if full else self._desk.nodes_for(pod)
            nodes = frozenset(n for n in nodes_of[alike] if gang.avoided.get((uid, n), 0.0) <= now)
            if nominated:
                nodes &= {pod.status.nominatedNodeName or ""}
            if not nodes:
                return f"no node is open to member {pod.metadata.name}; see its taints, selectors, CPU and memory"
            members.append(Member(uid, request, nodes, cpu, memory))
            bound = self._bound(gang, pod, request)
            if bound is not None:
                bounds[uid] = bound
        least = gang.least(group)
        return Asked(Gang(gang.key, tuple(members), 0 if least >= len(members) else least, portable), bounds)

    def _find(self, gang: Standing, asked: Asked, leaving: Sequence[RunningPod]) -> Found | str:
        members = asked.gang.members
        nodes = {node for member in members for node in member.nodes or ()}
        rooms = vacated(self._desk.view.machines.rooms(nodes), leaving)
        snapshot = freed(self._desk.snapshot_without({member.pod for member in members}), leaving)
        gone = [pod.allocation for pod in leaving if pod.allocation is not None]
        for _ in range(_ROUNDS):
            plan = plan_gang(
                snapshot,
                msgspec.structs.replace(asked.gang, members=members),
                reference_rates=self._desk.rates(),
                bounds=asked.bounds,
                rooms=rooms,
            )
            if isinstance(plan, Unplaceable):
                return plan.summary
            drawn, without = self._drawn(gang, plan, gone)
            if not without:
                return Found(plan, drawn)
            members = _spilled(members, plan, without)
            if any(not member.nodes for member in members):
                break
        return "no free rectangle of the boards holds every member's cores; ask for fewer or wait"

    def _drawn(
        self, gang: Standing, plan: GangPlan, gone: Sequence[Allocation]
    ) -> tuple[dict[str, Allocation], dict[str, str]]:
        """The allocations with their rectangles; and those who find none, with the node that has none for them."""
        ours = {member.pod for member in plan.members}
        drawn: dict[str, Allocation] = {}
        without: dict[str, str] = {}
        for member in plan.members:
            bare = member.placement.allocation(member.pod)
            whole = self._desk.with_cores(
                gang.members[member.pod], bare, gone, also=tuple(drawn.values()), but=frozenset(ours)
            )
            if whole is None:
                without[member.pod] = bare.node
            else:
                drawn[member.pod] = whole
        return drawn, without

    def _bound(self, gang: Standing, pod: Pod, request: ComputeRequest) -> VendorBound | None:
        """A member that joins a gang under way stays with its vendor, unless it is portable."""
        bound = self._desk.bound_for(pod, request)
        vendors = {v for one in gang.running if (v := _vendor(one))} if not request.portable else set()
        if not vendors:
            return bound
        able = frozenset(vendors) if bound is None else bound.vendors & vendors
        return VendorBound(
            able, Refusal("GangVendor", f"the other members of the gang run on {', '.join(sorted(vendors))}")
        )


def _spilled(members: Sequence[Member], plan: GangPlan, without: Mapping[str, str]) -> tuple[Member, ...]:
    """Members without a rectangle may not go to that node; those that filled it stay, so that others do not follow."""
    full = set(without.values())
    found = []
    for member in members:
        nodes = member.nodes or frozenset()
        place = plan.member(member.pod)
        if member.pod in without:
            nodes = nodes - {without[member.pod]}
        elif place is not None and place.node in full:
            nodes = frozenset({place.node})
        found.append(msgspec.structs.replace(member, nodes=nodes))
    return tuple(found)


def _vendor(pod: Pod) -> str:
    held = allocation_of(pod)
    return held.vendor if held is not None else ""
