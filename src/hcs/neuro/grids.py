"""Rectangles of cores, and a whole grid of cores as one integer.

A set of cells is a Python integer with one bit a cell. Shifting the integer moves all cells at once, so that "every
place where a w x h rectangle fits" takes a few shifts, whatever is on the board. A border of one cell on every side
keeps shifted rows apart and stands for the wall.

Coordinates are (x, y) with (0, 0) in a corner; x counts columns, y rows.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

MAX_SIDE: Final = 1024
"""Cells along one side of a grid; more is a typing mistake."""

Cell = tuple[int, int]


class Rectangle(msgspec.Struct, frozen=True, order=True):
    """A rectangle of cells: the cell nearest to (0, 0), and the number of columns and rows."""

    x: int
    y: int
    width: int
    height: int

    @property
    def area(self) -> int:
        """Number of cells."""
        return self.width * self.height

    @property
    def right(self) -> int:
        """The first column beyond it."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """The first row beyond it."""
        return self.y + self.height

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is inside."""
        return self.x <= cell[0] < self.right and self.y <= cell[1] < self.bottom

    def contains(self, other: "Rectangle") -> bool:
        """Whether no cell of the other is outside."""
        return self.x <= other.x and self.y <= other.y and other.right <= self.right and other.bottom <= self.bottom

    def overlaps(self, other: "Rectangle") -> bool:
        """Whether they share a cell."""
        return self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom

    def cells(self) -> Iterator[Cell]:
        """All cells, row by row."""
        return ((x, y) for y in range(self.y, self.bottom) for x in range(self.x, self.right))

    def __str__(self) -> str:
        return f"{self.width}x{self.height} at ({self.x},{self.y})"


class Layout:
    """The way a grid of ``width`` x ``height`` cells is written into an integer. Immutable; see :func:`layout`."""

    def __init__(self, width: int, height: int) -> None:
        """Prepare.

        Raises:
            ValueError: a side is not between 1 and :data:`MAX_SIDE`.
        """
        if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
            raise ValueError(f"a grid has sides from 1 to {MAX_SIDE}, not {width}x{height}")
        self.width, self.height = width, height
        self.stride = width + 2
        self._blocks: dict[tuple[int, int], int] = {}
        self._rings: dict[tuple[int, int], int] = {}
        self.everything = (1 << (self.stride * (height + 2))) - 1
        self.cells = self.rectangle(Rectangle(0, 0, width, height))
        self.walls = self.everything & ~self.cells

    def bit(self, x: int, y: int) -> int:
        """The number of a cell's bit."""
        return (y + 1) * self.stride + x + 1

    def cell(self, bit: int) -> Cell:
        """The cell of a bit's number."""
        row, column = divmod(bit, self.stride)
        return column - 1, row - 1

    def has(self, cell: Cell) -> bool:
        """Whether the cell is on the grid."""
        return 0 <= cell[0] < self.width and 0 <= cell[1] < self.height

    def fits(self, rectangle: Rectangle) -> bool:
        """Whether all of a rectangle, with sides of at least 1, is on the grid."""
        return (
            min(rectangle.x, rectangle.y) >= 0
            and min(rectangle.width, rectangle.height) >= 1
            and rectangle.right <= self.width
            and rectangle.bottom <= self.height
        )

    def of(self, cells: Iterable[Cell]) -> int:
        """The set of these cells."""
        found = 0
        for x, y in cells:
            found |= 1 << self.bit(x, y)
        return found

    def cells_of(self, mask: int) -> Iterator[Cell]:
        """The cells of a set, row by row."""
        return (self.cell(bit) for bit in bits(mask))

    def rectangle(self, rectangle: Rectangle) -> int:
        """The set of a rectangle's cells."""
        return self.block(rectangle.width, rectangle.height) << self.bit(rectangle.x, rectangle.y)

    def block(self, width: int, height: int) -> int:
        """The cells of a rectangle whose first cell is bit 0."""
        found = self._blocks.get((width, height))
        if found is None:
            found = self._blocks[width, height] = self._repeat((1 << width) - 1, height)
        return found

    def ring(self, width: int, height: int) -> int:
        """The cells that touch a rectangle's sides; the rectangle's first cell is the bit ``stride + 1``."""
        found = self._rings.get((width, height))
        if found is None:
            line = ((1 << width) - 1) << 1
            sides = (1 | (1 << (width + 1))) << self.stride
            found = line | (line << (self.stride * (height + 1))) | self._repeat(sides, height)
            self._rings[width, height] = found
        return found

    def places(self, free: int, width: int, height: int) -> int:
        """First cells of all rectangles of this size inside ``free``."""
        have = 1
        while have < width and free:
            step = min(have, width - have)
            free &= free >> step
            have += step
        have = 1
        while have < height and free:
            step = min(have, height - have)
            free &= free >> (step * self.stride)
            have += step
        return free

    def corners(self, places: int) -> int:
        """Those of the places that can be moved neither to one side nor to the other, up nor down: stuck in a corner.

        Exactly the places in the corners of maximal empty rectangles: one that is stuck to the left and above, grown to
        the right and then down as far as it goes, is such a rectangle, for what blocks it left and above still does.
        """
        stride = self.stride
        sideways = ~(places << 1) | ~(places >> 1)
        lengthways = ~(places << stride) | ~(places >> stride)
        return places & sideways & lengthways

    def rows(self, mask: int) -> list[int]:
        """A set row by row; bit x of row y is the cell (x, y)."""
        line = (1 << self.width) - 1
        return [(mask >> self.bit(0, y)) & line for y in range(self.height)]

    def _repeat(self, line: int, times: int) -> int:
        found = 0
        for row in range(times):
            found |= line << (row * self.stride)
        return found


@lru_cache(maxsize=64)
def layout(width: int, height: int) -> Layout:
    """The layout of a size; the same object for the same size.

    Raises:
        ValueError: see :class:`Layout`.
    """
    return Layout(width, height)


def bits(mask: int) -> Iterator[int]:
    """Numbers of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
