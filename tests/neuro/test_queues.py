"""First come first served; who passes the first never delays it."""

import random

from hcs.neuro.allocator import Allocator, CoreRequest
from hcs.neuro.grids import Rectangle, layout
from hcs.neuro.queues import Waiting, decide, foresee, reserve


def keys(starts: object) -> list[int]:
    return [start.key for start in starts]  # type: ignore[attr-defined]


def half_full() -> tuple[Allocator, dict[int, float]]:
    board = Allocator(layout(8, 8))
    board.hold(1, Rectangle(0, 0, 8, 4))
    return board, {1: 10.0}


def test_without_backfill_the_first_that_does_not_fit_stops_all() -> None:
    board, ends = half_full()
    queue = [Waiting(2, CoreRequest(8, 8), 5.0), Waiting(3, CoreRequest(1, 1), 1.0)]
    assert decide(board, queue, ends, 0.0, backfill=False).starts == ()


def test_a_short_one_passes_and_a_long_one_waits() -> None:
    board, ends = half_full()
    queue = [
        Waiting(2, CoreRequest(8, 8), 5.0),
        Waiting(3, CoreRequest(2, 2), 20.0),
        Waiting(4, CoreRequest(2, 2), 9.0),
    ]
    decision = decide(board, queue, ends, 0.0)
    assert keys(decision.starts) == [4]
    assert decision.starts[0].backfilled
    assert decision.reservation is not None
    assert decision.reservation.at == 10.0


def test_a_long_one_passes_where_it_keeps_off_the_reservation() -> None:
    board, ends = half_full()
    queue = [Waiting(2, CoreRequest(8, 5), 5.0), Waiting(3, CoreRequest(2, 2), 99.0)]
    decision = decide(board, queue, ends, 0.0)
    assert keys(decision.starts) == [3]
    assert decision.reservation is not None
    assert not decision.reservation.placed.rectangle.overlaps(decision.starts[0].placed.rectangle)


def test_without_estimates_the_reservation_is_kept_clear() -> None:
    board, _ = half_full()
    queue = [Waiting(2, CoreRequest(8, 5)), Waiting(3, CoreRequest(2, 2)), Waiting(4, CoreRequest(8, 2))]
    decision = decide(board, queue, {}, 0.0)
    assert decision.reservation is not None
    assert decision.reservation.at is None
    for start in decision.starts:
        assert not decision.reservation.placed.rectangle.overlaps(start.placed.rectangle)


def test_one_that_fits_no_board_does_not_hold_up_the_others() -> None:
    board, ends = half_full()
    decision = decide(board, [Waiting(2, CoreRequest(9, 9), 1.0), Waiting(3, CoreRequest(2, 2), 1.0)], ends, 0.0)
    assert keys(decision.starts) == [3]
    assert decision.reservation is None


def test_what_comes_free_is_foreseen_by_quarters() -> None:
    board = Allocator(layout(4, 4))
    ends = {}
    for key in range(4):
        board.hold(key, Rectangle(0, key, 4, 1))
        ends[key] = float(key + 1)
    grid = board.layout
    rows = [grid.rectangle(Rectangle(0, y, 4, 1)) for y in range(4)]
    assert foresee(board, ends, 0.0, 2.5) == (rows[0], rows[0] | rows[1])
    assert foresee(board, ends, 0.0, None) == ()


def test_nobody_delays_the_first() -> None:
    """Play random queues: the first starts no later than it would had nobody passed it."""
    for seed in range(12):
        source = random.Random(seed)
        board = Allocator(layout(10, 10))
        ends: dict[int, float] = {}
        for key in range(30):
            placed = board.find(CoreRequest(source.randint(1, 5), source.randint(1, 5)))
            if placed is None:
                break
            board.hold(key, placed.rectangle)
            ends[key] = source.uniform(1, 10)
        queue = [
            Waiting(100 + n, CoreRequest(source.randint(1, 8), source.randint(1, 8)), source.uniform(0.5, 12))
            for n in range(20)
        ]
        decision = decide(board, queue, ends, 0.0)
        if decision.reservation is None or decision.reservation.at is None:
            continue
        first = next(entry for entry in queue if entry.key == decision.reservation.key)
        after = board.copy()
        times = dict(ends)
        for start in decision.starts:
            after.hold(start.key, start.placed.rectangle)
            times[start.key] = next(e.seconds for e in queue if e.key == start.key) or 0.0
        again = reserve(after, first, times, 0.0)
        assert again is not None
        assert again.at is not None
        assert again.at <= decision.reservation.at
