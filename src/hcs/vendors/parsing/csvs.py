"""Comma-separated answers to ``--query-gpu``: the header names the columns, or else the question that was asked.

A unit stands in the header (``power.draw [W]``), in the cell (``69.85 W``) or in both. Where the answer has neither
header nor question, a line is read as the answer to :data:`DEFAULT_QUERY`, and only if every cell fits its unit.
"""

import csv
import re
from collections.abc import Iterable
from typing import Final

DEFAULT_QUERY: Final = ("index", "name", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu")
"""What is asked here, and by most collectors, of tools that answer without a header."""

_DEFAULT_SHAPE: Final = (
    r"[0-9]+",
    r"[^,]*[A-Za-z][^,]*",
    r"[0-9]+\s*MiB",
    r"[0-9]+\s*MiB",
    r"(?:[0-9]+\s*%|\[?N/A\]?)",
    r"[0-9]+\s*C",
)
_HEADING: Final = re.compile(r"([A-Za-z][\w. -]*?)\s*(?:[\[(]([^\])]*)[\])])?")
_UNITS: Final = {
    "memory": "MiB",
    "power": "W",
    "temperature": "C",
    "utilization": "%",
    "clocks": "MHz",
    "fan": "%",
}
"""Documented units of fields whose answer was asked for with ``nounits``."""

Row = dict[str, tuple[str, str]]
"""Column in lower case → (cell, unit of the heading)."""


def rows(text: str, command: str, known: Iterable[str], *, units: bool = True) -> list[Row]:
    """Every answer line.

    Args:
        text: the output.
        command: the arguments the tool was called with, as far as known.
        known: columns of which at least two make a line a header.
        units: whether the units of a bare answer are documented for this tool.
    """
    names = frozenset(known)
    heading = _asked(command, units)
    found: list[Row] = []
    lines = text.rstrip().split("\n")
    for number, line in enumerate(lines, 1):
        if "," not in line:
            continue
        cells = _cells(line)
        titled = [_HEADING.fullmatch(cell) for cell in cells]
        titles = [(m.group(1).lower(), m.group(2) or "") if m else ("", "") for m in titled]
        if sum(title in names for title, _ in titles) >= 2:
            heading = titles
            continue
        if heading is None:
            if len(cells) == len(DEFAULT_QUERY) and all(
                re.fullmatch(shape, cell) for shape, cell in zip(_DEFAULT_SHAPE, cells, strict=True)
            ):
                found.append({name: (cell, "") for name, cell in zip(DEFAULT_QUERY, cells, strict=True)})
            continue
        cut_off = number == len(lines) and len(cells) < len(heading)
        if len(cells) == len(heading) or cut_off:
            found.append(_row(heading, cells))
    return found


def _row(heading: list[tuple[str, str]], cells: list[str]) -> Row:
    row: Row = {}
    for (title, unit), cell in zip(heading, cells, strict=False):
        if title and title in row and row[title][0] != cell:
            row[title] = ("", "")  # two columns of one name that differ
        elif title:
            row[title] = (cell, unit)
    return row


def _asked(command: str, units: bool) -> list[tuple[str, str]] | None:
    match = re.search(r"(?:--query-(?:gpu|aip)|-Q)[= ]([\w.,-]+)", command)
    if match is None:
        return None
    bare = units and "nounits" in command
    return [
        (name.lower(), next((u for word, u in _UNITS.items() if name.startswith(word)), "") if bare else "")
        for name in match.group(1).split(",")
    ]


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return []
