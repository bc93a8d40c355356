"""Boards as a site writes them down: YAML that has been read into plain data, turned into descriptions and states.

boards:
  - id: b0
    model: darwin3            # a known board ...
    numa: 0
    deadCores: [[3, 4]]
  - id: lab
    grid: 16x16               # ... or one of your own
    classes: [{name: standard, neurons: 1024, ksps: 100, activations: 10}]
    ports: [{name: west, side: west, cell: [0, 8], ksps: 5000}]
    virtualChannels: 4
    hopLimit: 15
    module: type-a            # its resources are then called ksps-type-a and so on
"""

import re
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.boards import BoardModel, BoardState, CoreClass, EdgePort, Region, Side, check_model
from hcs.neuro.grids import Cell, Rectangle
from hcs.neuro.models import custom, find_model

_MODULE: Final = r"^([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?)?$"
_ID: Final = r"^[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?$"


class _Class(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    neurons: int
    ksps: int
    activations: int
    synapses: int = 0
    updates: int = 0


class _Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    x: int
    y: int
    width: int
    height: int
    core_class: str


class _Port(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    side: Side
    cell: Cell
    ksps: int


class _Board(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    id: str
    model: str = ""
    grid: str = ""
    chips: str = "1x1"
    classes: tuple[_Class, ...] = ()
    regions: tuple[_Region, ...] = ()
    ports: tuple[_Port, ...] = ()
    virtual_channels: int | None = None
    control_channels: int | None = None
    hop_limit: int | None = None
    relay_capacity: int | None = None
    step_us: int | None = None
    ksps: int | None = None
    controllers: tuple[Cell, ...] | None = None
    rotation: bool | None = None
    module: str = ""
    source: str = ""
    numa: int | None = None
    dead_cores: tuple[Cell, ...] = ()
    dead_routers: tuple[Cell, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    boards: tuple[_Board, ...]


def read_boards(document: Any, *, emulated: bool = False) -> tuple[BoardState, ...]:
    """Read a board file.

    Args:
        document: what YAML made of it.
        emulated: whether these boards only play boards.

    Raises:
        RefusedError: with every mistake found.
    """
    try:
        file = msgspec.convert(document, _File)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RefusedError(
            Refusal(
                "MalformedBoardFile",
                f"cannot read the board file: {error}; it is a list called boards, each with an id, "
                "and a model or a grid",
            )
        ) from error
    boards: list[BoardState] = []
    refusals: list[Refusal] = []
    for board in file.boards:
        try:
            state = _state(board, emulated)
            state.check()
            boards.append(state)
        except RefusedError as error:
            refusals.extend(error.refusals)
    if not file.boards:
        refusals.append(Refusal("MalformedBoardFile", "the board file lists no board; add one with an id and a model"))
    ids = [board.id for board in file.boards]
    refusals.extend(
        Refusal("DuplicateBoard", f"two boards are called {id}; give each an id of its own")
        for id in sorted({id for id in ids if ids.count(id) > 1})
    )
    if refusals:
        raise RefusedError(*refusals)
    return tuple(boards)


def read_size(text: str) -> tuple[int, int]:
    """Read a size like ``24x24``.

    Raises:
        RefusedError: it is none.

    >>> read_size("24x16")
    (24, 16)
    """
    width, _, height = text.lower().partition("x")
    try:
        size = int(width), int(height)
    except ValueError:
        raise RefusedError(
            Refusal("MalformedSize", f"cannot read {text[:40]!r} as a size; write columns x rows, like 24x24")
        ) from None
    if min(size) < 1:
        raise RefusedError(Refusal("NegativeSize", f"{text[:40]!r} has a side below 1; write it like 24x24"))
    return size


def _state(board: _Board, emulated: bool) -> BoardState:
    if not re.match(_ID, board.id):
        raise RefusedError(
            Refusal("MalformedBoardFile", f"board id {board.id[:40]!r}: use small letters, digits and dashes")
        )
    if not re.match(_MODULE, board.module):
        raise RefusedError(
            Refusal("MalformedBoardFile", f"board {board.id}: module {board.module[:40]!r}: letters, digits, dashes")
        )
    if bool(board.model) == bool(board.grid):
        raise RefusedError(Refusal("MalformedBoardFile", f"board {board.id}: give a model or a grid, one of the two"))
    model = find_model(board.model) if board.model else _own(board)
    changes: dict[str, Any] = {"module": board.module}
    for field in (
        "virtual_channels", "control_channels", "hop_limit", "relay_capacity", "step_us", "ksps", "controllers",
        "rotation",
    ):  # fmt: skip
        if (value := getattr(board, field)) is not None:
            changes[field] = value
    if board.classes:
        changes["classes"] = tuple(
            CoreClass(
                name=c.name, neurons=c.neurons, synapses=c.synapses, ksps=c.ksps, activations=c.activations,
                updates=c.updates,
            )
            for c in board.classes
        )  # fmt: skip
    if board.regions:
        changes["regions"] = tuple(Region(Rectangle(r.x, r.y, r.width, r.height), r.core_class) for r in board.regions)
    if board.ports:
        changes["ports"] = tuple(EdgePort(p.name, p.side, p.cell, p.ksps) for p in board.ports)
    if board.source:
        changes["source"] = board.source
    return BoardState(
        id=board.id,
        model=check_model(msgspec.structs.replace(model, **changes)),
        dead_cores=frozenset(board.dead_cores),
        dead_routers=frozenset(board.dead_routers),
        numa=board.numa,
        emulated=emulated,
    )


def _own(board: _Board) -> BoardModel:
    """A board by its grid; what the file leaves out is as for Darwin3."""
    width, height = read_size(board.grid)
    across, down = read_size(board.chips)
    model = custom(width * across, height * down, name=board.id)
    return msgspec.structs.replace(
        model,
        chip_width=width,
        chip_height=height,
        chips_across=across,
        chips_down=down,
        title=f"{board.id}, own board",
    )
