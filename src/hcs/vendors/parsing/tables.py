"""Tables drawn with bars and dashes, as most tools print them: a heading of one to three rows, and as many rows for
each device.

The heading decides what a cell means; where the table puts its bars decides nothing. Rows that do not have the
heading's cells are foreign and skipped; a cell that does not look like its heading says becomes null by itself.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from hcs.vendors.parsing.labels import Cell, compile_cell, is_foreign

_RULE: Final = re.compile(r"[\s|]*[+|]?[-=+|\s]*(?:[0-9]{4}-[0-9]{2}-[0-9]{2},[^-|]*)?[-=+|\s]*")
_DIGIT: Final = re.compile(r"[0-9]")
_NOTHING: Final = re.compile(r"^[^A-Za-z]*(?=[KMGT]iB$)|^.*(?<!iB)$")
"""All of a cell but its unit of memory."""
Rows = list[list[str]]


def devices(text: str) -> list[dict[str, Any]]:
    """Every device of every table in ``text`` that lists devices, in order; facts only, null where unreadable."""
    found: list[dict[str, Any]] = []
    heading: tuple[tuple[Cell, ...], ...] | None = None
    for block in _blocks(text):
        for rows in _parts(block):
            match = _heading(rows)
            if match is not None:
                heading, rows = match
            if heading:
                found += _read(heading, rows)
    return found


def _blocks(text: str) -> Iterator[Rows]:
    """Runs of rows between rules and blank lines; a row is its cells."""
    block: list[str] = []
    for line in [*text.split("\n"), ""]:
        if "|" in line and not _RULE.fullmatch(line):
            block.append(line.strip())
        elif block:
            framed = block[0].startswith("|")  # some tables have no bars at their sides
            yield [_cells(row, framed) for row in block]
            block = []


def _parts(block: Rows) -> Iterator[Rows]:
    """A block, cut before each heading in it: some tables have no rule above their heading."""
    begun = 0
    figures = False
    for number, row in enumerate(block):
        if _DIGIT.search(" ".join(row)):
            figures = True
        elif figures and _heading(block[number:]) is not None:
            yield block[begun:number]
            begun, figures = number, False
    yield block[begun:]


def _cells(line: str, framed: bool) -> list[str]:
    cells = [cell.strip() for cell in line.split("|")]
    if not framed:
        return cells
    # Behind the last bar of a row that was cut off stands half a cell.
    return cells[1:-1] if line.endswith("|") else [*cells[1:-1], ""]


def _heading(block: Rows) -> tuple[tuple[tuple[Cell, ...], ...] | None, Rows] | None:
    """The heading a block begins with and the rows below it; None where it begins with no heading."""
    words = [" ".join(row) for row in block]
    count = 0
    while count < len(block) and not _DIGIT.search(words[count].replace("L3-Usage", "")):
        count += 1
    rows = block[:count]
    if not count:
        return None
    if any(is_foreign(text) for text in words[:count]):
        return None, block[count:]
    compiled = _compiled(tuple(tuple(row) for row in rows))
    known = sum(cell.known for row in compiled for cell in row)
    first = {fact for cell in compiled[0] for fact, _ in cell.facts}
    if known < 3 or not first & {"index", "npu_id", "name"} or len(rows) > 4:
        return None
    return compiled, block[count:]


@lru_cache(maxsize=64)
def _compiled(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(compile_cell(cell) for cell in row) for row in rows)


def _read(heading: tuple[tuple[Cell, ...], ...], block: Rows) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    position = 0
    for row in block:
        if len(row) != len(heading[position]):
            continue  # a foreign row
        facts = _facts(heading[position], row)
        if position == 0:
            if facts.get("index") is None and facts.get("npu_id") is None:
                continue  # not the beginning of a device
            found.append(facts)
        else:
            for fact, value in facts.items():
                if found[-1].get(fact) is None:
                    found[-1][fact] = value
        position = (position + 1) % len(heading)
    return found


def _facts(cells: tuple[Cell, ...], row: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for cell, text in zip(cells, row, strict=True):
        match = cell.pattern.fullmatch(text) if cell.facts else None
        if match is None:
            continue
        groups = [*match.groups(), None]
        for (fact, read), group, following in zip(cell.facts, groups, groups[1:], strict=False):
            if fact.endswith("_used_mib") and group and following:  # 826/65536 MiB: one unit for both
                group += _NOTHING.sub("", following) if group[-1].isdigit() else ""
            if facts.get(fact) is None:
                facts[fact] = read(group)
    return facts


def search(pattern: str, text: str, read: Callable[[str | None], Any]) -> Any:
    """The first match's group, read; None where there is none."""
    match = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
    return read(match.group(1)) if match else None
