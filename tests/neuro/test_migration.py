"""Plans make room, move no more than they may, and can be carried out step by step."""

import random

import pytest

from hcs.neuro.allocator import Allocator, CoreRequest
from hcs.neuro.grids import Rectangle, layout
from hcs.neuro.migration import MigrationLimits, plan_migration


def split() -> tuple[Allocator, dict[int, CoreRequest]]:
    """A job in the middle keeps two halves apart."""
    board = Allocator(layout(8, 4))
    board.hold(1, Rectangle(3, 0, 2, 4))
    return board, {1: CoreRequest(2, 4)}


def test_moving_one_joins_two_halves() -> None:
    board, movable = split()
    assert board.find(CoreRequest(6, 4)) is None
    plan = plan_migration(board, CoreRequest(6, 4), movable)
    assert plan is not None
    assert len(plan.moves) == 1
    assert plan.cost == 8
    assert board.held == {1: Rectangle(3, 0, 2, 4)}, "a plan changes nothing"


@pytest.mark.parametrize(
    ("limits", "movable"),
    [
        pytest.param(MigrationLimits(moves=0), {1: CoreRequest(2, 4)}, id="no-moves"),
        pytest.param(MigrationLimits(cost_pct=10), {1: CoreRequest(2, 4)}, id="too-dear"),
        pytest.param(MigrationLimits(), {}, id="nobody-may-be-moved"),
    ],
)
def test_limits_hold(limits: MigrationLimits, movable: dict[int, CoreRequest]) -> None:
    board, _ = split()
    assert plan_migration(board, CoreRequest(6, 4), movable, limits) is None


def test_what_does_not_fit_by_count_needs_no_plan() -> None:
    board, movable = split()
    assert plan_migration(board, CoreRequest(7, 4), movable) is None


@pytest.mark.parametrize("seed", range(25))
def test_every_plan_can_be_carried_out(seed: int) -> None:
    source = random.Random(seed)
    grid = layout(12, 12)
    board = Allocator(grid, dead_cores=[(source.randrange(12), source.randrange(12)) for _ in range(seed % 4)])
    asked = {}
    for key in range(200):
        request = CoreRequest(source.randint(1, 6), source.randint(1, 6))
        placed = board.find(request)
        if placed is None:
            plan = plan_migration(board, request, asked)
            if plan is not None:
                assert plan.cost <= request.cores * 2
                assert len(plan.moves) <= 3
                assert plan.generation == board.generation
                for move in plan.moves:
                    assert board.release(move.holder) == move.source
                    board.hold(move.holder, move.target.rectangle)
                    assert board.live_in(move.target.rectangle) >= asked[move.holder].cores
                placed = plan.placed
        if placed is None:
            gone = source.choice(list(board.held))
            board.release(gone)
            del asked[gone]
            continue
        board.hold(key, placed.rectangle)
        asked[key] = request
        assert board.live_in(placed.rectangle) >= request.cores
