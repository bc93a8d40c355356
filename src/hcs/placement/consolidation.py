"""Moves that free whole nodes or whole cards at a bounded cost: what ``hcs defrag --dry-run`` shows.

A fleet of shares frays: every node a little used, none free for a job that wants eight cards. A plan empties the nodes
(or cards) that are cheapest to empty by moving their pods onto others that are in use already. Only pods that somebody
replaces are moved, and only within the disruption budgets; moving costs the work since the last checkpoint. Nothing is
carried out here.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.plans import Placement
from hcs.placement.preemption import Budget, Room, RunningPod
from hcs.placement.snapshot import Snapshot

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
    rooms: dict[str, Room] | None = None,
    budgets: Iterable[Budget] = (),
    reference_rates: ReferenceRates | None = None,
) -> ConsolidationPlan:
    """Plan moves.

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
    raise NotImplementedError
