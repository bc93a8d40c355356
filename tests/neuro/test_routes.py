"""Ways between cores: legs within the hop limit, joined at relay points, inside their rectangle, around faults."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.neuro.boards import random_cells

from hcs.model.refusals import RefusedError
from hcs.neuro.grids import Rectangle, layout
from hcs.neuro.routes import Route, find_route, inner_route, leg_cells


def check(route: Route, allowed: int, grid_width: int, grid_height: int, hop_limit: int) -> None:
    grid = layout(grid_width, grid_height)
    for (x, y), (to_x, to_y) in route.legs:
        assert not hop_limit or max(abs(x - to_x), abs(y - to_y)) <= hop_limit
    for cell in route.cells():
        assert allowed >> grid.bit(*cell) & 1, "only live routers of the area"


@given(st.data())
def test_routes_between_cores_of_a_rectangle_stay_inside_it(data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    rectangle = Rectangle(x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y)))
    cells = st.tuples(st.integers(rectangle.x, rectangle.right - 1), st.integers(rectangle.y, rectangle.bottom - 1))
    source, target, limit = data.draw(cells), data.draw(cells), data.draw(st.integers(1, 16))
    route = inner_route(layout(width, height), rectangle, source, target, hop_limit=limit)
    assert (route.points[0], route.points[-1]) == (source, target)
    assert all(rectangle.holds(cell) for cell in route.cells())
    check(route, layout(width, height).cells, width, height, limit)
    distance = max(abs(source[0] - target[0]), abs(source[1] - target[1]))
    assert len(route.relays) <= max(0, -(-(abs(source[0] - target[0]) + abs(source[1] - target[1])) // limit) - 1)
    assert len(route.legs) >= max(1, -(-distance // limit))


def test_the_darwin3_chip_needs_one_relay_from_corner_to_corner() -> None:
    grid = layout(24, 24)
    route = find_route(grid, (0, 0), (15, 15), allowed=grid.cells, hop_limit=15)
    assert route.relays == ()
    route = find_route(grid, (0, 0), (23, 0), allowed=grid.cells, hop_limit=15)
    assert len(route.relays) == 1


@pytest.mark.parametrize("seed", range(40))
def test_a_way_is_found_exactly_if_live_routers_join_the_two(seed: int) -> None:
    source = random.Random(seed)
    grid = layout(source.randint(2, 10), source.randint(2, 10))
    allowed = grid.cells & ~grid.of(random_cells(source, grid, 0.35))
    cells = list(grid.cells_of(allowed))
    if len(cells) < 2:
        return
    begin, end = source.sample(cells, 2)
    reached, edge = {begin}, [begin]
    while edge:
        x, y = edge.pop()
        for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if near not in reached and grid.has(near) and allowed >> grid.bit(*near) & 1:
                reached.add(near)
                edge.append(near)
    limit = source.choice([0, 1, 2, 15])
    if end in reached:
        check(find_route(grid, begin, end, allowed=allowed, hop_limit=limit), allowed, grid.width, grid.height, limit)
    else:
        with pytest.raises(RefusedError, match="cut"):
            find_route(grid, begin, end, allowed=allowed, hop_limit=limit)


def test_used_up_relay_points_are_gone_around() -> None:
    grid = layout(9, 3)
    left = {(x, y): 1 for x in range(9) for y in range(3)}
    for x in range(1, 8):
        left[x, 0] = 0
    route = find_route(grid, (0, 0), (8, 0), allowed=grid.cells, hop_limit=4, relays_left=left)
    assert all(left[cell] for cell in route.relays)


def test_no_relay_left_is_said_so() -> None:
    grid = layout(9, 1)
    with pytest.raises(RefusedError, match="relay point"):
        find_route(grid, (0, 0), (8, 0), allowed=grid.cells, hop_limit=4, relays_left={})


def test_a_leg_goes_along_x_first() -> None:
    assert leg_cells((2, 2), (0, 1)) == [(2, 2), (1, 2), (0, 2), (0, 1)]
    assert leg_cells((1, 1), (1, 1)) == [(1, 1)]
