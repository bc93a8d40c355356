"""``hcs cpn queue``: what waits, what runs, where and until when; live where somebody watches."""

import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer

from hcs.cli.cpn_client import DEFAULT_SERVER, Api, Authority, Server, TokenFile, opened
from hcs.cli.cpn_words import STYLES, ends, headline, place, progress, remarks, when
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, NoHeaders, Output, chosen_format
from hcs.cli.output import GAP, Column, Table, fitted, say, tell, tell_wrapped, width, write_data, write_table
from hcs.cpn.wire import JobList, JobRow, QueueView
from hcs.wide.lifecycle import PLACED, STATES

EPILOGS: Final = {
    "queue": "Examples: hcs cpn queue; hcs cpn queue --watch; hcs cpn queue --state failed,refused --newest -o wide"
}
PROBE: Final = "*"
"""Behind the state of a job that runs as a probe; a line below says so."""
_REFRESH_SECONDS: Final = 0.3
"""At most so often is the picture drawn anew, however much happens."""
_RELATIVE_SECONDS: Final = 5.0
"""Times are shown as seen from now, so the picture ages although nothing happens."""
_PATIENCE_SECONDS: Final = 60.0


class Picture(msgspec.Struct, frozen=True):
    """What one look shows."""

    queue: QueueView
    jobs: tuple[JobRow, ...]
    total: int


def queue(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking, until Ctrl-C.")] = False,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Only these, or live (what has not ended), ended, all.", metavar="STATE[,STATE]"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="The same as --state all.")] = False,
    newest: Annotated[bool, typer.Option("--newest", help="Submitted last comes first.")] = False,
    limit: Annotated[int, typer.Option("--limit", help="Jobs shown at most.", min=0, max=1000)] = 100,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """What waits, what runs, where and until when.

    Waiting jobs show when they are expected to start and end, as the last plan has it. With --watch on a terminal the
    picture stays current; elsewhere every change is a line.
    """
    format = chosen_format(output, json)
    if everything and state is not None:
        raise CommandError(
            "--all and --state contradict each other", "--all is --state all", "keep one of them", code=USAGE
        )
    states = "all" if everything else state or "live"

    with opened(server, token_file, authority) as api:

        def look() -> Picture:
            query = {"state": states, "limit": limit, "newest": str(newest).lower()}
            listed = api.ask(JobList, "GET", "/jobs", query=query)
            return Picture(api.ask(QueueView, "GET", "/queue"), listed.jobs, listed.total)

        if watch and sys.stdout.isatty() and format in ("table", "wide"):
            _live(api, look, server, token_file, authority)
            return

        def show() -> Picture:
            picture = look()
            if not write_data(_data(picture, format), format, names=[f"job/{job.id}" for job in picture.jobs]):
                _write(picture, wide=format == "wide", headers=not no_headers)
            sys.stdout.flush()
            return picture

        if watch:
            _follow(api, show, format)
        show()


def _data(picture: Picture, format: str) -> Any:
    return {"queue": picture.queue, "jobs": picture.jobs, "total": picture.total}


def _write(picture: Picture, *, wide: bool, headers: bool) -> None:
    tell_wrapped(headline(picture.queue))
    for remark in remarks(picture.queue):
        tell_wrapped(f"  {remark}")
    if picture.jobs:
        made = table(picture.jobs, picture.queue.now, columns=width(), wide=wide, gap=2 if sys.stdout.isatty() else 3)
        write_table(made, wide=wide, headers=headers)
    if any(job.probe and job.state == "Running" for job in picture.jobs):
        tell(f"{PROBE} a probe: a job of an unknown kind, alone on its cards to be measured")
    if len(picture.jobs) < picture.total:
        tell(f"{picture.total - len(picture.jobs)} more; --limit shows them")


