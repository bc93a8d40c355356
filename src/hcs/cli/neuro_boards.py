"""``hcs neuro board`` and ``hcs neuro place``: what a board is, and where rectangles would go. Nothing is changed."""

import random
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hcs.cli.errors import FAILED, USAGE, CommandError
from hcs.cli.options import Json
from hcs.cli.output import say, tell, width, write_data
from hcs.model.refusals import RefusedError
from hcs.neuro.allocator import Allocator, CoreRequest
from hcs.neuro.boardfiles import read_boards, read_size
from hcs.neuro.boards import BoardState
from hcs.neuro.capacities import UNITS, capacity_of
from hcs.neuro.grids import Cell
from hcs.neuro.migration import MigrationLimits, plan_migration
from hcs.neuro.models import MODELS, custom, find_model
from hcs.neuro.pictures import BoardPicture, Patch, draw_svg, draw_text

BoardOption = Annotated[str, typer.Option("--board", help="A known board, a grid like 24x24, or a board file.")]
Dead = Annotated[
    list[str] | None, typer.Option("--dead", help="A dead core, like 3,4; may be repeated.", metavar="X,Y")
]
DeadRouter = Annotated[list[str] | None, typer.Option("--dead-router", help="A dead router, like 3,4.", metavar="X,Y")]
DeadShare = Annotated[float, typer.Option("--dead-share", help="Let this share of cores be dead, chosen by --seed.")]
Seed = Annotated[int, typer.Option("--seed", help="Chooses the dead cores of --dead-share.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write a picture to this file, too.", metavar="FILE")]


class Answer(msgspec.Struct, frozen=True):
    """Where one request went."""

    name: str
    request: str
    placed: str
    note: str
    tenant: str


def board(
    name: Annotated[
        str, typer.Argument(help="A known board, a grid like 24x24, or a board file; none lists what is known.")
    ] = "",
    dead: Dead = None,
    dead_router: DeadRouter = None,
    dead_share: DeadShare = 0.0,
    seed: Seed = 1,
    svg: Svg = None,
    json: Json = False,
) -> None:
    """Show a board: cores, capacities, ports, faults, and the largest free rectangles.

    Examples: hcs neuro board darwin3      hcs neuro board 16x16 --dead 3,4      hcs neuro board lab.yaml --svg lab.svg
    """
    if not name:
        found = [{"name": m.name, "title": m.title, "grid": f"{m.width}x{m.height}"} for m in MODELS.values()]
        if not write_data(found, "line" if json else "table"):
            for model in MODELS.values():
                say(f"{model.name:16} {model.width:>3}x{model.height:<4} {model.title}")
        return
    states = _boards(name, dead, dead_router, dead_share, seed)
    if json:
        write_data([_facts(state) for state in states], "line")
    for number, state in enumerate(states):
        allocator = _allocator(state)
        picture = _picture(state, ())
        if svg is not None:
            target = svg if len(states) == 1 else svg.with_stem(f"{svg.stem}-{state.id}")
            _write_svg(target, picture)
        if json:
            continue
        if number:
            say()
        show(picture)
        say()
        model, amounts = state.model, capacity_of(state)
        say(f"cores        {amounts.cores} live of {model.width * model.height}")
        say(f"capacity     {amounts.ksps} {UNITS['ksps']}, {amounts.streams} event streams")
        say(f"             {amounts.activations} {UNITS['activations']}, {amounts.updates} {UNITS['updates']}")
        for core_class in model.classes:
            say(f"class        {core_class.name}: {core_class.neurons} neurons, {core_class.ksps} KSPS a core")
        ports = ", ".join(f"{p.name} ({p.cell[0]},{p.cell[1]})" for p in model.ports)
        say(f"ports        {ports}")
        say(f"channels     {model.virtual_channels} a port, {model.control_channels} of all for control")
        say(f"hop limit    {model.hop_limit or 'none'}{' on each axis' if model.hop_limit else ''}")
        largest = sorted(allocator.rectangles, key=lambda r: (-allocator.live_in(r), r))[:3]
        say(f"largest free {', '.join(map(str, largest)) or 'none'}")
        if model.source:
            _say_wrapped(f"source       {model.source}", 13)


