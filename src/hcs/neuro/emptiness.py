"""The set of maximal empty rectangles, kept in step with what is taken and given back.

Taking cuts: every rectangle that meets the taken one is replaced by its up to four remains, and remains inside others
are dropped (KAMER, Bazargan and others 2000). Giving back looks again only within the box of rows and columns that free
cells join to the freed rectangle; any rectangle that gained a cell lies in that box. Both give exactly what the
histogram scan of the whole grid would, which the tests check at every step.
"""

from hcs.neuro.grids import Layout, Rectangle
from hcs.neuro.scan import maximal_rectangles


class Emptiness:
    """The maximal empty rectangles of a grid."""

    def __init__(self, layout: Layout, free: int) -> None:
        """Scan the whole grid once.

        Args:
            layout: how ``free`` is written.
            free: the cells that can be in a rectangle.
        """
        self._layout = layout
        self._free = free
        self.rectangles: set[Rectangle] = maximal_rectangles(layout.rows(free), layout.width)

    @property
    def free(self) -> int:
        """The free cells."""
        return self._free

    def copy(self) -> "Emptiness":
        """An independent copy."""
        twin = object.__new__(Emptiness)
        twin._layout, twin._free, twin.rectangles = self._layout, self._free, set(self.rectangles)
        return twin

    def take(self, taken: Rectangle) -> None:
        """Note that the cells of a free rectangle are free no longer."""
        self._free &= ~self._layout.rectangle(taken)
        cut = [rectangle for rectangle in self.rectangles if rectangle.overlaps(taken)]
        self.rectangles.difference_update(cut)
        # A remain can only be inside another remain of the same side, or inside a rectangle that was not cut.
        remains = {remain for rectangle in cut for remain in _remains(rectangle, taken)}
        near = [r for r in self.rectangles if _touches(r, taken)]
        self.rectangles.update(
            remain
            for remain in remains
            if not any(other.contains(remain) for other in near)
            and not any(other != remain and other.contains(remain) for other in remains)
        )

    def give_back(self, freed: Rectangle) -> None:
        """Note that the cells of a rectangle, taken before, are free again."""
        layout = self._layout
        self._free |= layout.rectangle(freed)
        box = self._reach(freed)
        line = (1 << box.width) - 1
        rows = [(self._free >> layout.bit(box.x, y)) & line for y in range(box.y, box.bottom)]
        inside = maximal_rectangles(rows, box.width, x=box.x, y=box.y)
        new = [rectangle for rectangle in inside if rectangle.overlaps(freed)]
        self.rectangles = {
            rectangle for rectangle in self.rectangles if not any(larger.contains(rectangle) for larger in new)
        }
        self.rectangles.update(new)

    def _reach(self, freed: Rectangle) -> Rectangle:
        """The box that holds every free rectangle with a cell in the freed one."""
        free, layout = self._free, self._layout
        left, right, top, bottom = freed.x, freed.right, freed.y, freed.bottom
        column = layout.block(1, freed.height)
        while left and free & (edge := _free_rows(free, layout, left - 1, freed, column)):
            left -= 1
            column = edge >> layout.bit(left, freed.y)
        column = layout.block(1, freed.height)
        while right < layout.width and free & (edge := _free_rows(free, layout, right, freed, column)):
            column = edge >> layout.bit(right, freed.y)
            right += 1
        line = layout.block(freed.width, 1)
        above = line
        while top and (above := (free >> layout.bit(freed.x, top - 1)) & above):
            top -= 1
        below = line
        while bottom < layout.height and (below := (free >> layout.bit(freed.x, bottom)) & below):
            bottom += 1
        return Rectangle(left, top, right - left, bottom - top)


def _free_rows(free: int, layout: Layout, x: int, freed: Rectangle, column: int) -> int:
    """Cells of a column that are free, in those rows of the freed rectangle that were free all the way to it."""
    return free & (column << layout.bit(x, freed.y))


def _touches(rectangle: Rectangle, taken: Rectangle) -> bool:
    return (
        rectangle.x <= taken.right
        and taken.x <= rectangle.right
        and rectangle.y <= taken.bottom
        and taken.y <= rectangle.bottom
    )


def _remains(rectangle: Rectangle, taken: Rectangle) -> list[Rectangle]:
    """What is left of a rectangle around a taken one: up to four maximal pieces."""
    remains = []
    if rectangle.x < taken.x:
        remains.append(Rectangle(rectangle.x, rectangle.y, taken.x - rectangle.x, rectangle.height))
    if taken.right < rectangle.right:
        remains.append(Rectangle(taken.right, rectangle.y, rectangle.right - taken.right, rectangle.height))
    if rectangle.y < taken.y:
        remains.append(Rectangle(rectangle.x, rectangle.y, rectangle.width, taken.y - rectangle.y))
    if taken.bottom < rectangle.bottom:
        remains.append(Rectangle(rectangle.x, taken.bottom, rectangle.width, rectangle.bottom - taken.bottom))
    return remains
