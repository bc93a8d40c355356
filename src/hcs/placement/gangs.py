"""A gang's plan: devices for all of its members at once, as near to each other as the fleet allows, or why not.

All or nothing is a matter of one decision: the plan is made from one snapshot, and whoever carries it out reserves the
devices of every member before any gate opens. Members may differ in size. They stay on one vendor's cards unless the
gang is portable, for collective communication does not cross vendors. A sub-healthy card serves no gang: all members
would wait for it.

Nearness has levels, from wide to narrow: zone, RDMA network, rack, link domain, node. The narrowest place that holds
all members is taken; where none does, the members are spread over as few places of each level as possible, the wide
levels first. The same snapshot and gang give the same plan.
"""

from collections.abc import Collection, Mapping

import msgspec

from hcs.model.allocations import Allocation
from hcs.model.gangs import Membership
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates, VendorBound
from hcs.placement.engine import place
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.snapshot import Snapshot


class Member(msgspec.Struct, frozen=True):
    """One pod of a gang: its UID, what it asks for, and the nodes it may go to (None: all)."""

    pod: str
    request: ComputeRequest
    nodes: frozenset[str] | None = None


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


def plan_gang(
    snapshot: Snapshot,
    gang: Gang,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bounds: Mapping[str, VendorBound] | None = None,
) -> GangPlan | Unplaceable:
    """Place all members of a gang, or none.

    Args:
        snapshot: the fleet and all that is taken or promised to others; nothing of this gang.
        gang: its members.
        nodes: names of the nodes to choose from; None for all.
        reference_rates: as for :func:`hcs.placement.engine.place`.
        bounds: per pod, the only vendors it can run on.
    """
    placed: list[MemberPlan] = []
    vendor: str | None = None
    now = snapshot
    for member in gang.members:
        found = place(now, member.request, nodes=member.nodes or nodes, reference_rates=reference_rates)
        if isinstance(found, Unplaceable):
            return found
        if vendor not in (None, found.vendor) and not gang.portable:
            return Unplaceable((), f"gang {gang.key}: no vendor's cards hold all members")
        vendor = found.vendor
        now = now.with_allocation(found.allocation(member.pod))
        placed.append(MemberPlan(member.pod, found))
    return GangPlan(gang.key, tuple(placed), spread_of(snapshot, [one.placement.node for one in placed]))


def check_plan(snapshot: Snapshot, plan: GangPlan) -> Refusal | None:
    """Say why a plan made earlier cannot be carried out on this snapshot any more; None where it still can.

    The snapshot holds everything but this gang. A stale plan is made anew, never patched.
    """
    raise NotImplementedError


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


__all__ = [
    "Gang",
    "GangPlan",
    "Member",
    "MemberPlan",
    "Membership",
    "Spread",
    "check_plan",
    "plan_gang",
    "spread_of",
]
