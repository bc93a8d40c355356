"""Maximal empty rectangles equal those found by brute force, on whatever board."""

import random

import pytest
from tests.neuro.boards import brute_force, random_grid

from hcs.neuro.grids import Rectangle, layout
from hcs.neuro.scan import maximal_rectangles


def check(count: int, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(count):
        grid, free = random_grid(source)
        rows = grid.rows(free)
        assert maximal_rectangles(rows, grid.width) == brute_force(rows, grid.width), (grid.width, rows)


def test_the_rectangles_of_random_boards_are_those_of_brute_force() -> None:
    check(2_000, 1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_rectangles_of_100_000_random_boards_are_those_of_brute_force() -> None:
    check(100_000, 2)


def test_an_empty_board_is_one_rectangle_and_a_full_one_none() -> None:
    assert maximal_rectangles([0b111, 0b111], 3) == {Rectangle(0, 0, 3, 2)}
    assert maximal_rectangles([0, 0], 3) == set()


def test_a_hole_in_the_middle_leaves_four() -> None:
    grid = layout(3, 3)
    free = grid.cells & ~grid.of([(1, 1)])
    assert maximal_rectangles(grid.rows(free), 3) == {
        Rectangle(0, 0, 3, 1),
        Rectangle(0, 2, 3, 1),
        Rectangle(0, 0, 1, 3),
        Rectangle(2, 0, 1, 3),
    }
