"""Making room: which tasks to move where, so that a request fits that would not, and what that costs.

A plan is a list of moves in the order they must be made; every move goes to cores that are free by then. Its cost is
the number of cores that are unloaded and loaded again. Plans are bounded: few moves, and a bounded cost, so a small
request never turns the whole board over. Whoever carries a plan out checks first that the board has not changed.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from hcs.neuro.allocator import Allocator, CoreRequest, Placed
from hcs.neuro.grids import Rectangle

_TRIED: Final = 32
"""Targets for which moves are looked for, the cheapest first."""


class MigrationLimits(msgspec.Struct, frozen=True):
    """How far a plan may go: number of moves, and cores moved for each core asked for, in percent."""

    moves: int = 3
    cost_pct: int = 200


USUAL: Final = MigrationLimits()


class Move(msgspec.Struct, frozen=True):
    """One holder goes from one rectangle to another; they may overlap, for it is unloaded before it is loaded."""

    holder: int
    source: Rectangle
    target: Placed


class MigrationPlan(msgspec.Struct, frozen=True):
    """The moves, where the request goes then, the cost in cores, and the state of the board it was made for."""

    moves: tuple[Move, ...]
    placed: Placed
    cost: int
    generation: int


def plan_migration(
    allocator: Allocator,
    request: CoreRequest,
    movable: Mapping[int, CoreRequest],
    limits: MigrationLimits = USUAL,
) -> MigrationPlan | None:
    """Find the cheapest plan among the likely ones; None where the request cannot fit, or only by moving too much.

    Args:
        allocator: the board; it is not changed.
        request: what shall fit.
        movable: holders that may be moved, with what they asked for.
        limits: how far to go.
    """
    if allocator.free_cores < request.cores:
        return None
    most = request.cores * limits.cost_pct // 100
    shapes = {(request.width, request.height, False)}
    if request.rotation and request.width != request.height:
        shapes.add((request.height, request.width, True))
    targets = [
        target for shape in shapes for target in _targets(allocator, shape, request.cores, movable, limits, most)
    ]
    targets.sort()
    for cost, rectangle, turned in targets[:_TRIED]:
        moves = _clear(allocator, rectangle, movable)
        if moves is not None:
            placed = Placed(rectangle, turned, rectangle.area > request.cores)
            return MigrationPlan(moves, placed, cost, allocator.generation)
    return None


def _targets(
    allocator: Allocator,
    shape: tuple[int, int, bool],
    cores: int,
    movable: Mapping[int, CoreRequest],
    limits: MigrationLimits,
    most: int,
) -> list[tuple[int, Rectangle, bool]]:
    """(cost, rectangle, turned) of the places of one shape that can be cleared within the limits."""
    layout = allocator.layout
    width, height, turned = shape
    across, down = layout.width - width + 1, layout.height - height + 1
    if min(across, down, width, height) < 1:
        return []
    cost = np.zeros((down, across), dtype=np.int64)
    moves = np.zeros((down, across), dtype=np.int64)
    for key, held in allocator.held.items():
        window = np.s_[max(0, held.y - height + 1) : held.bottom, max(0, held.x - width + 1) : held.right]
        cost[window] += held.area if key in movable else most + 1
        moves[window] += 1
    suitable = allocator.suitable(width, height, cores)
    found = []
    for y, x in np.argwhere((cost <= most) & (moves <= limits.moves)).tolist():
        if suitable >> layout.bit(x, y) & 1:
            found.append((int(cost[y, x]), Rectangle(x, y, width, height), turned))
    return found


def _clear(allocator: Allocator, target: Rectangle, movable: Mapping[int, CoreRequest]) -> tuple[Move, ...] | None:
    """Moves that clear a rectangle, the largest first; None where somebody finds no other place."""
    board = allocator.copy()
    kept_clear = board.layout.rectangle(target)
    inside = sorted(
        (key for key, held in board.held.items() if held.overlaps(target)), key=lambda key: (-board.held[key].area, key)
    )
    moves = []
    for key in inside:
        source = board.release(key)
        placed = board.find(movable[key], avoid=kept_clear)
        if placed is None:
            return None
        board.hold(key, placed.rectangle)
        moves.append(Move(key, source, placed))
    return tuple(moves)
