"""Who goes next when not all can: first come first served, with a reservation for the first and backfill behind it.

The first in the queue that does not fit gets a *reservation*: the rectangle that it will have soonest, if everybody
ends when expected, and the time of it. Others behind it may start at once (*backfill*) if they keep off that
rectangle, or if they will be gone by that time; so nobody delays the first. Where nothing is known about how long
anybody stays, the reservation is the rectangle that is the least occupied, and backfill keeps off it always.

Where it is known how long they stay, the place for the first is chosen by rehearsal: the queue behind it is played
through once for each good place, and the place after which the others wait the least is taken. The order stays first
come first served; only where each goes is chosen with the others in mind.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.neuro.allocator import Allocator, CoreRequest, Placed
from hcs.neuro.grids import Layout, Rectangle, bits

DEPTH: Final = 64
"""How many behind the first are looked at."""
REHEARSED: Final = 30
"""How many behind the first are played through."""
_PLACES: Final = 40
"""Places for the first that are compared."""


class Waiting(msgspec.Struct, frozen=True):
    """One in the queue. ``seconds`` is how long it will stay; None where nobody knows."""

    key: int
    request: CoreRequest
    seconds: float | None = None


class Reservation(msgspec.Struct, frozen=True):
    """The rectangle kept for the first in the queue, from ``at`` on; None where nobody knows when."""

    key: int
    placed: Placed
    at: float | None


class Start(msgspec.Struct, frozen=True):
    """One of the queue starts here, now."""

    key: int
    placed: Placed
    backfilled: bool = False


class Decision(msgspec.Struct, frozen=True):
    """Who starts now, in this order, and for whom what is kept."""

    starts: tuple[Start, ...]
    reservation: Reservation | None = None


def decide(
    allocator: Allocator,
    waiting: Sequence[Waiting],
    ends: Mapping[int, float],
    now: float,
    *,
    backfill: bool = True,
    depth: int = DEPTH,
    rehearsed: int = REHEARSED,
) -> Decision:
    """Decide who starts.

    Args:
        allocator: the board; it is not changed.
        waiting: the queue, first come first.
        ends: when holders are expected to end, in the same seconds as ``now``; those missing may stay for ever.
        now: the time.
        backfill: whether others may pass the first.
        depth: how many are looked at.
        rehearsed: how many behind the first are played through to choose its place; 0 for none.
    """
    board = allocator.copy()
    expected = dict(ends)
    starts: list[Start] = []
    reservation: Reservation | None = None
    kept = 0
    for number, entry in enumerate(waiting):
        if reservation is None:
            placed = _first(board, waiting[number : number + rehearsed + 1], expected, now)
            if placed is None:
                if not backfill:
                    break
                reservation = reserve(board, entry, expected, now)
                if reservation is not None:
                    kept = board.layout.rectangle(reservation.placed.rectangle)
                    depth += number
                    continue
                continue  # it fits no board of this size: it must not hold up the others
        else:
            if number > depth:
                break
            in_time = entry.seconds is not None and reservation.at is not None and now + entry.seconds <= reservation.at
            later = foresee(board, expected, now, entry.seconds)
            placed = board.find(entry.request, avoid=0 if in_time else kept, later=later)
            if placed is None:
                continue
        board.hold(entry.key, placed.rectangle)
        if entry.seconds is not None:
            expected[entry.key] = now + entry.seconds
        starts.append(Start(entry.key, placed, reservation is not None))
    return Decision(tuple(starts), reservation)


def foresee(allocator: Allocator, ends: Mapping[int, float], now: float, seconds: float | None) -> tuple[int, ...]:
    """The cells that will have come free when a quarter, a half and three quarters of those held have ended.

    Times at which the request itself will have ended are left out.

    Args:
        allocator: the board.
        ends: when holders are expected to end.
        now: the time.
        seconds: how long the request stays; None where nobody knows, and then nothing is foreseen.
    """
    if seconds is None:
        return ()
    known = sorted((end, key) for key, end in ends.items() if key in allocator.held)
    masks = []
    mask = done = 0
    for quarter in (1, 2, 3):
        upto = len(known) * quarter // 4
        if upto == done or known[upto - 1][0] > now + seconds:
            break
        for _, key in known[done:upto]:
            mask |= allocator.layout.rectangle(allocator.held[key])
        done = upto
        masks.append(mask)
    return tuple(masks)


def _first(board: Allocator, queue: Sequence[Waiting], ends: Mapping[int, float], now: float) -> Placed | None:
    """The place for the first of a queue, with the others in mind."""
    entry = queue[0]
    if len(queue) == 1 or any(other.seconds is None for other in queue) or board.free & ~board.live:
        return board.find(entry.request, later=foresee(board, ends, now, entry.seconds))
    places = board.corners(entry.request)[:_PLACES]
    if len(places) < 2:
        return places[0] if places else None
    layout = board.layout
    events = [(ends[key], layout.rectangle(held)) for key, held in board.held.items() if key in ends]
    best: tuple[float, int] | None = None
    for number, placed in enumerate(places):
        mask = layout.rectangle(placed.rectangle)
        assert entry.seconds is not None
        coming = [*events, (now + entry.seconds, mask)]
        most = best[0] if best is not None else float("inf")
        waited = _rehearse(layout, board.free & ~mask, queue[1:], coming, now, most)
        if waited is not None and (best is None or waited < best[0]):
            best = (waited, number)
    return places[0 if best is None else best[1]]


def _rehearse(
    layout: Layout, free: int, queue: Sequence[Waiting], events: list[tuple[float, int]], now: float, most: float
) -> float | None:
    """How long a queue waits, each entry counted by its cores; None where that is more than ``most``."""
    heapq.heapify(events)
    time, waited = now, 0.0
    for entry in queue:
        mask = _touching_most(layout, free, entry.request)
        while mask is None and events:
            time, freed = heapq.heappop(events)
            free |= freed
            mask = _touching_most(layout, free, entry.request)
        if mask is None:
            continue  # it fits not even when all have gone; nobody's concern here
        free &= ~mask
        assert entry.seconds is not None
        heapq.heappush(events, (time + entry.seconds, mask))
        waited += (time - now) * entry.request.cores
        if waited >= most:
            return None
    return waited


def _touching_most(layout: Layout, free: int, request: CoreRequest) -> int | None:
    """The cells of the corner with the most contact; None where there is no place."""
    best: tuple[int, int] | None = None
    blocked = layout.everything & ~free
    shapes = {(request.width, request.height)}
    if request.rotation:
        shapes.add((request.height, request.width))
    for width, height in sorted(shapes):
        ring = layout.ring(width, height)
        for bit in bits(layout.corners(layout.places(free, width, height))):
            around = ring << (bit - layout.stride - 1)
            contact = 2 * (blocked & around).bit_count() + (layout.walls & around).bit_count()
            if best is None or contact > best[0]:
                best = (contact, layout.block(width, height) << bit)
    return None if best is None else best[1]


def reserve(allocator: Allocator, entry: Waiting, ends: Mapping[int, float], now: float) -> Reservation | None:
    """The rectangle that a request can have soonest; None where it fits not even the empty board."""
    board = allocator.copy()
    known = sorted((end, key) for key, end in ends.items() if key in board.held)
    for step, (end, key) in enumerate(known):
        board.release(key)
        together = step + 1 < len(known) and known[step + 1][0] == end
        if not together and (placed := board.find(entry.request)) is not None:
            return Reservation(entry.key, placed, max(now, end))
    return _least_occupied(board, entry)


def _least_occupied(board: Allocator, entry: Waiting) -> Reservation | None:
    """Without knowing when anybody ends: the place with the fewest cores taken."""
    request = entry.request
    shapes = {(request.width, request.height, False)}
    if request.rotation:
        shapes.add((request.height, request.width, request.width != request.height))
    best = min(_occupied(board, shapes, request.cores), default=None)
    if best is not None:
        taken, placed = best[0], best[-1]
        return Reservation(entry.key, placed, None if taken else 0.0)
    empty = board.copy()
    for key in list(empty.held):
        empty.release(key)
    placed_anywhere = empty.find(request)
    return None if placed_anywhere is None else Reservation(entry.key, placed_anywhere, None)


def _occupied(
    board: Allocator, shapes: Iterable[tuple[int, int, bool]], cores: int
) -> Iterable[tuple[int, int, int, int, Placed]]:
    """(cores taken, y, x, turned, place) of all places."""
    layout = board.layout
    busy = layout.cells & ~board.free
    for width, height, turned in shapes:
        block = layout.block(width, height)
        for bit in bits(board.suitable(width, height, cores)):
            x, y = layout.cell(bit)
            taken = ((busy >> bit) & block).bit_count()
            yield taken, y, x, int(turned), Placed(Rectangle(x, y, width, height), turned, width * height > cores)