def place(
    requests: Annotated[
        list[str],
        typer.Argument(help="Rectangles, like 10x8, or NAME=10x8, in the order they arrive.", metavar="WxH..."),
    ],
    board: BoardOption = "darwin3",
    dead: Dead = None,
    dead_router: DeadRouter = None,
    dead_share: DeadShare = 0.0,
    seed: Seed = 1,
    no_rotation: Annotated[bool, typer.Option("--no-rotation", help="Rectangles may not be turned.")] = False,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Plan moves of earlier ones where a later one does not fit.")
    ] = False,
    release: Annotated[
        list[str] | None, typer.Option("--release", help="End this one before the last arrives.", metavar="NAME")
    ] = None,
    svg: Svg = None,
    json: Json = False,
) -> None:
    """Say where rectangles of cores would go on an empty board, and show it.

    Exit code 1 when one finds no place.

    Examples: hcs neuro place 10x10 8x6      hcs neuro place a=12x24 b=12x20 c=6x6 --release a --migrate
    """
    state = _boards(board, dead, dead_router, dead_share, seed)[0]
    allocator = _allocator(state)
    names: dict[str, int] = {}
    asked: dict[int, CoreRequest] = {}
    answers: list[Answer] = []
    moves = []
    rotation = state.model.rotation and not no_rotation
    for number, text in enumerate(requests):
        if number == len(requests) - 1:
            for gone in release or ():
                if gone not in names:
                    raise CommandError(
                        f"no rectangle is called {gone}",
                        f"there are {', '.join(names) or 'none'}",
                        "name one with NAME=WxH",
                        code=USAGE,
                    )
                key = names.pop(gone)
                if key in allocator.held:
                    allocator.release(key)
                asked.pop(key, None)
        name, _, size = text.rpartition("=")
        name = name or f"job{number + 1}"
        try:
            request = CoreRequest(*read_size(size), rotation)
            allocator.check(request)
        except RefusedError as error:
            answers.append(Answer(name, size, "", "; ".join(r.message for r in error.refusals), ""))
            continue
        names[name] = number
        placed = allocator.find(request)
        note = ""
        if placed is None and migrate:
            plan = plan_migration(allocator, request, asked, MigrationLimits())
            if plan is not None:
                for move in plan.moves:
                    allocator.release(move.holder)
                    allocator.hold(move.holder, move.target.rectangle)
                    moves.append((move.source, move.target.rectangle))
                placed, note = plan.placed, f"after {len(plan.moves)} moves of {plan.cost} cores"
        if placed is None:
            answers.append(Answer(name, str(request), "", _why(allocator, request, migrate), ""))
            continue
        allocator.hold(number, placed.rectangle)
        asked[number] = request
        words = [word for word, there in (("turned", placed.turned), ("grown over dead cores", placed.grown)) if there]
        answers.append(
            Answer(name, str(request), str(placed.rectangle), ", ".join([*words, *([note] if note else [])]), name)
        )
    by_key = {key: name for name, key in names.items()}
    patches = tuple(Patch(r, by_key[key]) for key, r in sorted(allocator.held.items()))
    picture = msgspec.structs.replace(_picture(state, patches), moves=tuple(moves))
    if svg is not None:
        _write_svg(svg, picture)
    if json:
        write_data(
            {
                "board": state.model.name,
                "placements": answers,
                "free": allocator.free_cores,
                "held": {by_key[key]: msgspec.structs.astuple(r) for key, r in sorted(allocator.held.items())},
            },
            "line",
        )
    else:
        show(picture)
        say()
        longest = max(len(answer.name) for answer in answers)
        for answer in answers:
            where = answer.placed or "no place"
            note = f"  ({answer.note})" if answer.placed and answer.note else ""
            say(f"{answer.name:{longest}}  {answer.request:>7}  {where}{note}")
            if not answer.placed:
                _say_wrapped(" " * (longest + 11) + answer.note, longest + 11)
        say(f"{allocator.free_cores} of {allocator.live.bit_count()} cores free")
    if any(not answer.placed for answer in answers):
        raise typer.Exit(FAILED)


