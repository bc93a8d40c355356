"""A gang's plan: devices for all of its members at once, as near to each other as the fleet allows, or why not.

Members may differ in size. They stay on one vendor's cards unless the gang is portable, for collective communication
does not cross vendors. A sub-healthy card serves no gang: all members would wait for it.

Nearness has levels, from wide to narrow: zone, RDMA network, rack, link domain, node. The narrowest place that holds
all members is taken; where none does, the members are spread over as few places of each level as possible, the wide
levels first. The same snapshot and gang give the same plan.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from hcs.model.allocations import Peers
from hcs.model.refusals import Refusal
from hcs.placement.appraisals import ReferenceRates, VendorBound, appraise
from hcs.placement.engine import placement_of
from hcs.placement.explanations import refuse_nodes
from hcs.placement.fleet import Fleet, Mask
from hcs.placement.gangs import Gang, GangPlan, Member, MemberPlan, spread_of
from hcs.placement.gathering import Placed, Shape, fill, hardest_first, search, shape_of
from hcs.placement.levels import Nearest, levels_of, nearest
from hcs.placement.nearness import relaxations
from hcs.placement.plans import NodeRefusal, Unplaceable, summarise
from hcs.placement.policies import Chosen
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot

TRIES: Final = 8
"""Sets of nodes that are tried where a capacity is only an upper bound."""
SEARCHED: Final = 64
"""Groups up to which every way is tried where filling in order fails."""
BUDGET: Final = 4_000
"""Steps of that search."""


def plan_gang(
    snapshot: Snapshot,
    gang: Gang,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bounds: Mapping[str, VendorBound] | None = None,
    rooms: Mapping[str, Room] | None = None,
) -> GangPlan | Unplaceable:
    """Place all members of a gang, or none.

    Args:
        snapshot: the fleet and all that is taken or promised to others; nothing of this gang.
        gang: its members.
        nodes: names of the nodes to choose from; None for all.
        reference_rates: as for :func:`hcs.placement.engine.place`.
        bounds: per pod, the only vendors it can run on.
        rooms: what is free of CPU, memory and pod slots by node; a node that is missing has enough. None: all have.
    """
    if len(gang.members) < gang.least:
        missing = Refusal(
            "GangIncomplete", f"gang {gang.key} starts with {gang.least} members; {len(gang.members)} are there"
        )
        return Unplaceable((), str(missing))
    choices = _Choices(nodes, reference_rates, bounds or {}, rooms or {})
    found = _plan(snapshot, gang, len(gang.members), choices)
    if found is None and gang.least < len(gang.members):
        found = _plan(snapshot, gang, gang.least, choices)
    return found if found is not None else _unplaceable(snapshot, gang, choices)


class _Choices(msgspec.Struct, frozen=True):
    """What a plan may choose from."""

    nodes: Collection[str] | None
    reference_rates: ReferenceRates | None
    bounds: Mapping[str, VendorBound]
    rooms: Mapping[str, Room]


class _Attempt(msgspec.Struct, frozen=True, eq=False):
    """One way to look for a place: only these groups [G], for this reason; ``tier`` says which come first."""

    tier: int
    name: str
    groups: Mask


def _plan(snapshot: Snapshot, gang: Gang, count: int, choices: _Choices) -> GangPlan | None:
    """A plan for the first ``count`` members, or None; what members wish for is kept where it can be for all."""
    members = gang.members[:count]
    ways = [relaxations(snapshot.fleet, member.request) for member in members]
    for step in range(max(map(len, ways))):
        wanted = [
            msgspec.structs.replace(member, request=way[min(step, len(way) - 1)])
            for member, way in zip(members, ways, strict=True)
        ]
        found = _plan_strictly(snapshot, gang, wanted, choices)
        if found is not None:
            return found
    return None


def _plan_strictly(snapshot: Snapshot, gang: Gang, members: Sequence[Member], choices: _Choices) -> GangPlan | None:
    shapes = _shapes(snapshot, members, choices)
    attempts = _attempts(snapshot, shapes, gang.portable)
    for tier in sorted({attempt.tier for attempt in attempts}):
        ranked = sorted(
            (
                (near.reach[:3], _cost(snapshot.fleet, attempt, shapes), near.reach[3:], attempt.name, number, near)
                for number, attempt in enumerate(attempts)
                if attempt.tier == tier
                for near in _near(snapshot.fleet, shapes, attempt)
            ),
            key=lambda entry: entry[:5],
        )
        for *_, number, near in ranked:
            attempt = attempts[number]
            groups = _groups_on(snapshot.fleet, near.nodes, attempt, shapes)
            placed = fill(snapshot, groups, shapes, hardest_first(shapes), choices.rooms)
            if placed is not None:
                return _written(snapshot, gang, members, shapes, placed)
        placed = _search_all(snapshot, shapes, [a for a in attempts if a.tier == tier], choices.rooms)
        if placed is not None:
            return _written(snapshot, gang, members, shapes, placed)
    return None


def _shapes(snapshot: Snapshot, members: Sequence[Member], choices: _Choices) -> tuple[Shape, ...]:
    """The members by what they ask for, each shape weighed against the fleet."""
    fleet = snapshot.fleet
    numbers: dict[tuple[object, ...], list[int]] = {}
    for number, member in enumerate(members):
        bound = choices.bounds.get(member.pod)
        key = (member.request, member.nodes, bound, member.milli_cpu, member.memory)
        numbers.setdefault(key, []).append(number)
    shapes = []
    for alike in numbers.values():
        member = members[alike[0]]
        bound = choices.bounds.get(member.pod)
        allowed = _nodes_mask(fleet, choices.nodes) & _nodes_mask(fleet, member.nodes)
        appraisals = appraise(fleet, member.request, choices.reference_rates, bound)
        shapes.append(
            shape_of(
                snapshot,
                member.request,
                alike,
                appraisals,
                allowed,
                together=len(members) > 1,
                rooms=choices.rooms,
                milli_cpu=member.milli_cpu,
                memory=member.memory,
            )
        )
    return tuple(shapes)


def _attempts(snapshot: Snapshot, shapes: Sequence[Shape], portable: bool) -> list[_Attempt]:
    """The ways to look, in tiers: cards the pods name before substitutes, one model before several of one vendor, and
    several vendors last and only for portable gangs. Where a member requires an RDMA network, one network each."""
    fleet = snapshot.fleet
    holding = np.logical_or.reduce([shape.capacity > 0 for shape in shapes])
    first = fleet.kind[fleet.group_first[:-1]]
    substitute = np.logical_or.reduce([shape.appraisals[0].substitute for shape in shapes])[first]
    models: dict[tuple[str, str], list[int]] = {}
    for group in np.flatnonzero(holding):
        kind = fleet.kinds[int(first[group])]
        models.setdefault((kind.vendor, kind.model), []).append(int(group))
    vendors = sorted({vendor for vendor, _ in models})
    sets: list[tuple[int, str, list[int]]] = [
        (1, f"{vendor}/{model}", groups) for (vendor, model), groups in sorted(models.items())
    ]
    sets += [
        (2, vendor, [g for (maker, _), groups in sorted(models.items()) if maker == vendor for g in groups])
        for vendor in vendors
        if sum(maker == vendor for maker, _ in models) > 1
    ]
    if portable and len(vendors) > 1:
        sets.append((3, "", [group for groups in models.values() for group in groups]))
    found = []
    for name, inside in _networks(snapshot, shapes):
        for tier, what, groups in sets:
            mask = np.zeros(len(fleet.group_node), dtype=np.bool_)
            mask[groups] = True
            mask &= inside[fleet.group_node]
            if (mask & ~substitute).any():
                found.append(_Attempt(tier, f"{what} {name}", mask & ~substitute))
            if (mask & substitute).any():
                found.append(_Attempt(tier + 3, f"{what} {name}", mask))
    return found


def _networks(snapshot: Snapshot, shapes: Sequence[Shape]) -> list[tuple[str, Mask]]:
    """The networks of which the gang must stay in one, with their nodes [N]; all nodes where none is required."""
    fleet = snapshot.fleet
    rules = [s.request.locality.fabric for s in shapes if s.request.locality.fabric is not None]
    required = [rule for rule in rules if rule.required]
    if not required:
        return [("", np.ones(len(fleet.nodes), dtype=np.bool_))]
    every = {fabric for node in fleet.nodes for fabric in node.fabrics}
    for rule in required:
        every &= set(rule.names) if rule.names else every
    return [(name, np.array([name in node.fabrics for node in fleet.nodes], dtype=np.bool_)) for name in sorted(every)]


def _near(fleet: Fleet, shapes: Sequence[Shape], attempt: _Attempt) -> list[Nearest]:
    """The nearest sets of nodes that seem to hold all members."""
    if any(int(shape.capacity[attempt.groups].sum()) < shape.count for shape in shapes):
        return []
    # Shapes are counted in one measure: thousandths of the group that holds most of them.
    largest = [max(int(shape.capacity[attempt.groups].max(initial=0)), 1) for shape in shapes]
    weights = [1 if len(shapes) == 1 else -(-1000 // most) for most in largest]
    room = np.maximum.reduce([shape.capacity * weight for shape, weight in zip(shapes, weights, strict=True)])
    held = np.bincount(fleet.group_node, weights=np.where(attempt.groups, room, 0), minlength=len(fleet.nodes))
    most = np.maximum.reduce([shape.limit * weight for shape, weight in zip(shapes, weights, strict=True)])
    held = np.minimum(held, most)
    count = sum(shape.count * weight for shape, weight in zip(shapes, weights, strict=True))
    tries = 1 if len(shapes) == 1 and shapes[0].exact else TRIES
    return nearest(levels_of(fleet), held.astype(np.int64), count, tries=tries)


def _cost(fleet: Fleet, attempt: _Attempt, shapes: Sequence[Shape]) -> int:
    """What the cheapest cards of an attempt are worth, so that small cards that suffice come before large ones."""
    groups = np.flatnonzero(attempt.groups & np.logical_or.reduce([shape.capacity > 0 for shape in shapes]))
    first = fleet.group_first[groups]
    return int((fleet.milliacu[first] + (fleet.vram[first] >> 20)).min(initial=1 << 62))


def _groups_on(fleet: Fleet, nodes: Sequence[int], attempt: _Attempt, shapes: Sequence[Shape]) -> list[int]:
    """The groups of the nodes in the order to fill them: as the nodes come, on each the one that holds most first."""
    room = np.add.reduce([shape.capacity for shape in shapes])
    by_node: dict[int, list[int]] = {}
    for group in np.flatnonzero(attempt.groups & np.isin(fleet.group_node, nodes)):
        by_node.setdefault(int(fleet.group_node[group]), []).append(int(group))
    return [group for node in nodes for group in sorted(by_node.get(node, ()), key=lambda g: (-int(room[g]), g))]


def _search_all(
    snapshot: Snapshot, shapes: Sequence[Shape], attempts: Sequence[_Attempt], rooms: Mapping[str, Room]
) -> Placed | None:
    """Where filling in order failed: every way there is, while the fleet is small enough for that."""
    if len(shapes) == 1 and shapes[0].exact:
        return None  # the capacities were exact, so there is no way
    for attempt in attempts:
        groups = np.flatnonzero(attempt.groups)
        if any(int(shape.capacity[groups].sum()) < shape.count for shape in shapes):
            continue
        room = np.add.reduce([shape.capacity for shape in shapes])
        order = sorted((int(group) for group in groups), key=lambda g: (-int(room[g]), g))
        placed = fill(snapshot, order, shapes, hardest_first(shapes), rooms)
        if placed is None and len(groups) <= SEARCHED:
            placed = search(snapshot, order, shapes, BUDGET, rooms)
        if placed is not None:
            return placed
    return None


def _written(
    snapshot: Snapshot,
    gang: Gang,
    members: Sequence[Member],
    shapes: Sequence[Shape],
    placed: Placed,
) -> GangPlan:
    of = {number: shape for shape in shapes for number in shape.members}
    plans = []
    for number, member in enumerate(members):
        group, devices = placed[number]
        placement = placement_of(snapshot, member.request, of[number].appraisals, Chosen(group, devices))
        plans.append(MemberPlan(member.pod, placement))
    plans = _acquainted(snapshot, plans)
    spread = spread_of(snapshot, [plan.placement.node for plan in plans])
    places = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((spread.zones, "zone"), (spread.racks, "rack"), (spread.nodes, "node"))
    ]
    return GangPlan(
        key=gang.key,
        members=tuple(plans),
        spread=spread,
        reason=f"all {len(plans)} members placed together on {', '.join(places)}",
        waiting=tuple(member.pod for member in gang.members[len(members) :]),
    )


def _acquainted(snapshot: Snapshot, plans: Sequence[MemberPlan]) -> list[MemberPlan]:
    """Each member told how many of the others are where, and over which network they talk."""
    fleet = snapshot.fleet
    here = Counter(plan.placement.node for plan in plans)
    networks = [fleet.nodes[fleet.node_index[name]].fabrics for name in here]
    shared = sorted(frozenset.intersection(*networks))
    peers = Peers(members=len(plans), nodes=len(here), fabric=shared[0] if shared else "")
    return [
        msgspec.structs.replace(
            plan,
            placement=msgspec.structs.replace(
                plan.placement, peers=msgspec.structs.replace(peers, here=here[plan.placement.node])
            ),
        )
        for plan in plans
    ]


def _unplaceable(snapshot: Snapshot, gang: Gang, choices: _Choices) -> Unplaceable:
    """Why there is no plan: by node for a single member, and whether the empty fleet would have one."""
    fleet = snapshot.fleet
    alone = msgspec.structs.replace(choices, rooms={})  # CPU and memory come and go with other pods as well
    ever = _plan(snapshot.vacant(), gang, gang.least, alone) is not None
    member = gang.members[0]
    appraisals = appraise(fleet, member.request, choices.reference_rates, choices.bounds.get(member.pod))
    allowed = _nodes_mask(fleet, choices.nodes) & _nodes_mask(fleet, member.nodes)
    refusals, serving = refuse_nodes(snapshot, appraisals, allowed)
    if ever:
        whole = Refusal(
            "GangTaken",
            f"gang {gang.key} needs {gang.least} members placed at once; "
            "cards that could serve all of them, or the CPU and memory beside them, are taken by other pods",
        )
    else:
        vendor = "" if gang.portable else " of one vendor"
        whole = Refusal(
            "GangTooLarge",
            f"gang {gang.key} needs {gang.least} members placed at once; "
            f"the cards{vendor} that could serve are too few for that, even with no other pod there",
        )
    # Whether a node has room for one member changes all the time and must not show.
    once = [r for r in refusals if r.refusal.reason != "CardsTaken"]
    full = {r.node for r in refusals} - {r.node for r in once}
    every = tuple(sorted((*once, *(NodeRefusal(name, whole, ever) for name in {*serving, *full})), key=_by_node))
    return Unplaceable(every, f"{whole.message}; for one member {summarise(every)}" if once else whole.message)


def _by_node(refusal: NodeRefusal) -> str:
    return refusal.node


def _nodes_mask(fleet: Fleet, nodes: Collection[str] | None) -> Mask:
    if nodes is None:
        return np.ones(len(fleet.nodes), dtype=np.bool_)
    mask = np.zeros(len(fleet.nodes), dtype=np.bool_)
    mask[[fleet.node_index[name] for name in nodes if name in fleet.node_index]] = True
    return mask
