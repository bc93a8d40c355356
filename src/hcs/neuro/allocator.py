"""Which rectangle of cores a request gets.

Complete: a w x h request is placed if and only if some free rectangle holds it. All places are found at once by
shifting the whole grid (:meth:`hcs.neuro.grids.Layout.places`). Those in corners of maximal empty rectangles compete:

* *interference*: the share of the places for other sizes that this one would destroy, added up over a few sizes;
  Where it is known what will come free while the request is there, the places of those times are guarded, too;
* *contact*: how much of its border touches what cannot be used anyway (walls, other tenants, faults). A wall counts
  half as much again as a neighbour: it never goes away.

The least interference, less the contact, wins; ties go to the first in reading order, so that the same history
always gives the same answer. Only the corners with the most contact are weighed, so the time is bounded.

A dead core still routes, so a rectangle may reach over it and then *grows* until it holds as many live cores as were
asked for; the smallest growth wins. A dead router lets nothing through, so no rectangle holds one.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.emptiness import Emptiness
from hcs.neuro.grids import MAX_SIDE, Cell, Layout, Rectangle, bits

_WEIGHED: Final = 12
"""Corners that are weighed fully, those with the most contact first."""
_CONTACT: Final = 0.05
"""What one touching cell is worth, where the loss of all places of one size counts 1."""
_PROBES: Final = 6
"""Squares whose places are guarded."""


class CoreRequest(msgspec.Struct, frozen=True):
    """A rectangle of ``width`` x ``height`` live cores; ``rotation`` says whether it may be turned by 90 degrees."""

    width: int
    height: int
    rotation: bool = True

    @property
    def cores(self) -> int:
        """Live cores asked for."""
        return self.width * self.height

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


class Placed(msgspec.Struct, frozen=True):
    """Where a request fits. ``turned`` by 90 degrees; ``grown`` over dead cores."""

    rectangle: Rectangle
    turned: bool = False
    grown: bool = False
    contact: int = 0


class Allocator:
    """The cores of one board: who holds which rectangle. Copies are cheap and independent."""

    def __init__(
        self,
        layout: Layout,
        *,
        dead_cores: Iterable[Cell] = (),
        dead_routers: Iterable[Cell] = (),
    ) -> None:
        """Begin with an empty board.

        Args:
            layout: the grid.
            dead_cores: cores that route and do not compute, controllers among them.
            dead_routers: cores that do neither.
        """
        self.layout = layout
        self._dead = layout.of(dead_cores)
        self._broken = layout.of(dead_routers)
        self._free = layout.cells & ~self._broken
        self._held: dict[int, Rectangle] = {}
        self._half = max(1, min(layout.width, layout.height) // 2)
        self._largest = max(1, self._half // 2)
        """The largest square guarded: what people asked for so far, up to half the grid's side."""
        self._enough: dict[tuple[int, int, int], int] = {}
        self._sums: NDArray[np.int64] | None = None
        self._emptiness: Emptiness | None = None
        self._journal: list[tuple[bool, Rectangle]] = []
        self.generation = 0
        """Counts changes, so that a plan can tell that it is stale."""

    # What is there.

    @property
    def held(self) -> dict[int, Rectangle]:
        """Who holds which rectangle; read only."""
        return self._held

    @property
    def free(self) -> int:
        """The cells that can be in a rectangle: not held, with a live router. Dead cores are among them."""
        return self._free

    @property
    def live(self) -> int:
        """The cells that compute, whoever holds them."""
        return self.layout.cells & ~(self._dead | self._broken)

    @property
    def free_cores(self) -> int:
        """How many cores are live and free."""
        return (self._free & ~self._dead).bit_count()

    @property
    def rectangles(self) -> frozenset[Rectangle]:
        """All maximal empty rectangles, dead cores counted as empty."""
        if self._emptiness is None or len(self._journal) > len(self._held) + 8:
            self._emptiness = Emptiness(self.layout, self._free)
        else:
            for taken, rectangle in self._journal:
                (self._emptiness.take if taken else self._emptiness.give_back)(rectangle)
        self._journal.clear()
        return frozenset(self._emptiness.rectangles)

    def live_in(self, rectangle: Rectangle) -> int:
        """How many cores of a rectangle compute."""
        return (self.layout.rectangle(rectangle) & self.live).bit_count()

    def copy(self) -> "Allocator":
        """An independent copy."""
        twin = object.__new__(Allocator)
        twin.__dict__.update(self.__dict__)
        twin._held = dict(self._held)
        twin._emptiness, twin._journal = None, []
        return twin

    # Changes.

    def hold(self, key: int, rectangle: Rectangle) -> None:
        """Give a free rectangle to a holder.

        Raises:
            RefusedError: the holder has one already, or the rectangle is not free.
        """
        if key in self._held:
            raise RefusedError(Refusal("HeldAlready", f"{key} holds {self._held[key]} already; release it first"))
        if not self.layout.fits(rectangle):
            raise RefusedError(
                Refusal("OutsideGrid", f"{rectangle} is not on a grid of {self.layout.width}x{self.layout.height}")
            )
        mask = self.layout.rectangle(rectangle)
        if mask & ~self._free:
            raise RefusedError(Refusal("CoresTaken", f"not all of {rectangle} is free; place it again"))
        self._free &= ~mask
        self._held[key] = rectangle
        self._changed(True, rectangle)

    def release(self, key: int) -> Rectangle:
        """Take back what a holder has, and say what it was. Routers that died meanwhile stay out.

        Raises:
            KeyError: it holds nothing.
        """
        rectangle = self._held.pop(key)
        mask = self.layout.rectangle(rectangle) & ~self._broken
        self._free |= mask
        self._changed(False, rectangle)
        return rectangle

    def fail(self, *, cores: Iterable[Cell] = (), routers: Iterable[Cell] = ()) -> frozenset[int]:
        """Note that cores or routers died; say whose rectangles they are in."""
        dead, broken = self.layout.of(cores), self.layout.of(routers)
        self._dead |= dead
        self._broken |= broken
        self._free &= ~broken
        self._renew()
        hurt = dead | broken
        return frozenset(key for key, held in self._held.items() if self.layout.rectangle(held) & hurt)

    def mend(self, cells: Iterable[Cell]) -> None:
        """Note that cores and routers work again."""
        mended = self.layout.of(cells)
        self._dead &= ~mended
        self._broken &= ~mended
        taken = 0
        for rectangle in self._held.values():
            taken |= self.layout.rectangle(rectangle)
        self._free = self.layout.cells & ~self._broken & ~taken
        self._renew()

    def _renew(self) -> None:
        self._enough = {}
        self._sums = None
        self._emptiness = None
        self._journal = []
        self.generation += 1

    def _changed(self, taken: bool, rectangle: Rectangle) -> None:
        self.generation += 1
        if self._emptiness is not None:
            if self._broken and self.layout.rectangle(rectangle) & self._broken:
                self._emptiness = None
            else:
                self._journal.append((taken, rectangle))

    # The search.

    def suitable(self, width: int, height: int, cores: int) -> int:
        """First cells of all rectangles of a size that hold enough live cores and no dead router, whoever has them."""
        whole = self.layout.cells & ~self._broken
        return self.layout.places(whole, width, height) & self._with_enough(width, height, cores)

    def check(self, request: CoreRequest) -> None:
        """See that a request could be met by this board, empty.

        Raises:
            RefusedError: it could not.
        """
        if min(request.width, request.height) < 1:
            raise RefusedError(
                Refusal("NegativeSize", f"a rectangle has at least one core a side, not {request}; ask like 4x4")
            )
        if max(request.width, request.height) > MAX_SIDE or not self._fits_empty(request):
            raise RefusedError(self.beyond(request))

    def find(self, request: CoreRequest, *, avoid: int = 0, later: Sequence[int] = ()) -> Placed | None:
        """The best place for a request now; None where no free rectangle holds it.

        Args:
            request: what is asked for.
            avoid: cells that are to be treated as taken.
            later: for some later times, while the request is still there, the cells that will have come free by then.
                Their places are guarded as well. See :func:`hcs.neuro.queues.foresee`.
        """
        if min(request.width, request.height) < 1:
            return None
        self._largest = max(self._largest, min(request.width, request.height, self._half))
        free = self._free & ~avoid
        shapes = [(request.width, request.height, False)]
        if request.rotation and request.width != request.height:
            shapes.append((request.height, request.width, True))
        if not self._dead:
            options = [(w, h, turned, self.layout.places(free, w, h)) for w, h, turned in shapes]
            return self._best(free, options, False, later)
        return self._grow(free, request.cores, shapes, later=later)

    def corners(self, request: CoreRequest, *, avoid: int = 0) -> list[Placed]:
        """All places in corners of maximal empty rectangles, those with the most contact first; no growth."""
        free = self._free & ~self._dead & ~avoid
        shapes = [(request.width, request.height, False)]
        if request.rotation and request.width != request.height:
            shapes.append((request.height, request.width, True))
        options = [(w, h, turned, self.layout.places(free, w, h)) for w, h, turned in shapes]
        return [self._placed(found, False) for found in self._by_contact(free, options)]

    def fits(self, request: CoreRequest, *, avoid: int = 0) -> bool:
        """Whether there is a place, without choosing one."""
        return self.find(request, avoid=avoid) is not None

    def _fits_empty(self, request: CoreRequest) -> bool:
        layout = self.layout
        shapes = [(request.width, request.height, False)]
        if request.rotation:
            shapes.append((request.height, request.width, True))
        whole = layout.cells & ~self._broken
        if not self._dead:
            return any(layout.places(whole, w, h) for w, h, _ in shapes)
        return self._grow(whole, request.cores, shapes) is not None

    def beyond(self, request: CoreRequest) -> Refusal:
        """Why even the empty board cannot hold a request, with what would fit."""
        layout, live = self.layout, self.live.bit_count()
        return Refusal(
            "BeyondBoard",
            f"asks for {request} cores, and no board here holds that; the grid is {layout.width}x{layout.height} "
            f"with {live} live cores, the largest rectangle that fits is {self._largest_empty()}",
        )

    def _largest_empty(self) -> str:
        whole = Emptiness(self.layout, self.layout.cells & ~self._broken)
        best = max(whole.rectangles, key=lambda r: (r.area, r), default=None)
        return "none" if best is None else f"{best.width}x{best.height}"

    def _grow(
        self, free: int, cores: int, shapes: list[tuple[int, int, bool]], *, later: Sequence[int] = ()
    ) -> Placed | None:
        """The smallest rectangle at least as wide and as high as a shape that holds enough live cores.

        Sizes are tried by area. One that fits nowhere is not enlarged, so the search ends soon on a full board.
        """
        layout = self.layout
        options: list[tuple[int, int, bool, int]] = []
        queue = [(width * height, width, height, turned) for width, height, turned in shapes]
        heapq.heapify(queue)
        seen = {entry[1:3] for entry in queue}
        area = 0
        while queue:
            size, width, height, turned = heapq.heappop(queue)
            if options and size > area:
                break
            places = layout.places(free, width, height)
            if not places:
                continue
            if enough := places & self._with_enough(width, height, cores):
                options.append((width, height, turned, enough))
                area = size
                continue
            for wider, higher in ((width + 1, height), (width, height + 1)):
                if wider <= layout.width and higher <= layout.height and (wider, higher) not in seen:
                    seen.add((wider, higher))
                    heapq.heappush(queue, (wider * higher, wider, higher, turned))
        if not options:
            return None
        return self._best(free, options, area > cores, later)

    def _with_enough(self, width: int, height: int, cores: int) -> int:
        """First cells of the rectangles of a size that hold enough live cores, whoever has them. Remembered."""
        found = self._enough.get((width, height, cores))
        if found is None:
            if len(self._enough) > 4096:
                self._enough.clear()
            sums = self._live_sums()
            within = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
            lines = np.zeros((self.layout.height + 2, self.layout.stride), dtype=np.bool_)
            lines[1 : within.shape[0] + 1, 1 : within.shape[1] + 1] = within >= cores
            found = int.from_bytes(np.packbits(lines, bitorder="little").tobytes(), "little")
            self._enough[width, height, cores] = found
        return found

    def _live_sums(self) -> NDArray[np.int64]:
        """[height + 1, width + 1] How many cores compute above and to the left of each corner of cells."""
        if self._sums is None:
            sums = np.zeros((self.layout.height + 1, self.layout.width + 1), dtype=np.int64)
            for x, y in self.layout.cells_of(self.live):
                sums[y + 1, x + 1] = 1
            self._sums = sums.cumsum(axis=0).cumsum(axis=1)
        return self._sums

    def _best(
        self, free: int, options: list[tuple[int, int, bool, int]], grown: bool, later: Sequence[int]
    ) -> Placed | None:
        """The best of all places of these sizes: (width, height, turned, places)."""
        weighed = self._by_contact(free, options)
        if not weighed:
            return None
        if len(weighed) > 1:
            del weighed[_WEIGHED:]
            guarded = self._guarded(free)
            for more in later:
                guarded += self._guarded(free | (more & ~self._broken))
            weighed.sort(key=lambda c: (_CONTACT / 2 * c[0] + self._interference(guarded, *c[1:4]), *c[1:]))
        return self._placed(weighed[0], grown)

    def _placed(self, weighed: tuple[int, int, int, int, bool], grown: bool) -> Placed:
        score, bit, width, height, turned = weighed
        x, y = self.layout.cell(bit)
        return Placed(Rectangle(x, y, width, height), turned, grown, -score)

    def _by_contact(
        self, free: int, options: list[tuple[int, int, bool, int]]
    ) -> list[tuple[int, int, int, int, bool]]:
        """(less contact, bit, width, height, turned) of the corners; contact counts 2 a neighbour and 3 a wall."""
        layout = self.layout
        blocked = layout.everything & ~free
        corner = layout.stride + 1
        found = []
        for width, height, turned, places in options:
            ring = layout.ring(width, height)
            for bit in bits(layout.corners(places)):
                shift = bit - corner
                touching = ((blocked >> shift) & ring).bit_count()
                walls = ((layout.walls >> shift) & ring).bit_count()
                found.append((-2 * touching - walls, bit, width, height, turned))
        found.sort()
        return found

    def _guarded(self, free: int) -> list[tuple[int, int, float]]:
        """For some sizes of squares: the places now, and what losing one of them costs."""
        guarded = []
        for step in range(1, _PROBES + 1):
            side = -(-self._largest * step // _PROBES)
            places = self.layout.places(free, side, side)
            if not places:
                break
            guarded.append((side, places, 1 / places.bit_count()))
        return guarded

    def _interference(self, guarded: list[tuple[int, int, float]], bit: int, width: int, height: int) -> float:
        """What share of the places of each guarded size overlaps a rectangle, added up."""
        layout = self.layout
        x, y = layout.cell(bit)
        lost = 0.0
        for side, places, cost in guarded:
            left, top = max(0, x - side + 1), max(0, y - side + 1)
            block = layout.block(x + width - left, y + height - top)
            lost += ((places >> layout.bit(left, top)) & block).bit_count() * cost
        return lost
