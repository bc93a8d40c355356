"""A neural task as it stands on a board: whose it is, where its logical cores are, and how events reach them."""

from collections.abc import Sequence

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.allocator import Placed
from hcs.neuro.boards import BoardModel
from hcs.neuro.capacities import Amounts
from hcs.neuro.corridors import Corridor
from hcs.neuro.grids import Cell, Layout, Rectangle
from hcs.neuro.lifecycle import Life
from hcs.neuro.packages import LogicalCore, Model
from hcs.neuro.routes import Route


class Task(msgspec.Struct, frozen=True):
    """One task.

    ``id`` is global and never used again, ``number`` the tenant's own. ``cores`` holds the board's core of each logical
    core, in order; ``rectangle`` is on the board, ``virtual`` the same within the lease. ``addresses`` are the tenant's
    stream addresses, ``spike_routes`` the ways between its cores that synapses need.
    """

    id: int
    number: int
    tenant: str
    app: str
    version: str
    model: Model
    board: str
    lease: int
    rectangle: Rectangle
    virtual: Placed
    cores: tuple[Cell, ...]
    corridors: tuple[Corridor, ...]
    spike_routes: tuple[Route, ...]
    addresses: tuple[int, ...]
    amounts: Amounts
    priority: int = 0
    life: Life = Life()


def map_cores(
    layout: Layout, board: BoardModel, rectangle: Rectangle, live: int, wanted: Sequence[LogicalCore]
) -> tuple[Cell, ...]:
    """Give every logical core a live core of its class within a rectangle, one to one.

    They are laid out row by row, every other row backwards, so that cores that follow each other are neighbours.

    Raises:
        RefusedError: the rectangle has too few cores of a class.
    """
    snake = [
        (x, y)
        for y in range(rectangle.y, rectangle.bottom)
        for x in (
            range(rectangle.x, rectangle.right)
            if (y - rectangle.y) % 2 == 0
            else range(rectangle.right - 1, rectangle.x - 1, -1)
        )
        if live >> layout.bit(x, y) & 1
    ]
    left: dict[Cell, None] = dict.fromkeys(snake)
    chosen: list[Cell | None] = [None] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda n: (not wanted[n].core_class, -wanted[n].neurons, n))
    plain = not any(core.core_class for core in wanted) and len(board.classes) == 1
    for number in range(len(wanted)) if plain else order:
        need = wanted[number]
        for cell in left:
            core_class = board.core_class(cell)
            if need.core_class in ("", core_class.name) and need.neurons <= core_class.neurons:
                chosen[number] = cell
                del left[cell]
                break
        else:
            raise RefusedError(_no_core(board, need, number, rectangle))
    return tuple(cell for cell in chosen if cell is not None)


def _no_core(board: BoardModel, need: LogicalCore, number: int, rectangle: Rectangle) -> Refusal:
    names = {core_class.name: core_class.neurons for core_class in board.classes}
    if need.core_class and need.core_class not in names:
        return Refusal(
            "UnknownClass",
            f"logical core {number} wants class {need.core_class[:40]!r}; {board.name} has {', '.join(names)}",
        )
    most = names[need.core_class] if need.core_class else max(names.values())
    if need.neurons > most:
        return Refusal(
            "TooManyNeurons",
            f"logical core {number} has {need.neurons} neurons, and a core of {board.name} holds {most}; "
            "compile the model for smaller cores",
        )
    return Refusal(
        "TooFewCores",
        f"logical core {number} finds no free core of its class in {rectangle}; ask for a larger rectangle",
    )
