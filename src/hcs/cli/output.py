"""Writing data to stdout and talk to stderr.

A table is plain text in kubectl's manner when stdout is not a terminal, so that pipes and tests see one stable shape,
and drawn with rich when it is. Colour only ever repeats what a word says already.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hcs.cli.options import Format

STYLES: Final = {
    "measured": "green",
    "benchmark": "cyan",
    "datasheet": "yellow",
    "rated": "yellow",
    "derived": "red",
    "Healthy": "green",
    "SubHealthy": "yellow",
    "Failed": "red",
    "Quarantined": "red",
    "Unknown": "dim",
    "emulated": "dim",
}
"""Colours of words that mean the same everywhere."""


class Column(msgspec.Struct, frozen=True):
    """One column; ``right`` aligns numbers, ``wide`` shows it with ``-o wide`` only."""

    title: str
    right: bool = False
    wide: bool = False


class Table(msgspec.Struct):
    """Rows of text under titled columns; ``footer`` is a last row set apart, like a total."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]]
    footer: tuple[str, ...] | None = None


def write_table(table: Table, *, wide: bool = False, headers: bool = True) -> None:
    """Write a table to stdout."""
    shown = [index for index, column in enumerate(table.columns) if wide or not column.wide]
    columns = [table.columns[index] for index in shown]
    rows = [[row[index] for index in shown] for row in table.rows]
    footer = [table.footer[index] for index in shown] if table.footer else None
    if sys.stdout.isatty():
        _draw(columns, rows, footer, headers)
        return
    lines = ([[column.title for column in columns]] if headers else []) + rows + ([footer] if footer else [])
    widths = [max((len(line[index]) for line in lines), default=0) for index in range(len(columns))]
    for line in lines:
        cells = (
            text.rjust(width) if column.right else text.ljust(width)
            for column, text, width in zip(columns, line, widths, strict=True)
        )
        say("   ".join(cells).rstrip())


def _draw(columns: Sequence[Column], rows: list[list[str]], footer: list[str] | None, headers: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        show_header=headers,
        show_edge=False,
        pad_edge=False,
        show_footer=footer is not None,
        header_style="bold",
        footer_style="bold",
        border_style="dim",
    )
    for index, column in enumerate(columns):
        drawn.add_column(
            column.title,
            footer=footer[index] if footer else "",
            justify="right" if column.right else "left",
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*(Text(text, style=STYLES.get(text.split(",")[0].split(" ")[0], "")) for text in row))
    Console(highlight=False).print(drawn)


def write_data(data: Any, format: Format, *, names: Iterable[str] = ()) -> bool:
    """Write ``data`` in a machine's format; False when ``format`` is one for people, and nothing was written."""
    if format == "name":
        for name in names:
            say(name)
    elif format == "line":
        say(msgspec.json.encode(data).decode())
    elif format == "json":
        say(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    elif format == "yaml":
        import yaml

        say(yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, allow_unicode=True).rstrip())
    return format not in ("table", "wide")


def say(line: str = "") -> None:
    """One line of data, to stdout."""
    sys.stdout.write(f"{line}\n")


def tell(line: str) -> None:
    """One line of talk, to stderr."""
    sys.stderr.write(f"{line}\n")


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
