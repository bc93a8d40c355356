"""A board with its books, what a task may wish of one, and what is said where it has no place.

The neural service keeps one site for each board; the device plugin and the report to the router look at the same books.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from hcs.model.refusals import Refusal
from hcs.neuro.allocator import Allocator, CoreRequest
from hcs.neuro.boards import BoardState
from hcs.neuro.capacities import Amounts, capacity_of
from hcs.neuro.corridors import Ledger
from hcs.neuro.grids import Cell, Rectangle
from hcs.neuro.packages import Model, squarest
from hcs.neuro.routes import Route, inner_route

Affinity = Literal["any", "high-capacity", "near-source"]
AFFINITIES: Final = ("any", "high-capacity", "near-source")


class Wish(msgspec.Struct, frozen=True):
    """Where a task would like to be. ``board`` names one; ``numa`` is the NUMA node its data comes from."""

    board: str = ""
    affinity: Affinity = "any"
    numa: int | None = None


ANYWHERE: Final = Wish()


class Site:
    """One board with its books."""

    def __init__(self, board: BoardState) -> None:
        """Begin with an empty board.

        Raises:
            RefusedError: the faults are not on the board.
        """
        board.check()
        model = board.model
        self.board = board
        self.cores = Allocator(
            model.layout, dead_cores=(*board.dead_cores, *model.controllers), dead_routers=board.dead_routers
        )
        self.ledger = Ledger(model)
        self.taken = Amounts()

    @property
    def capacity(self) -> Amounts:
        """What it offers with its faults of today."""
        return capacity_of(self.board)

    @property
    def routers(self) -> int:
        """The live routers."""
        layout = self.board.model.layout
        return layout.cells & ~layout.of(self.board.dead_routers)

    def free(self) -> Amounts:
        """What nobody has taken. Cores are those that are not leased, streams those whose channel is free."""
        left = self.capacity - self.taken
        return msgspec.structs.replace(left, cores=self.cores.free_cores, streams=self.ledger.free)

    def copy(self) -> "Site":
        """An independent copy."""
        twin = object.__new__(Site)
        twin.board, twin.taken = self.board, self.taken
        twin.cores, twin.ledger = self.cores.copy(), self.ledger.copy()
        return twin


def spike_routes(site: Site, model: Model, rectangle: Rectangle, cores: tuple[Cell, ...]) -> tuple[Route, ...]:
    """One route for each pair of cores that synapses join; all inside the rectangle."""
    pairs = sorted({(s.source[0], s.target[0]) for s in model.synapses if s.source[0] != s.target[0]})
    used: dict[Cell, int] = {}

    def left(cell: Cell) -> int:
        return site.ledger.relays_left(cell) - used.get(cell, 0)

    layout = site.board.model.layout
    routes = []
    for source, target in pairs:
        route = inner_route(
            layout,
            rectangle,
            cores[source],
            cores[target],
            broken=layout.of(site.board.dead_routers),
            hop_limit=site.board.model.hop_limit,
            relays_left=left,
        )
        for cell in route.relays:
            used[cell] = used.get(cell, 0) + 1
        routes.append(route)
    return tuple(routes)


def shapes_of(cores: int) -> list[CoreRequest]:
    """Rectangles of at least so many cores, the squarest first, none more than four times as long as wide."""
    width, height = squarest(cores)
    shapes = [CoreRequest(width, height)]
    for short in range(height - 1, 0, -1):
        long = -(-cores // short)
        if long > 4 * short:
            break
        shapes.append(CoreRequest(long, short))
    return shapes


def largest_free(cores: Allocator) -> str:
    """The largest rectangle that is free, in words."""
    best = max(cores.rectangles, key=lambda r: (cores.live_in(r), r), default=None)
    return "nothing" if best is None else f"{best.width}x{best.height}"


def no_place(site: Site, request: CoreRequest) -> Refusal:
    """Why a board that has no place for a rectangle has none."""
    free = site.cores.free_cores
    if free < request.cores:
        return Refusal(
            "CoresTaken",
            f"asks for {request} cores, which is {request.cores}, and board {site.board.id} has {free} of "
            f"{site.capacity.cores} free; {largest_free(site.cores)} would fit",
        )
    return Refusal(
        "Fragmented",
        f"asks for {request} cores; board {site.board.id} has {free} free, but not in one such piece; "
        f"{largest_free(site.cores)} would fit, or let tasks be moved (hcs neuro place --migrate)",
    )


def worth_saying(refusals: Sequence[Refusal]) -> Sequence[Refusal]:
    """Each once; what could be at all comes before what can never be."""
    unique = list(dict.fromkeys(refusals))
    now = [refusal for refusal in unique if refusal.reason != "BeyondBoard"]
    return now or unique
