"""Gangs as placement sees them: members, plans, and whether a plan still holds.

All or nothing is a matter of one decision: a plan is made from one snapshot (:mod:`hcs.placement.gangplanner`), and
whoever carries it out reserves the devices of every member before any gate opens. Between plan and start the fleet may
change; then the plan is made anew, never patched.
"""

from collections.abc import Collection

import msgspec

from hcs.model.allocations import Allocation
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot, key_of


class Member(msgspec.Struct, frozen=True):
    """One pod of a gang: its UID, what it asks for, and the nodes it may go to (None: all).

    ``milli_cpu`` (thousandths of a CPU) and ``memory`` (bytes) are what it asks of the node beside its cards.
    """

    pod: str
    request: ComputeRequest
    nodes: frozenset[str] | None = None
    milli_cpu: int = 0
    memory: int = 0


class Gang(msgspec.Struct, frozen=True):
    """Pods that start together.

    ``minimum`` is how many must; 0 means all of ``members``. Where not all have a place, the first ``minimum`` in the
    order of ``members`` are planned. ``portable``: members may be on different vendors' cards.
    """

    key: str
    members: tuple[Member, ...]
    minimum: int = 0
    portable: bool = False

    @property
    def least(self) -> int:
        """How many members must be placed."""
        return self.minimum or len(self.members)


class Spread(msgspec.Struct, frozen=True, order=True):
    """Over how many places of each level a plan reaches; less is nearer."""

    zones: int
    fabrics: int
    racks: int
    domains: int
    nodes: int


class MemberPlan(msgspec.Struct, frozen=True):
    """One member's place."""

    pod: str
    placement: Placement


class GangPlan(msgspec.Struct, frozen=True):
    """Places for all members that start together, in the order of the gang; ``waiting`` are those beyond the minimum
    that found none. ``reason`` is one sentence for people."""

    key: str
    members: tuple[MemberPlan, ...]
    spread: Spread
    reason: str = ""
    waiting: tuple[str, ...] = ()

    def allocations(self) -> tuple[Allocation, ...]:
        """What to reserve, one allocation a member."""
        return tuple(member.placement.allocation(member.pod) for member in self.members)

    def member(self, pod: str) -> Placement | None:
        """The place of one pod."""
        return next((member.placement for member in self.members if member.pod == pod), None)


def check_plan(snapshot: Snapshot, plan: GangPlan) -> Refusal | None:
    """Say why a plan made earlier cannot be carried out on this snapshot any more; None where it still can.

    The snapshot holds everything but this gang. A stale plan is made anew, never patched.
    """
    fleet = snapshot.fleet
    taken: dict[int, list[tuple[int, int, bool]]] = {}
    keys: dict[int, set[int]] = {}
    for member in plan.members:
        placement = member.placement
        node = fleet.node_index.get(placement.node)
        if node is None or not fleet.ready[node]:
            return _stale(plan, f"node {placement.node} is gone or not ready")
        for grants in placement.containers.values():
            for grant in grants:
                device = fleet.device_index.get((placement.node, grant.device))
                if device is None or not fleet.usable[device]:
                    return _stale(plan, f"card {grant.device} of {placement.node} is gone or takes no new work")
                taken.setdefault(device, []).append((grant.bytes, grant.milliacu, placement.exclusive))
                keys.setdefault(device, set()).add(key_of(placement.group))
    free_bytes, free_milliacu = snapshot.free_bytes, snapshot.free_milliacu
    for device, parts in taken.items():
        whole = any(exclusive for _, _, exclusive in parts)
        crowded = snapshot.whole[device] > 0 or (whole and (len(parts) > 1 or snapshot.tenants[device] > 0))
        crowded = crowded or not all(snapshot.open_to(key)[device] for key in keys[device])
        if (
            crowded
            or sum(part[0] for part in parts) > free_bytes[device]
            or sum(part[1] for part in parts) > free_milliacu[device]
        ):
            name = fleet.nodes[int(fleet.node[device])].name
            return _stale(plan, f"card {fleet.devices[device].id} of {name} was given to another pod")
    return None


def _stale(plan: GangPlan, why: str) -> Refusal:
    return Refusal("StalePlan", f"the plan of gang {plan.key} is out of date: {why}; it is planned again")


def spread_of(snapshot: Snapshot, nodes: Collection[str]) -> Spread:
    """Over how many zones, networks, racks, link domains and nodes these nodes reach."""
    names = sorted(set(nodes))
    places = [snapshot.fleet.nodes[snapshot.fleet.node_index[name]].location for name in names]
    return Spread(
        zones=len({place.zone for place in places}),
        fabrics=len({(place.zone, place.fabric) for place in places}),
        racks=len({(place.zone, place.fabric, place.rack) for place in places}),
        domains=len(
            {
                (place.zone, place.fabric, place.rack, place.domain or name)
                for place, name in zip(places, names, strict=True)
            }
        ),
        nodes=len(names),
    )
