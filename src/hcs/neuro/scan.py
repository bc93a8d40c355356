"""All maximal empty rectangles of a grid by the histogram scan: simple, exact, and the measure of the fast way.

A maximal empty rectangle (MER) is a free rectangle that no other free rectangle contains. Row by row, every column has
a bar: how many cells up from here are free. A bar that ends, because the next one is lower, was as wide as it could be
at its height: it is maximal to the left, to the right and upwards, and a MER if the row below is not free all along it.
O(width x height) time. The method is old; see Bazargan, Kastner, Sarrafzadeh (2000) for MERs in chip area allocation.
"""

from collections.abc import Sequence

from hcs.neuro.grids import Rectangle


def maximal_rectangles(rows: Sequence[int], width: int, *, x: int = 0, y: int = 0) -> set[Rectangle]:
    """Find all maximal empty rectangles.

    Args:
        rows: for each row the set of its free cells, bit i for column i.
        width: number of columns.
        x: added to every column of the answer.
        y: added to every row of the answer.
    """
    found: set[Rectangle] = set()
    heights = [0] * width
    last = len(rows) - 1
    for number, row in enumerate(rows):
        below = rows[number + 1] if number < last else 0
        stack: list[tuple[int, int]] = []  # (column where the bar begins, its height), heights ascending
        for column in range(width + 1):
            height = 0
            if column < width:
                height = heights[column] + 1 if row >> column & 1 else 0
                heights[column] = height
            begin = column
            while stack and stack[-1][1] > height:
                begin, bar = stack.pop()
                span = ((1 << (column - begin)) - 1) << begin
                if below & span != span:
                    found.add(Rectangle(x + begin, y + number - bar + 1, column - begin, bar))
            if height and (not stack or stack[-1][1] < height):
                stack.append((begin, height))
    return found
