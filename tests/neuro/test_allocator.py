"""Where rectangles go: always somewhere if there is room, over dead cores if need be, over dead routers never."""

import random

import pytest
from tests.neuro.boards import random_cells

from hcs.model.refusals import RefusedError
from hcs.neuro.allocator import Allocator, CoreRequest
from hcs.neuro.grids import Rectangle, bits, layout


def fits_somewhere(board: Allocator, width: int, height: int, cores: int) -> bool:
    """Every position of every size at least as large, by hand."""
    grid = board.layout
    free = set(grid.cells_of(board.free))
    live = set(grid.cells_of(board.live))
    for w in range(width, grid.width + 1):
        for h in range(height, grid.height + 1):
            for x in range(grid.width - w + 1):
                for y in range(grid.height - h + 1):
                    cells = set(Rectangle(x, y, w, h).cells())
                    if cells <= free and len(cells & live) >= cores:
                        return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_a_request_is_placed_exactly_if_some_free_rectangle_holds_it(seed: int) -> None:
    source = random.Random(seed)
    grid = layout(source.randint(1, 8), source.randint(1, 8))
    faulty = seed % 2
    board = Allocator(
        grid,
        dead_cores=random_cells(source, grid, 0.1) if faulty else (),
        dead_routers=random_cells(source, grid, 0.05) if faulty else (),
    )
    for key in range(12):
        request = CoreRequest(source.randint(1, 6), source.randint(1, 6), source.random() < 0.5)
        sizes = {(request.width, request.height)}
        if request.rotation:
            sizes.add((request.height, request.width))
        possible = any(fits_somewhere(board, w, h, request.cores) for w, h in sizes)
        placed = board.find(request)
        assert (placed is not None) == possible, (seed, key, request)
        if placed is not None:
            assert not grid.rectangle(placed.rectangle) & ~board.free
            assert board.live_in(placed.rectangle) >= request.cores
            assert placed.rectangle.width >= min(request.width, request.height)
            board.hold(key, placed.rectangle)
        elif board.held:
            board.release(source.choice(list(board.held)))


@pytest.mark.parametrize("seed", range(40))
def test_the_places_that_compete_are_the_corners_of_maximal_empty_rectangles(seed: int) -> None:
    source = random.Random(seed)
    grid = layout(source.randint(2, 10), source.randint(2, 10))
    board = Allocator(grid, dead_routers=random_cells(source, grid, 0.15))
    width, height = source.randint(1, 4), source.randint(1, 4)
    places = grid.places(board.free, width, height)
    corners = {grid.cell(bit) for bit in bits(grid.corners(places))}
    expected = {
        (x, y)
        for r in board.rectangles
        if r.width >= width and r.height >= height
        for x in (r.x, r.right - width)
        for y in (r.y, r.bottom - height)
    }
    stuck = {(x, y) for x, y in expected if places >> grid.bit(x, y) & 1}
    assert corners <= expected
    assert stuck == expected, "every corner of a rectangle that is large enough is a place"


def test_turning_must_be_allowed() -> None:
    board = Allocator(layout(6, 2))
    assert board.find(CoreRequest(2, 6, rotation=False)) is None
    placed = board.find(CoreRequest(2, 6))
    assert placed is not None
    assert placed.turned
    assert placed.rectangle == Rectangle(0, 0, 6, 2)


def test_a_rectangle_grows_over_dead_cores_and_never_over_dead_routers() -> None:
    dead = Allocator(layout(4, 3), dead_cores=[(1, 1)])
    placed = dead.find(CoreRequest(3, 3))
    assert placed is not None
    assert placed.grown
    assert placed.rectangle == Rectangle(0, 0, 4, 3)
    assert Allocator(layout(4, 3), dead_routers=[(1, 1)]).find(CoreRequest(3, 3)) is None


