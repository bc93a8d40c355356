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
    "derived": "red",
    "Healthy": "green",
    "Unknown": "dim",
    "unknown": "dim",
    "SubHealthy": "yellow",
    "Foreign": "yellow",
    "Failed": "red",
    "Quarantined": "red",
}
"""Colours of words that mean the same everywhere, the gravest last."""


MARK: Final = "*"
"""Behind the model of an emulated card; a line below the table says so."""


class Column(msgspec.Struct, frozen=True):
    """One column: ``right`` aligns numbers, ``wide`` shows it with ``-o wide`` only, ``flexible`` may wrap."""

    title: str
    right: bool = False
    wide: bool = False
    flexible: bool = False


class Table(msgspec.Struct):
    """Rows of text under titled columns."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]]


def write_table(table: Table, *, wide: bool = False, headers: bool = True) -> None:
    """Write a table to stdout."""
    shown = [index for index, column in enumerate(table.columns) if wide or not column.wide]
    columns = [table.columns[index] for index in shown]
    rows = [[row[index] for index in shown] for row in table.rows]
    if sys.stdout.isatty():
        _draw(columns, rows, headers)
        return
    lines = ([[column.title for column in columns]] if headers else []) + rows
    widths = [max((len(line[index]) for line in lines), default=0) for index in range(len(columns))]
    for line in lines:
        cells = (
            text.rjust(width) if column.right else text.ljust(width)
            for column, text, width in zip(columns, line, widths, strict=True)
        )
        say("   ".join(cells).rstrip())


def _draw(columns: Sequence[Column], rows: list[list[str]], headers: bool) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        box=None, show_header=headers, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold"
    )
    for column in columns:
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.flexible,
            overflow="fold" if column.flexible else "ellipsis",
        )
    for row in rows:
        drawn.add_row(*(Text(text, style=_style(text)) for text in row))
    Console(highlight=False).print(drawn)


def _style(text: str) -> str:
    """The colour of a cell: that of the worst word in it that has one."""
    words = [word.strip(",:") for word in text.split()]
    return next((STYLES[word] for word in reversed(list(STYLES)) if word in words), "")


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


def share_of(part: str, whole: str) -> str:
    """Two amounts of one unit, the unit said once.

    >>> share_of("40Gi", "80Gi"), share_of("512Mi", "80Gi"), share_of("60", "200")
    ('40/80Gi', '512Mi/80Gi', '60/200')
    """
    unit = whole.lstrip("0123456789.")
    return f"{part.removesuffix(unit) if unit else part}/{whole}"


def say(line: str = "") -> None:
    """One line of data, to stdout."""
    sys.stdout.write(f"{line}\n")


def say_styled(lines: Iterable[tuple[str, str]]) -> None:
    """Lines of data with a style each, which shows on a terminal only."""
    if not sys.stdout.isatty():
        for text, _ in lines:
            say(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for text, style in lines:
        console.print(Text(text, style=style), soft_wrap=True)


def tell(line: str) -> None:
    """One line of talk, to stderr."""
    sys.stderr.write(f"{line}\n")


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
