"""``hcs neuro lease``, ``tasks`` and ``top``: what a running neuromorphic plugin holds."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

import httpx2
import msgspec
import typer

from hcs.cli.errors import TIMEOUT, USAGE, CommandError
from hcs.cli.neuro_boards import Svg, show
from hcs.cli.options import Json, NoHeaders
from hcs.cli.output import Column, Table, say, share_of, tell, write_data, write_table
from hcs.neuro.capacities import UNITS
from hcs.neuro.pictures import BoardPicture, draw_svg

SERVER: Final = "http://127.0.0.1:8460"

Server = Annotated[str, typer.Option("--server", envvar="HCS_NEURO", help="Address of the plugin.", metavar="URL")]
Token = Annotated[str, typer.Option("--token", envvar="HCS_NEURO_TOKEN", help="Bearer token, where it asks for one.")]
Tenant = Annotated[str, typer.Option("--tenant", "-t", help="Whose; operators may leave it out.", metavar="NAME")]


def lease(
    cores: Annotated[
        int | None, typer.Argument(help="Hold this many cores as one computer; none lists leases.")
    ] = None,
    tenant: Tenant = "",
    end: Annotated[int | None, typer.Option("--end", help="Give this lease back.", metavar="NUMBER")] = None,
    board: Annotated[str, typer.Option("--board", help="On this board.")] = "",
    server: Server = SERVER,
    token: Token = "",
    json: Json = False,
    no_headers: NoHeaders = False,
) -> None:
    """Hold a rectangle of cores for a tenant's tasks, give one back, or list them.

    Examples: hcs neuro lease      hcs neuro lease 100 -t lab      hcs neuro lease --end 1 -t lab
    """
    if (cores is not None or end is not None) and not tenant:
        raise CommandError("whose lease?", "a lease belongs to a tenant", "--tenant NAME", code=USAGE)
    if cores is not None and end is not None:
        raise CommandError("a new lease, or the end of one?", "both were given", "one of them", code=USAGE)
    if end is not None:
        _ask("DELETE", f"/v1/tenants/{tenant}/leases/{end}", server, token)
        tell(f"lease {end} of {tenant} ended")
        return
    if cores is not None:
        made = _ask("POST", f"/v1/tenants/{tenant}/leases", server, token, {"cores": cores, "board": board})
        if not write_data(made, "line" if json else "table"):
            say(f"lease {made['lease']} of {tenant}: {made['grid']} cores from (0,0) on {made['board']}")
        return
    if tenant:
        rows = [{**row, "tenant": tenant} for row in _ask("GET", f"/v1/tenants/{tenant}/leases", server, token)]
    else:
        rows = [
            {**row, "grid": f"{row['rectangle'][2]}x{row['rectangle'][3]}"}
            for row in _ask("GET", "/v1/boards", server, token)["leases"]
            if row["lease"] is not None
        ]
    if write_data(rows, "line" if json else "table"):
        return
    if not rows:
        tell("no leases" + (f" of {tenant}" if tenant else ""))
        return
    columns = (
        Column("TENANT"), Column("LEASE", right=True), Column("BOARD"), Column("GRID"), Column("CORES", right=True),
        Column("FREE", right=True),
    )  # fmt: skip
    cells = [tuple(str(row[key]) for key in ("tenant", "lease", "board", "grid", "cores", "free")) for row in rows]
    write_table(Table(columns, cells), headers=not no_headers)


def tasks(
    tenant: Tenant = "",
    server: Server = SERVER,
    token: Token = "",
    json: Json = False,
    no_headers: NoHeaders = False,
) -> None:
    """List neural tasks: state, cores, streams and rate.

    Examples: hcs neuro tasks      hcs neuro tasks -t lab --json
    """
    if tenant:
        rows = [{**row, "tenant": tenant} for row in _ask("GET", f"/v1/tenants/{tenant}/tasks", server, token)]
    else:
        rows = _ask("GET", "/v1/boards", server, token)["tasks"]
    if write_data(rows, "line" if json else "table"):
        return
    if not rows:
        tell("no tasks" + (f" of {tenant}" if tenant else ""))
        return
    columns = (
        Column("TENANT"), Column("TASK", right=True), Column("APP"), Column("MODEL"), Column("STATE"), Column("BOARD"),
        Column("GRID"), Column("KSPS", right=True), Column("STREAMS"),
    )  # fmt: skip
    cells = [
        (
            *(str(row[key]) for key in ("tenant", "task", "app", "model", "state", "board", "grid", "ksps")),
            ",".join(map(str, row["streams"])),
        )
        for row in rows
    ]
    write_table(Table(columns, cells), headers=not no_headers)


def top(
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    every: Annotated[float, typer.Option("--every", help="Seconds between two looks.", min=0.2)] = 2.0,
    svg: Svg = None,
    server: Server = SERVER,
    token: Token = "",
    json: Json = False,
) -> None:
    """Show every board with its tenants, faults and relay points, and what is taken of its capacities.

    On a terminal it is drawn anew until Ctrl-C.

    Examples: hcs neuro top      hcs neuro top --once --svg boards.svg
    """
    import sys

    before: dict[int, int] = {}
    while True:
        begun = time.monotonic()
        found = _ask("GET", "/v1/boards", server, token)
        if svg is not None:
            for board in found["boards"]:
                many = len(found["boards"]) > 1
                _write(svg.with_stem(f"{svg.stem}-{board['id']}") if many else svg, _picture(board))
        if write_data(found, "line" if json else "table"):
            return
        live = sys.stdout.isatty() and not once
        if live:
            sys.stdout.write("\x1b[H\x1b[2J")
        _draw(found, before, every)
        before = {task["id"]: task["usage"]["spikes"] for task in found["tasks"]}
        if not live:
            return
        time.sleep(max(0.0, every - (time.monotonic() - begun)))


def _draw(found: dict[str, Any], before: dict[int, int], seconds: float) -> None:
    for number, board in enumerate(found["boards"]):
        if number:
            say()
        show(_picture(board))
        say()
        for field, unit in UNITS.items():
            taken, capacity = board["taken"][field], board["capacity"][field]
            bar = "#" * (20 * taken // capacity if capacity else 0)
            say(f"{field:12} [{bar:20}] {share_of(str(taken), str(capacity))} {unit}")
    if not found["tasks"]:
        return
    say()
    columns = (
        Column("TENANT"), Column("TASK", right=True), Column("MODEL"), Column("STATE"), Column("SPIKES", right=True),
        Column("DROPPED", right=True), Column("SPIKES/S", right=True),
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for task in found["tasks"]:
        spikes = task["usage"]["spikes"]
        rate = f"{(spikes - before[task['id']]) / seconds:.0f}" if task["id"] in before else "-"
        rows.append(
            (
                task["tenant"], str(task["task"]), task["model"], task["state"], str(spikes),
                str(task["usage"]["dropped"]), rate,
            )
        )  # fmt: skip
    write_table(Table(columns, rows))


def _picture(board: dict[str, Any]) -> BoardPicture:
    return msgspec.convert(board["picture"], BoardPicture)


def _write(path: Path, picture: BoardPicture) -> None:
    try:
        path.write_text(draw_svg(picture))
    except OSError as error:
        raise CommandError(f"cannot write {path}", str(error), "another --svg FILE") from error


def _ask(method: str, path: str, server: str, token: str, content: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx2.request(method, f"{server.rstrip('/')}{path}", json=content, headers=headers, timeout=10.0)
    except httpx2.TimeoutException as error:
        raise CommandError(
            "the neuromorphic plugin did not answer in time", f"asked {server}", "the same once more", code=TIMEOUT
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise CommandError(
            "no neuromorphic plugin to ask",
            f"{server}: {error}",
            "hcs neuroplugin --emulated-board darwin3 --no-kubelet      or: --server URL",
        ) from error
    if answer.status_code == 204:
        return None
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.status_code < 400 and found is not None:
        return found
    refusals = found.get("refusals") if isinstance(found, dict) else None
    sentence = "; ".join(refusal["message"] for refusal in refusals) if refusals else f"status {answer.status_code}"
    what, _, fix = sentence.rpartition("; ")
    raise CommandError("the neuromorphic plugin refused", what or sentence, fix or "hcs neuro top")
