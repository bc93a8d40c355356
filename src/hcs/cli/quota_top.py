"""``hcs quota top``: the ledgers of all shares, looked at again and again."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hcs.cli.errors import INTERRUPTED
from hcs.cli.output import Column, Table, tell, write_data, write_table
from hcs.inject.quota_file import QuotaFileError
from hcs.model.quantities import show_bytes
from hcs.native import shares
from hcs.native.ledger import LedgerError


class ProcessRow(msgspec.Struct, frozen=True, rename="camel"):
    """A process that holds memory of a card: its pid as the container counts, its program where it can be seen."""

    pid: int
    program: str
    used_bytes: int


class CardRow(msgspec.Struct, frozen=True, rename="camel"):
    """One card of one container: bytes it may hold and holds, allocations refused so far, and who holds them."""

    container: str
    card: str
    vendor: str
    quota_bytes: int
    used_bytes: int
    refusals: int
    processes: tuple[ProcessRow, ...]


def show_top(*, json: bool, once: bool, interval: float, state: str) -> None:
    """Print the rows once, or on a terminal again and again until Ctrl-C."""
    if json:
        write_data(rows_of(_all(Path(state))), "line")
        return
    if once or not sys.stdout.isatty():
        _print(rows_of(_all(Path(state))))
        return
    _live(interval, Path(state))


def rows_of(found: Iterable[shares.Share]) -> list[CardRow]:
    """One row for each card of each share, in order; a share that is being made or taken away is left out."""
    rows: list[CardRow] = []
    for share in found:
        try:
            quota, ledger = share.quota(), share.ledger()
        except (OSError, QuotaFileError, LedgerError):
            continue
        for index, card in enumerate(quota.cards):
            there = index < len(ledger.cards)
            holders = tuple(
                ProcessRow(process.pid, _program(process.pid, process.start_time), process.used_bytes[index])
                for process in ledger.processes
                if index < len(process.used_bytes) and process.used_bytes[index]
            )
            rows.append(
                CardRow(
                    share.name,
                    card.uuid,
                    card.vendor,
                    card.quota_bytes,
                    ledger.cards[index].used_bytes if there else 0,
                    ledger.cards[index].refusals if there else 0,
                    holders,
                )
            )
    return rows


def _all(state: Path) -> list[shares.Share]:
    return [*shares.own_container(), *shares.of_node(state), *shares.by_hand()]


def _program(pid: int, start_time: int) -> str:
    """The program's name, where the process can be seen from here and is the very one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name if start_time in (0, int(rest.split()[19])) else ""


def table_of(rows: list[CardRow]) -> Table:
    """The rows as people read them: each container's cards below its name, and below each card its processes."""
    lines: list[tuple[str, ...]] = []
    for above, row in zip((None, *rows), rows, strict=False):
        if above is None or above.container != row.container:
            lines.append((row.container, "", "", "", ""))
        share = f"{row.used_bytes * 100 // row.quota_bytes} %"
        lines.append(
            (f"  {row.card}", show_bytes(row.quota_bytes), show_bytes(row.used_bytes), share, str(row.refusals))
        )
        lines += [
            (f"    {process.pid} {process.program}".rstrip(), "", show_bytes(process.used_bytes), "", "")
            for process in row.processes
        ]
    columns = (
        Column("CONTAINER / CARD / PROCESS"),
        Column("QUOTA", right=True),
        Column("USED", right=True),
        Column("OF IT", right=True),
        Column("REFUSED", right=True),
    )
    return Table(columns, lines)


def _print(rows: list[CardRow]) -> None:
    if rows:
        write_table(table_of(rows))
    else:
        tell("no shares; hcs quota run makes one")


def _live(interval: float, state: Path) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table as Drawn

    def draw() -> Drawn | str:
        table = table_of(rows_of(_all(state)))
        drawn = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in table.columns:
            drawn.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
        for line in table.rows:
            drawn.add_row(*line)
        return drawn if table.rows else "no shares; hcs quota run makes one"

    try:
        with Live(draw(), console=Console(highlight=False), auto_refresh=False, screen=False) as live:
            while True:
                time.sleep(interval)
                live.update(draw(), refresh=True)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