def table(jobs: tuple[JobRow, ...], now: int, *, columns: int = 100, wide: bool = False, gap: int = len(GAP)) -> Table:
    """One row a job; what does not fit into a narrow terminal is left to ``-o wide``."""
    narrow = columns < 100
    titles = (
        Column("ID"),
        Column("NAME", least=8),
        Column("CARDS", right=True),
        Column("STATE"),
        Column("WHERE", least=16),
        Column("STARTS", right=True, wide=narrow),
        Column("ENDS", right=True),
        Column("DONE", right=True),
        Column("MODEL", wide=True, least=8),
        Column("PRIORITY", right=True, wide=True),
        Column("TRIES", right=True, wide=True),
        Column("WAITED", right=True, wide=True),
        Column("REASON", wide=True, flexible=True),
    )
    rows: list[tuple[str, ...]] = [
        (
            job.id,
            job.name,
            str(job.cards),
            job.state + (PROBE if job.probe and job.state == "Running" else ""),
            place(job),
            when(job.start, now),
            ends(job, now),
            progress(job),
            job.model or "-",
            str(job.priority),
            str(job.attempts + _tried(job)),
            when(job.submitted, now).removesuffix(" ago"),
            f"{job.reason}: {job.message}" if job.message else job.reason,
        )
        for job in jobs
    ]
    if wide:
        return Table(titles, rows)
    kept = [index for index, column in enumerate(titles) if not column.wide]
    inside = fitted(
        [titles[index] for index in kept], [[row[index] for index in kept] for row in rows], columns, gap=gap
    )
    return Table(tuple(titles[index] for index in kept), [tuple(row) for row in inside[1:]])


def _tried(job: JobRow) -> bool:
    """Whether it had a try that does not count among those that ended badly."""
    return job.state in PLACED or (job.state in ("Succeeded", "Cancelled") and job.start is not None)


def _follow(api: Api, show: Callable[[], Picture], format: str) -> NoReturn:
    """The table, then a line for every change, for pipes. The line is open before the table is asked for.

    Raises:
        CommandError: the controller went away.
    """
    last: dict[str, tuple[str, str]] = {}
    for kind, content in api.events():
        if kind in ("hello", "lost"):
            last = {job.id: (job.state, progress(job)) for job in show().jobs}
        if kind != "job":
            continue
        if format in ("json", "line", "yaml"):
            write_data(content, "line")
        else:
            job = msgspec.convert(content, JobRow)
            seen = (job.state, progress(job))
            if last.get(job.id) != seen:
                last[job.id] = seen
                say("   ".join((job.id, job.name, job.state, place(job), progress(job), job.message)).rstrip())
        sys.stdout.flush()
    raise api.unreachable(ConnectionError("it closed the line"))


def _live(api: Api, look: Any, server: str, token_file: Path | None, authority: Path | None) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    changed = threading.Event()

    def listen() -> None:
        while True:
            try:
                with opened(server, token_file, authority) as ear:
                    for kind, _ in ear.events():
                        if kind != "beat":
                            changed.set()
            except CommandError:
                time.sleep(1.0)

    threading.Thread(target=listen, daemon=True).start()
    picture, since, trouble = look(), time.monotonic(), ""
    with Live(drawn(picture, console.height, console.width), console=console, screen=True, auto_refresh=False) as live:
        while True:
            changed.wait(_RELATIVE_SECONDS)
            changed.clear()
            try:
                picture, since, trouble = look(), time.monotonic(), ""
            except CommandError as error:
                if time.monotonic() - since > _PATIENCE_SECONDS:
                    raise
                trouble = f"{error.what}; trying again"
            live.update(drawn(picture, console.height, console.width, trouble), refresh=True)
            time.sleep(_REFRESH_SECONDS)


def drawn(picture: Picture, height: int, columns: int, trouble: str = "") -> Any:
    """The whole picture for a terminal of so many lines and columns."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    first = textwrap.wrap(headline(picture.queue), max(20, columns), subsequent_indent="    ")
    text.append("\n".join(first) + "\n", style="bold")
    head = 2 + len(first)
    for remark in [*remarks(picture.queue), *([trouble] if trouble else [])]:
        text.append(f"  {remark}\n", style="yellow")
        head += 1
    made = table(picture.jobs, picture.queue.now, columns=columns)
    titles = tuple(column.title for column in made.columns)
    room = max(1, height - head - 1)
    widths = [max(len(row[index]) for row in (titles, *made.rows)) for index in range(len(titles))]

    def line(row: tuple[str, ...], style: str) -> None:
        for index, (cell, column) in enumerate(zip(row, made.columns, strict=True)):
            cell_style = STYLES.get(cell.rstrip(PROBE), style) if column.title == "STATE" else style
            padded = cell.rjust(widths[index]) if column.right else cell.ljust(widths[index])
            text.append(padded + (GAP if index + 1 < len(titles) else ""), style=cell_style)
        text.append("\n")

    text.append("\n")
    line(titles, "bold")
    for row in made.rows[:room]:
        line(row, "")
    left = picture.total - min(room, len(made.rows))
    if left > 0:
        text.append(f"{left} more; a taller terminal or --limit shows them", style="dim")
    return text


assert set(STYLES) == set(STATES)
