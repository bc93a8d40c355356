"""Boards as their node's plugin reports them, and the rectangles that the router chooses on them.

The plugin and the router run the same allocator; all that travels is which cores are busy or dead. The report is a
little older than the board, so the router adds what it has itself given away since, and the plugin has the last word
when the container starts. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from hcs.model.allocations import Allocation, CoreGrant
from hcs.model.devices import SpikingBoard
from hcs.model.pods import Pod
from hcs.neuro.allocator import Allocator
from hcs.neuro.capacities import DOMAIN
from hcs.neuro.grids import Cell, Layout, Rectangle, layout
from hcs.neuro.pods import read_spiking
from hcs.neuro.scheduling import ANYWHERE, NodeWish, choose_rectangle
from hcs.neuro.sites import Site

MAX_CELLS: Final = 65_536
"""A larger board is not reported: its masks would not fit the field. Its rectangles are chosen by its plugin."""


class CoreNeed(msgspec.Struct, frozen=True):
    """``ids`` of the cores resource of a module (empty: the plain one) that a container asks for."""

    container: str
    resource: str
    module: str
    ids: int


def report(site: Site, *, unit: int) -> SpikingBoard | None:
    """What a plugin tells about a board; None of one that is too large.

    Args:
        site: the board with its books.
        unit: how many cores one id stands for.
    """
    model = site.board.model
    if model.width * model.height > MAX_CELLS:
        return None
    grid = model.layout
    held = 0
    for rectangle in site.cores.held.values():
        held |= grid.rectangle(rectangle)
    return SpikingBoard(
        id=site.board.id,
        width=model.width,
        height=model.height,
        module=model.module,
        unit=unit,
        numa=site.board.numa,
        ksps=site.capacity.ksps,
        busy=_packed(grid, held),
        dead_cores=_packed(grid, grid.of((*site.board.dead_cores, *model.controllers))),
        dead_routers=_packed(grid, grid.of(site.board.dead_routers)),
    )


def core_needs(pod: Pod, *, domain: str = DOMAIN) -> tuple[CoreNeed, ...]:
    """The rectangles a pod's main containers ask for; init containers reuse theirs.

    Raises:
        RefusedError: it asks wrongly; see :func:`hcs.neuro.pods.read_spiking`.
    """
    init = {container.name for container in pod.spec.initContainers or ()}
    return tuple(
        CoreNeed(
            one.container, f"{domain}/cores" + (f"-{one.module}" if one.module else ""), one.module, one.units.cores
        )
        for one in read_spiking(pod, domain=domain)
        if one.units.cores and one.container not in init
    )


def rectangle_of(grant: CoreGrant) -> Rectangle:
    """The rectangle of a grant."""
    return Rectangle(grant.x, grant.y, grant.width, grant.height)


def choose_cores(
    needs: Sequence[CoreNeed],
    boards: Iterable[SpikingBoard],
    *,
    held: Iterable[Allocation] = (),
    gone: Iterable[Allocation] = (),
    wish: NodeWish = ANYWHERE,
) -> Mapping[str, tuple[CoreGrant, ...]] | None:
    """Choose a rectangle for each need on one node; None where some need has no place.

    A need on whose module no board is reported is left to the plugin. One need is placed if and only if some free
    rectangle holds it; several are placed one after the other, the largest first.

    Args:
        needs: what the containers of one pod ask for.
        boards: the node's.
        held: what is given away on this node, reported already or not.
        gone: whose cores are to count as free although they are reported busy.
        wish: which boards come first: those near the source, or the largest, otherwise the fullest.
    """
    known = [board for board in boards if max(board.width, board.height) >= 1]
    taken = {board.id: _mask(_grid(board), board.busy) for board in known}
    for allocations, add in ((gone, False), (held, True)):
        for id, rectangle in _rectangles(allocations):
            found = next((one for one in known if one.id == id), None)
            if found is not None and _grid(found).fits(rectangle):
                cells = _grid(found).rectangle(rectangle)
                taken[id] = taken[id] | cells if add else taken[id] & ~cells
    chosen: dict[str, tuple[CoreGrant, ...]] = {}
    used: set[str] = set()
    for need in sorted(needs, key=lambda one: (-one.ids, one.container, one.resource)):
        able = [board for board in known if board.module == need.module]
        if not able:
            continue

        def order(board: SpikingBoard) -> tuple[object, ...]:
            free = board.width * board.height - taken[board.id].bit_count()
            far = wish.numa is not None and board.numa != wish.numa
            most = -board.ksps if wish.affinity == "high-capacity" else 0
            return (board.id not in used, most, far, free, board.id)

        for board in sorted(able, key=order):
            placed = choose_rectangle(_empty(board).copy(), need.ids * board.unit, avoid=taken[board.id])
            if placed is not None:
                r = placed.rectangle
                grant = CoreGrant(need.resource, board.id, need.ids * board.unit, r.width, r.height, r.x, r.y)
                chosen[need.container] = (*chosen.get(need.container, ()), grant)
                taken[board.id] |= _grid(board).rectangle(r)
                used.add(board.id)
                break
        else:
            return None
    return chosen


def _rectangles(allocations: Iterable[Allocation]) -> Iterable[tuple[str, Rectangle]]:
    for allocation in allocations:
        for grants in allocation.cores.values():
            yield from ((grant.board, rectangle_of(grant)) for grant in grants)


def _grid(board: SpikingBoard) -> Layout:
    return layout(board.width, board.height)


@lru_cache(maxsize=64)
def _bare(width: int, height: int, dead_cores: str, dead_routers: str) -> Allocator:
    grid = layout(width, height)
    return Allocator(grid, dead_cores=_cells(grid, dead_cores), dead_routers=_cells(grid, dead_routers))


def _empty(board: SpikingBoard) -> Allocator:
    return _bare(board.width, board.height, board.dead_cores, board.dead_routers)


def _packed(grid: Layout, mask: int) -> str:
    packed = 0
    for y, row in enumerate(grid.rows(mask)):
        packed |= row << (y * grid.width)
    return f"{packed:x}"


def _mask(grid: Layout, text: str) -> int:
    return grid.of(_cells(grid, text))


def _cells(grid: Layout, text: str) -> list[Cell]:
    """The cells of a packed mask; bits beyond the grid, and what is no number, count as none."""
    try:
        packed = int(text or "0", 16)
    except ValueError:
        return []
    size = grid.width * grid.height
    return [(bit % grid.width, bit // grid.width) for bit in range(min(packed.bit_length(), size)) if packed >> bit & 1]
