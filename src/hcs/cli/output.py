"""Writing data to stdout and talk to stderr.

A table is plain text in kubectl's manner when stdout is not a terminal, so that pipes and tests see one stable shape,
and drawn with rich when it is. Colour only ever repeats what a word says already.
"""

import shutil
import sys
import textwrap
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
    "Running": "green",
    "missing": "yellow",
    "Cancelling": "yellow",
    "Foreign": "yellow",
    "Failed": "red",
    "Quarantined": "red",
    "Refused": "red",
    "down": "red",
}
"""Colours of words that mean the same everywhere, the gravest last."""


GAP: Final = "  "
"""Between columns on a terminal."""
_LEAST_FLEXIBLE: Final = 20
_INDENT: Final = "    "
MARK: Final = "*"
"""Behind the model of an emulated card; a line below the table says so."""


class Column(msgspec.Struct, frozen=True):
    """One column: ``right`` aligns numbers, ``wide`` shows it with ``-o wide`` only, ``flexible`` may wrap.

    ``least``: on a terminal too narrow for all, its texts are cut down to so many characters at least; the table's
    other columns are then never cut, so ids and numbers stay whole. 0 in all columns leaves cutting to the drawing.
    """

    title: str
    right: bool = False
    wide: bool = False
    flexible: bool = False
    least: int = 0


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
        if any(column.least for column in columns):
            _draw_fitted(columns, rows, headers)
        else:
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


def _draw_fitted(columns: Sequence[Column], rows: list[list[str]], headers: bool) -> None:
    """Every column whole that may not be cut, on one line or, where even that is too narrow, on several.

    A flexible column that finds no room beside the others stands below them.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    stiff = [index for index, column in enumerate(columns) if not column.flexible]
    shown = [columns[index] for index in stiff]
    cut = fitted(shown, [[row[index] for index in stiff] for row in rows], console.width, headers=headers)
    widths = [max(len(line[place]) for line in cut) for place in range(len(stiff))]
    breaks = _breaks(widths, console.width)
    left = 0 if breaks else console.width - sum(widths) - len(GAP) * len(widths)
    if not headers:
        cut = cut[1:]
    for number, line in enumerate(cut):
        heading = headers and number == 0
        text = Text()
        for place, cell in enumerate(line):
            if place in breaks:
                text.rstrip()
                text.append("\n" + _INDENT)
            room = widths[place]
            padded = cell.rjust(room) if shown[place].right else cell.ljust(room)
            text.append(padded + GAP, style="bold" if heading else _style(cell))
        row = rows[number - headers] if not heading else [column.title for column in columns]
        for index, column in enumerate(columns):
            if column.flexible and left >= _LEAST_FLEXIBLE:
                pieces = textwrap.wrap(row[index], left) or [""]
                text.append(("\n" + " " * (console.width - left)).join(pieces), style="bold" if heading else "")
            elif column.flexible and row[index] and not heading:
                text.rstrip()
                inside = textwrap.wrap(row[index], max(20, console.width - len(_INDENT)))
                text.append("".join(f"\n{_INDENT}{piece}" for piece in inside), style="dim")
        text.rstrip()
        console.print(text, soft_wrap=True)


def _breaks(widths: Sequence[int], room: int) -> set[int]:
    """The columns before which a line must go on below, for what stands there is not cut."""
    found, used = set[int](), -len(GAP)
    for place, width in enumerate(widths):
        used += len(GAP) + width
        if used > room and place:
            found.add(place)
            used = len(_INDENT) + width
    return found


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int, *, headers: bool = True, gap: int = len(GAP)
) -> list[list[str]]:
    """Titles and rows with texts cut, the longest first, where that makes lines of so many characters."""
    lines = [[column.title if headers else "" for column in columns], *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    while sum(widths) + gap * (len(widths) - 1) > room:
        able = [index for index, column in enumerate(columns) if column.least and widths[index] > column.least]
        if not able:
            break
        widths[max(able, key=lambda index: widths[index])] -= 1
    return [[shortened(cell, size) for cell, size in zip(line, widths, strict=True)] for line in lines]


def shortened(text: str, room: int) -> str:
    """A text cut to so many characters; of two parts with a stroke between them, the longer one gives way.

    >>> shortened("train-the-model", 8), shortened("hangzhou-2/910B2", 12), shortened("east/A100-SXM4-80GB", 16)
    ('train-t…', 'hangz…/910B2', 'east/A100-SXM4-…')
    """
    if len(text) <= room:
        return text
    first, stroke, last = text.partition("/")
    if stroke and len(first) > len(last) and len(last) + 4 <= room:
        return f"{first[: room - len(last) - 2]}…/{last}"
    return f"{text[: room - 1]}…"


def _style(text: str) -> str:
    """The colour of a cell: that of the worst word in it that has one."""
    words = [word.strip(f",:{MARK}") for word in text.split()]
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


def tell_wrapped(line: str) -> None:
    """The same, broken between words where a terminal would break them anywhere."""
    if not sys.stderr.isatty():
        tell(line)
        return
    begins = line[: len(line) - len(line.lstrip())]
    for piece in textwrap.wrap(line.lstrip(), width(), initial_indent=begins, subsequent_indent=f"{begins}    "):
        tell(piece)


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
