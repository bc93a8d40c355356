"""How packets get from core to core and from the host to a core: legs, joined at relay points.

A packet names how far it goes on each axis, and the header holds only so many hops (Darwin3: 15). A longer way is
made of *legs*; where one ends and the next begins, a *relay point* sends the packet again. Routers go along x first,
then along y, and only live routers pass anything on.

Within a rectangle no route ever leaves it: a leg from one of its cells to another stays inside the box of the two.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.grids import Cell, Layout, Rectangle


class Route(msgspec.Struct, frozen=True):
    """A way: from its first point to its last; those between are relay points."""

    points: tuple[Cell, ...]

    @property
    def relays(self) -> tuple[Cell, ...]:
        """Where packets are sent again."""
        return self.points[1:-1]

    @property
    def legs(self) -> tuple[tuple[Cell, Cell], ...]:
        """Pairs of neighbouring points."""
        return tuple(zip(self.points, self.points[1:], strict=False))

    @property
    def hops(self) -> int:
        """Routers entered after the first."""
        return sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in self.legs)

    def cells(self) -> list[Cell]:
        """Every router on the way, in order."""
        found = [self.points[0]]
        for a, b in self.legs:
            found.extend(leg_cells(a, b)[1:])
        return found


def leg_cells(source: Cell, target: Cell) -> list[Cell]:
    """The routers of one leg: along x first, then along y, both ends included."""
    (x, y), (to_x, to_y) = source, target
    step_x, step_y = (1 if to_x >= x else -1), (1 if to_y >= y else -1)
    along = [(i, y) for i in range(x, to_x + step_x, step_x)]
    return along + [(to_x, j) for j in range(y + step_y, to_y + step_y, step_y)] if to_y != y else along


def find_route(
    layout: Layout,
    source: Cell,
    target: Cell,
    *,
    allowed: int,
    hop_limit: int = 0,
    relays_left: Mapping[Cell, int] | Callable[[Cell], int] | None = None,
) -> Route:
    """Find a way of few legs.

    The direct way is tried first; where faults or used-up relay points bar it, the shortest way around them.

    Args:
        layout: the grid.
        source: where it begins.
        target: where it ends.
        allowed: the routers that may be used.
        hop_limit: the most hops of a leg on each axis; 0 for no limit.
        relays_left: how many paths each router can still send again; None for no limit.

    Raises:
        RefusedError: there is no way, or none with relay points left.
    """
    left = _left(relays_left)
    for cell in (source, target):
        if not layout.has(cell) or not allowed >> layout.bit(*cell) & 1:
            raise RefusedError(
                Refusal("NoRoute", f"core ({cell[0]},{cell[1]}) has no live router here; choose another core")
            )
    if source == target:
        return Route((source, target))
    straight = leg_cells(source, target)
    turned = leg_cells(target, source)[::-1]
    found_path = False
    for path in (straight, turned, *(_around(layout, source, target, allowed, left, spare) for spare in (False, True))):
        if path is None or any(not allowed >> layout.bit(*cell) & 1 for cell in path):
            continue
        found_path = True
        points = _join(layout, path, allowed, hop_limit, left)
        if points is not None:
            return Route(points)
    if found_path:
        raise RefusedError(
            Refusal(
                "RelaysExhausted",
                f"every way from ({source[0]},{source[1]}) to ({target[0]},{target[1]}) needs a relay point, and those "
                f"on it send as many paths again as they can; a leg has at most {hop_limit} hops an axis",
            )
        )
    raise RefusedError(
        Refusal(
            "NoRoute",
            f"dead routers cut ({source[0]},{source[1]}) off from ({target[0]},{target[1]}); use other cores",
        )
    )


def _left(relays: Mapping[Cell, int] | Callable[[Cell], int] | None) -> Callable[[Cell], int]:
    if relays is None:
        return lambda cell: 1
    if callable(relays):
        return relays
    return lambda cell: relays.get(cell, 0)


def _join(
    layout: Layout, path: Sequence[Cell], allowed: int, hop_limit: int, left: Callable[[Cell], int]
) -> tuple[Cell, ...] | None:
    """The fewest points of a path such that each leg is within the limit and goes over allowed routers only."""
    count = len(path)
    # legs[i]: fewest legs to reach path[i], which then must be able to send again (or be the end)
    legs: list[int | None] = [0] + [None] * (count - 1)
    came: list[int] = [0] * count
    for end in range(1, count):
        if end < count - 1 and left(path[end]) < 1:
            continue
        for begin in range(end):
            before = legs[begin]
            if before is None:
                continue
            (x, y), (to_x, to_y) = path[begin], path[end]
            if hop_limit and (abs(x - to_x) > hop_limit or abs(y - to_y) > hop_limit):
                continue
            known = legs[end]
            if known is not None and known <= before + 1:
                break  # earlier points reach it with as few
            if any(not allowed >> layout.bit(*cell) & 1 for cell in leg_cells(path[begin], path[end])):
                continue
            legs[end], came[end] = before + 1, begin
    if legs[-1] is None:
        return None
    points = [count - 1]
    while points[-1]:
        points.append(came[points[-1]])
    return tuple(path[i] for i in reversed(points))


def _around(
    layout: Layout, source: Cell, target: Cell, allowed: int, left: Callable[[Cell], int], spare: bool
) -> list[Cell] | None:
    """The shortest way over allowed routers; with ``spare`` only over those that can still send something again."""
    came: dict[Cell, Cell] = {source: source}
    queue = deque([source])
    while queue:
        cell = queue.popleft()
        if cell == target:
            path = [cell]
            while path[-1] != source:
                path.append(came[path[-1]])
            return path[::-1]
        x, y = cell
        for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if near in came or not layout.has(near) or not allowed >> layout.bit(*near) & 1:
                continue
            if spare and near != target and left(near) < 1:
                continue
            came[near] = cell
            queue.append(near)
    return None


def inner_route(
    layout: Layout,
    rectangle: Rectangle,
    source: Cell,
    target: Cell,
    *,
    broken: int = 0,
    hop_limit: int = 0,
    relays_left: Mapping[Cell, int] | Callable[[Cell], int] | None = None,
) -> Route:
    """A route between two cores of a rectangle that stays inside it.

    Raises:
        RefusedError: see :func:`find_route`.
    """
    return find_route(
        layout,
        source,
        target,
        allowed=layout.rectangle(rectangle) & ~broken,
        hop_limit=hop_limit,
        relays_left=relays_left,
    )
