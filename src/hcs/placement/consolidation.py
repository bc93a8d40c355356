"""Moves that free whole nodes or whole cards at a bounded cost: what ``hcs defrag --dry-run`` shows.

A fleet of shares frays: every node a little used, none free for a job that wants eight cards. A plan empties the nodes
(or cards) that are cheapest to empty by moving their pods onto others that are in use already. Only pods that somebody
replaces are moved, and only within the disruption budgets; moving costs the work since the last checkpoint. Nothing is
carried out here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.engine import place
from hcs.placement.fleet import Mask
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.rooms import Room
from hcs.placement.snapshot import Snapshot
from hcs.placement.victims import Budget, RunningPod, limits_of, within

Goal = Literal["nodes", "cards"]


class Movable(msgspec.Struct, frozen=True):
    """A running pod with cards, and what it asked for. ``movable`` is False where nobody would replace it, or its owner
    does not want it moved."""

    pod: RunningPod
    request: ComputeRequest
    movable: bool = True


class Move(msgspec.Struct, frozen=True):
    """Evict ``pod`` (UID) from ``source``; it fits as ``target`` says."""

    pod: str
    key: str
    source: str
    target: Placement
    lost_seconds: int


class Freed(msgspec.Struct, frozen=True):
    """A node, or one card of it, that the moves empty."""

    node: str
    device: str = ""


class ConsolidationPlan(msgspec.Struct, frozen=True):
    """Moves in the order in which they are made, and what they free; ``skipped`` says of other nodes why not."""

    moves: tuple[Move, ...]
    freed: tuple[Freed, ...]
    lost_seconds: int
    summary: str
    skipped: tuple[tuple[str, str], ...] = ()


def plan_consolidation(
    snapshot: Snapshot,
    pods: Iterable[Movable],
    *,
    goal: Goal = "nodes",
    max_moves: int = 20,
    max_lost_seconds: int | None = None,
    rooms: Mapping[str, Room] | None = None,
    budgets: Iterable[Budget] = (),
    reference_rates: ReferenceRates | None = None,
) -> ConsolidationPlan:
    """Plan moves, those that free something for the fewest moves and the least lost work first.

    Args:
        snapshot: the fleet and all that is taken.
        pods: everything with an allocation in the snapshot; devices with tenants not named here are not emptied.
        goal: free whole nodes, or single cards.
        max_moves: at most this many.
        max_lost_seconds: at most this much work lost in all; None for any.
        rooms: free CPU and memory by node, as for preemption.
        budgets: disruption budgets in force.
        reference_rates: as for :func:`hcs.placement.engine.place`.
    """
    everybody = {one.pod.uid: one for one in pods if one.pod.allocation is not None and not one.pod.terminating}
    state = _State(snapshot, dict(rooms or {}))
    limits = limits_of(budgets)
    freed: list[Freed] = []
    skipped: list[tuple[str, str]] = []
    for source in _sources(snapshot, everybody.values(), goal):
        here = [everybody[uid] for uid in source.pods]
        if any(one.pod.uid in state.moved or one.pod.node in state.receivers for one in here):
            continue
        lost = sum(one.pod.lost_seconds for one in here)
        why = _kept(snapshot, source, here)
        if why is None and len(state.moves) + len(here) > max_moves:
            why = f"would take {len(here)} moves more than the {max_moves} allowed leave"
        if why is None and max_lost_seconds is not None and state.lost_seconds + lost > max_lost_seconds:
            why = f"would lose {lost} s of work, more than is allowed"
        if why is None and not within([everybody[uid].pod for uid in (*state.moved, *source.pods)], limits):
            why = "a disruption budget forbids it"
        if why is None:
            moves = _emptied(state, source, here, goal, freed, reference_rates)
            if moves is not None:
                freed.append(source.frees)
                continue
            why = "its pods find no place on cards in use elsewhere"
        skipped.append((source.label, why))
    return ConsolidationPlan(
        moves=tuple(state.moves),
        freed=tuple(freed),
        lost_seconds=state.lost_seconds,
        summary=_summary(snapshot, state, freed, goal),
        skipped=tuple(skipped),
    )


class _Source(msgspec.Struct, frozen=True):
    """Something that moves could empty: its devices' positions and the UIDs of the pods on them, largest first."""

    frees: Freed
    devices: tuple[int, ...]
    pods: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.frees.node}/{self.frees.device}" if self.frees.device else self.frees.node


class _State:
    """The fleet as the moves so far leave it."""

    def __init__(self, snapshot: Snapshot, rooms: dict[str, Room]) -> None:
        self.snapshot, self.rooms = snapshot, rooms
        self.moves: list[Move] = []
        self.moved: set[str] = set()
        self.receivers: set[str] = set()

    @property
    def lost_seconds(self) -> int:
        return sum(move.lost_seconds for move in self.moves)


