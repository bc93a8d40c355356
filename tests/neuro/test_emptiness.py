"""The rectangles kept in step are those of a scan of the whole grid, after every single change."""

import random

import pytest

from hcs.neuro.emptiness import Emptiness
from hcs.neuro.grids import Rectangle, layout
from hcs.neuro.scan import maximal_rectangles


def churn(width: int, height: int, largest: int, steps: int, seed: int, every: int = 1) -> None:
    source = random.Random(seed)
    grid = layout(width, height)
    holes = grid.of((source.randrange(width), source.randrange(height)) for _ in range(source.randint(0, 3)))
    kept = Emptiness(grid, grid.cells & ~holes)
    held: list[Rectangle] = []
    for step in range(steps):
        if held and source.random() < 0.5:
            kept.give_back(held.pop(source.randrange(len(held))))
        else:
            w, h = source.randint(1, min(largest, width)), source.randint(1, min(largest, height))
            taken = Rectangle(source.randint(0, width - w), source.randint(0, height - h), w, h)
            if grid.rectangle(taken) & ~kept.free:
                continue
            kept.take(taken)
            held.append(taken)
        if step % every == 0:
            assert kept.rectangles == maximal_rectangles(grid.rows(kept.free), width), step


@pytest.mark.parametrize("seed", range(30))
def test_after_every_change_on_small_grids(seed: int) -> None:
    source = random.Random(seed)
    churn(source.randint(1, 12), source.randint(1, 12), 5, 80, seed)


def test_on_a_large_grid() -> None:
    churn(48, 48, 12, 600, 7, every=10)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_on_many_grids() -> None:
    for seed in range(3_000):
        source = random.Random(seed)
        churn(source.randint(1, 14), source.randint(1, 14), 6, 150, seed)