def show(picture: BoardPicture) -> None:
    """Draw a board on stdout; in colour on a terminal."""
    lines = draw_text(picture, width())
    if not sys.stdout.isatty():
        for line in lines:
            say("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        console.print(Text.assemble(*[(text, style) for text, style in line]), soft_wrap=True)


def refused(what: str, error: RefusedError) -> CommandError:
    """A refusal in the command line's three lines."""
    first = error.refusals[0].message
    sentence, _, fix = first.rpartition("; ")
    return CommandError(what, sentence or first, fix if sentence else "hcs neuro --help", code=USAGE)


def _say_wrapped(text: str, indent: int) -> None:
    for line in textwrap.wrap(text, max(40, width()), subsequent_indent=" " * indent):
        say(line)


def _why(allocator: Allocator, request: CoreRequest, migrate: bool) -> str:
    best = max(allocator.rectangles, key=lambda r: (allocator.live_in(r), r), default=None)
    fits = f"{best.width}x{best.height} would fit" if best is not None else "nothing is free"
    if allocator.free_cores < request.cores:
        return f"{allocator.free_cores} cores are free, {request.cores} are asked for; {fits}"
    more = "; moving others does not make room, either" if migrate else ", or add --migrate"
    return f"{allocator.free_cores} cores are free, but not in one such piece; {fits}{more}"


def _boards(
    name: str, dead: list[str] | None, dead_router: list[str] | None, dead_share: float, seed: int
) -> tuple[BoardState, ...]:
    try:
        path = Path(name)
        if name.endswith((".yaml", ".yml")) or path.is_file():
            states = read_boards(_yaml(path))
        elif name[:1].isdigit() or name[:1] == "-":
            states = (BoardState(id="board", model=custom(*read_size(name), name=name)),)
        else:
            states = (BoardState(id=name, model=find_model(name)),)
        cores, routers = _cells(dead), _cells(dead_router)
        if not 0 <= dead_share < 1:
            raise CommandError(
                "--dead-share is out of range", f"{dead_share} was given", "a share like 0.05", code=USAGE
            )
        changed = []
        for state in states:
            more: set[Cell] = set(cores)
            if dead_share:
                grid = [(x, y) for y in range(state.model.height) for x in range(state.model.width)]
                more.update(random.Random(seed).sample(grid, round(dead_share * len(grid))))
            state = msgspec.structs.replace(
                state,
                dead_cores=state.dead_cores | more,
                dead_routers=state.dead_routers | frozenset(routers),
            )
            state.check()
            changed.append(state)
        return tuple(changed)
    except RefusedError as error:
        raise refused("that board cannot be used", error) from error


def _yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, yaml.YAMLError, RecursionError) as error:
        raise CommandError(
            f"cannot read {path}", " ".join(str(error).split()), "hcs neuro board darwin3", code=USAGE
        ) from error


def _cells(texts: list[str] | None) -> list[Cell]:
    found = []
    for text in texts or ():
        x, _, y = text.partition(",")
        if not (x.isdecimal() and y.isdecimal()):
            raise CommandError(f"cannot read {text!r} as a core", "a core is column,row", "3,4", code=USAGE)
        found.append((int(x), int(y)))
    return found


def _allocator(state: BoardState) -> Allocator:
    return Allocator(
        state.model.layout,
        dead_cores=(*state.dead_cores, *state.model.controllers),
        dead_routers=state.dead_routers,
    )


def _picture(state: BoardState, patches: tuple[Patch, ...]) -> BoardPicture:
    model = state.model
    return BoardPicture(
        title=f"{model.title} ({model.width}x{model.height} cores)",
        width=model.width,
        height=model.height,
        patches=patches,
        dead_cores=tuple(sorted(state.dead_cores)),
        dead_routers=tuple(sorted(state.dead_routers)),
        controllers=tuple(sorted(model.controllers)),
        ports=tuple((port.name, port.cell) for port in model.ports),
    )


def _facts(state: BoardState) -> dict[str, Any]:
    allocator = _allocator(state)
    return {
        "id": state.id,
        "model": state.model.name,
        "grid": [state.model.width, state.model.height],
        "live": allocator.live.bit_count(),
        "capacity": msgspec.to_builtins(capacity_of(state)),
        "ports": [port.name for port in state.model.ports],
        "virtualChannels": state.model.virtual_channels,
        "hopLimit": state.model.hop_limit,
        "maximalRectangles": sorted(msgspec.structs.astuple(r) for r in allocator.rectangles),
    }


def _write_svg(path: Path, picture: BoardPicture) -> None:
    try:
        path.write_text(draw_svg(picture))
    except OSError as error:
        raise CommandError(f"cannot write {path}", str(error), "another --svg FILE") from error
    tell(f"picture written to {path}")