def _sources(snapshot: Snapshot, pods: Iterable[Movable], goal: Goal) -> list[_Source]:
    """What could be emptied, the cheapest first: few pods, little lost work, many cards; by name among equals."""
    fleet = snapshot.fleet
    on: dict[Freed, dict[str, Movable]] = {}
    for one in pods:
        for device in one.pod.allocation.devices() if one.pod.allocation is not None else ():
            if (one.pod.node, device) in fleet.device_index:
                on.setdefault(Freed(one.pod.node, device if goal == "cards" else ""), {})[one.pod.uid] = one
    sources = []
    for frees, here in on.items():
        inside = fleet.slice_of(fleet.node_index[frees.node])
        devices = tuple(range(inside.start, inside.stop))
        if frees.device:
            devices = (fleet.device_index[frees.node, frees.device],)
        order = sorted(here.values(), key=lambda one: (-_size(one), one.pod.uid))
        cost = len(here), sum(one.pod.lost_seconds for one in here.values()), -len(devices)
        sources.append((cost, frees.node, frees.device, _Source(frees, devices, tuple(one.pod.uid for one in order))))
    return [source for *_, source in sorted(sources, key=lambda entry: entry[:3])]


def _kept(snapshot: Snapshot, source: _Source, here: Sequence[Movable]) -> str | None:
    """Why a source is left as it is, whatever room there is elsewhere."""
    fixed = sorted(one.pod.key for one in here if not one.movable)
    if fixed:
        return f"{fixed[0]} is not to be moved"
    known = sum(
        (one.pod.node, grant.device) in snapshot.fleet.device_index
        and snapshot.fleet.device_index[one.pod.node, grant.device] in source.devices
        for one in here
        if one.pod.allocation is not None
        for grants in one.pod.allocation.containers.values()
        for grant in grants
    )
    if known != int(snapshot.tenants[list(source.devices)].sum()):
        return "devices there are promised to pods that do not run yet"
    return None


def _emptied(
    state: _State,
    source: _Source,
    here: Sequence[Movable],
    goal: Goal,
    freed: Sequence[Freed],
    reference_rates: ReferenceRates | None,
) -> list[Move] | None:
    """Move all pods of a source, or none: then None, and the state is as before."""
    fleet = state.snapshot.fleet
    barred = _unused(state.snapshot, goal)
    barred[list(source.devices)] = True
    for gone in freed:
        inside = fleet.slice_of(fleet.node_index[gone.node])
        barred[fleet.device_index[gone.node, gone.device] if gone.device else inside] = True
    snapshot, rooms, moves = state.snapshot, dict(state.rooms), []
    for one in here:
        assert one.pod.allocation is not None  # only pods with cards are on sources
        snapshot = snapshot.without(one.pod.allocation)
        nodes = [
            node.name
            for node in fleet.nodes
            if one.pod.node == node.name
            or (room := rooms.get(node.name)) is None
            or room.holds(one.pod.milli_cpu, one.pod.memory)
        ]
        found = place(snapshot.with_owned(barred), one.request, nodes=nodes, reference_rates=reference_rates)
        if isinstance(found, Unplaceable):
            return None
        snapshot = snapshot.with_allocation(found.allocation(one.pod.uid))
        _shift(rooms, one.pod, found.node)
        moves.append(Move(one.pod.uid, one.pod.key, one.pod.node, found, one.pod.lost_seconds))
    state.snapshot, state.rooms = snapshot, rooms
    state.moves += moves
    state.moved |= {move.pod for move in moves}
    state.receivers |= {move.target.node for move in moves}
    return moves


def _unused(snapshot: Snapshot, goal: Goal) -> Mask:
    """[D] What nobody uses yet and nobody shall: empty nodes, or empty cards."""
    empty: Mask = snapshot.tenants == 0
    if goal == "nodes":
        fleet = snapshot.fleet
        empty = ~fleet.any_on_node(~empty)[fleet.node]
    return empty.copy()


def _shift(rooms: dict[str, Room], pod: RunningPod, target: str) -> None:
    """Move a pod's CPU and memory from its node to another."""
    for node, sign in ((pod.node, 1), (target, -1)):
        room = rooms.get(node)
        if room is not None and pod.node != target:
            rooms[node] = room.without(-sign * pod.milli_cpu, -sign * pod.memory, -sign)


def _size(one: Movable) -> int:
    grants = one.pod.allocation.containers.values() if one.pod.allocation is not None else ()
    return sum(grant.bytes for container in grants for grant in container)


def _summary(snapshot: Snapshot, state: _State, freed: Sequence[Freed], goal: Goal) -> str:
    if not freed:
        return f"no {'node' if goal == 'nodes' else 'card'} can be freed within these limits"
    fleet = snapshot.fleet
    moves = "1 move frees" if len(state.moves) == 1 else f"{len(state.moves)} moves free"
    what = f"{len(freed)} {'node' if goal == 'nodes' else 'card'}{'s' if len(freed) != 1 else ''}"
    if goal == "nodes":
        cards = sum(len(fleet.nodes[fleet.node_index[one.node]].devices) for one in freed)
        what += f" with {cards} card{'s' if cards != 1 else ''}"
    return f"{moves} {what}; {state.lost_seconds} s of work since the last checkpoints are lost"
