"""Small boards, packages and brute-force answers for the tests of the neuromorphic core."""

import random
from typing import Any

import msgspec

from hcs.neuro.boards import BoardState
from hcs.neuro.grids import Cell, Layout, Rectangle, layout
from hcs.neuro.models import custom
from hcs.neuro.packages import Package, read_package


def brute_force(rows: list[int], width: int) -> set[Rectangle]:
    """Maximal empty rectangles by trying every interval of rows and every run of columns free in all of them."""
    found = set()
    for top in range(len(rows)):
        common = (1 << width) - 1
        for bottom in range(top, len(rows)):
            common &= rows[bottom]
            column = 0
            while column < width:
                if not common >> column & 1:
                    column += 1
                    continue
                begin = column
                while column < width and common >> column & 1:
                    column += 1
                run = ((1 << (column - begin)) - 1) << begin
                up = top > 0 and rows[top - 1] & run == run
                down = bottom + 1 < len(rows) and rows[bottom + 1] & run == run
                if not up and not down:
                    found.add(Rectangle(begin, top, column - begin, bottom - top + 1))
    return found


def random_cells(source: random.Random, grid: Layout, share: float) -> set[Cell]:
    return {(x, y) for y in range(grid.height) for x in range(grid.width) if source.random() < share}


def random_grid(source: random.Random, most: int = 12) -> tuple[Layout, int]:
    grid = layout(source.randint(1, most), source.randint(1, most))
    return grid, grid.of(random_cells(source, grid, source.random()))


def board(id: str = "b0", width: int = 8, height: int = 8, **changes: Any) -> BoardState:
    faults = {key: changes.pop(key) for key in ("dead_cores", "dead_routers", "numa") if key in changes}
    return BoardState(id=id, model=msgspec.structs.replace(custom(width, height), **changes), **faults)


def package(name: str = "app", **models: Any) -> Package:
    """A package; each model is given as (cores, more fields)."""
    made = []
    for title, (cores, more) in (models or {"small": (4, {})}).items():
        made.append({"name": title, "cores": [{"neurons": 4} for _ in range(cores)], **more})
    return read_package({"name": name, "version": "1", "models": made})