def test_a_job_nestles_in_a_corner() -> None:
    board = Allocator(layout(10, 10))
    placed = board.find(CoreRequest(3, 3))
    assert placed is not None
    assert placed.rectangle.x in (0, 7)
    assert placed.rectangle.y in (0, 7)


def test_an_exact_gap_is_filled_before_open_space_is_cut() -> None:
    board = Allocator(layout(12, 12))
    board.hold(1, Rectangle(0, 0, 4, 12))
    board.hold(2, Rectangle(4, 0, 8, 3))
    board.hold(3, Rectangle(7, 3, 5, 3))
    placed = board.find(CoreRequest(3, 3))
    assert placed is not None
    assert placed.rectangle == Rectangle(4, 3, 3, 3)


def test_what_is_released_is_free_and_nothing_else() -> None:
    board = Allocator(layout(5, 5), dead_routers=[(4, 4)])
    before = board.free
    board.hold(1, Rectangle(0, 0, 2, 2))
    board.hold(2, Rectangle(2, 2, 2, 2))
    assert board.release(1) == Rectangle(0, 0, 2, 2)
    board.release(2)
    assert board.free == before
    with pytest.raises(KeyError):
        board.release(2)


@pytest.mark.parametrize(
    "rectangle", [Rectangle(1, 1, 2, 2), Rectangle(4, 4, 2, 2), Rectangle(-1, 0, 1, 1), Rectangle(0, 0, 0, 1)]
)
def test_nobody_gets_what_is_not_free(rectangle: Rectangle) -> None:
    board = Allocator(layout(5, 5))
    board.hold(1, Rectangle(0, 0, 2, 2))
    before = board.free
    with pytest.raises(RefusedError):
        board.hold(2, rectangle)
    assert board.free == before


def test_faults_name_whom_they_hurt_and_stay_after_release() -> None:
    board = Allocator(layout(5, 5))
    board.hold(1, Rectangle(0, 0, 2, 2))
    board.hold(2, Rectangle(3, 3, 2, 2))
    assert board.fail(cores=[(1, 1)], routers=[(3, 3)]) == {1, 2}
    board.release(2)
    assert not board.free >> board.layout.bit(3, 3) & 1
    assert (
        board.find(CoreRequest(2, 2), avoid=board.layout.cells & ~board.layout.rectangle(Rectangle(3, 3, 2, 2))) is None
    )
    board.mend([(3, 3)])
    assert board.find(CoreRequest(2, 2), avoid=board.layout.cells & ~board.layout.rectangle(Rectangle(3, 3, 2, 2)))


def test_what_no_board_holds_says_what_would_fit() -> None:
    board = Allocator(layout(6, 4), dead_routers=[(5, 0)])
    with pytest.raises(RefusedError, match="largest rectangle that fits is 5x4"):
        board.check(CoreRequest(6, 4))
    with pytest.raises(RefusedError, match="at least one core a side"):
        board.check(CoreRequest(0, 4))


def test_the_same_history_gives_the_same_places() -> None:
    def story() -> list[Rectangle]:
        source, board = random.Random(3), Allocator(layout(16, 16))
        for key in range(40):
            placed = board.find(CoreRequest(source.randint(1, 6), source.randint(1, 6)))
            if placed is not None:
                board.hold(key, placed.rectangle)
            elif board.held:
                board.release(min(board.held))
        return list(board.held.values())

    assert story() == story()


def test_the_rectangles_shown_follow_what_happens() -> None:
    source, board = random.Random(5), Allocator(layout(9, 9), dead_routers=[(4, 4)])
    for key in range(60):
        placed = board.find(CoreRequest(source.randint(1, 4), source.randint(1, 4)))
        if placed is None:
            board.release(source.choice(list(board.held)))
        else:
            board.hold(key, placed.rectangle)
        fresh = Allocator(board.layout, dead_routers=[(4, 4)])
        for held, rectangle in board.held.items():
            fresh.hold(held, rectangle)
        assert board.rectangles == fresh.rectangles
