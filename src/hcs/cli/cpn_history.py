"""Files of measurements and ended runs, read whole or not at all: CSV tables, or JSON with one run on each line.

Whoever brings such a file has it from a spreadsheet, a script or a log, so what is wrong with it is said in those
words: another delimiter, another encoding, a list where lines were expected, a column that nobody looks at.
"""

import csv
import difflib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.cli.errors import FAILED, CommandError
from hcs.predict.measurements import RUN_COLUMNS, MeasurementError, history, measured, peak_bytes, shape_of
from hcs.predict.runs import Outcome, Run

_MOST_BYTES: Final = 256 << 20
_STEADY_STEPS: Final = 1000.0
"""A measured rate counts as so many steps; any number says the same."""
_OTHERS: Final = (
    (b"\x1f\x8b", "it is compressed; unpack it first, for instance with gunzip"),
    (b"PK\x03\x04", "it is an archive or a spreadsheet; save the table as CSV"),
    (b"PAR1", "it is a Parquet file; save the table as CSV"),
    (b"\xff\xfe", "it is UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16; save it as UTF-8"),
    (b"[", "it is one JSON list; one run on each line was expected, like jq -c '.[]' prints it"),
)


class _Line(msgspec.Struct, frozen=True):
    """One run as JSON: what a CSV may leave open may be left out here as well."""

    model: str
    kind: str
    cards: int
    seconds: float
    batch: float | None = None
    steps: float | None = None
    peak_memory: int | str | None = None
    outcome: Outcome = "succeeded"
    probe: bool = False
    shared_with: str | None = None
    finished: int = 0
    nodes: int = 1
    steady: bool = False


class History(msgspec.Struct, frozen=True):
    """The runs of a file, and sentences about what was not looked at."""

    runs: list[Run]
    notes: tuple[str, ...] = ()


def read_history(path: Path) -> History:
    """The runs of a file; whole files only, so a broken row leaves no half-trained model.

    Raises:
        CommandError: it cannot be read, or a row of it cannot.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _broken(path, f"it has {path.stat().st_size} bytes; {_MOST_BYTES} are read at most")
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"cannot read {path}", error.strerror or str(error), "a CSV or JSON-lines file", code=FAILED
        ) from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    for beginning, why in _OTHERS:
        if data.lstrip().startswith(beginning):
            raise _broken(path, why)
    try:
        if data.lstrip()[:1] == b"{":
            return _lines(path, data)
        return _table(path, data.decode())
    except UnicodeDecodeError as error:
        raise _broken(path, f"it is no UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except MeasurementError as error:
        raise _broken(path, str(error)) from error


def _table(path: Path, text: str) -> History:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [name.strip().lower() for name in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows = list(reader)
    except csv.Error as error:
        raise _broken(path, f"line {reader.line_num}: {error}") from error
    if len(columns) == 1:
        for sign, word in ((";", "semicolons"), ("\t", "tabs")):
            if sign in columns[0]:
                raise _broken(path, f"its columns are separated by {word}; commas were expected")
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise _broken(path, f"column {twice[0]!r} stands there twice")
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise _broken(path, f"row {number} has more or fewer fields than the header")
    if not rows:
        raise _broken(path, "it has no rows")
    if shape_of(columns) == "runs":
        return History(history(rows), _unused(path, columns))
    return History(_steady(rows))


def _lines(path: Path, data: bytes) -> History:
    runs, names = [], dict[str, None]()
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
            said = msgspec.convert(found, _Line)
            known = {name: getattr(said, name) for name in said.__struct_fields__ if name != "peak_memory"}
            runs.append(Run(**known, peak_memory=_peak(said.peak_memory)))
        except (msgspec.DecodeError, MeasurementError, RecursionError) as error:
            raise _broken(path, f"line {number} is no run: {error}") from error
        names.update(dict.fromkeys(found))
    return History(runs, _unused(path, names))


def _peak(said: int | str | None) -> int | None:
    return None if said is None else peak_bytes(str(said))


def _unused(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """A sentence where a column is not looked at: often it is one that was meant otherwise."""
    others = [name for name in names if name not in RUN_COLUMNS]
    if not others:
        return ()
    meant = {name: difflib.get_close_matches(name, RUN_COLUMNS, 1, 0.7) for name in others}
    shown = ", ".join(f"{name} (did you mean {meant[name][0]}?)" if meant[name] else name for name in others[:6])
    return (f"{path}: not looked at: {shown}" + (f" and {len(others) - 6} more" if len(others) > 6 else ""),)


def _steady(rows: Sequence[dict[str, str]]) -> list[Run]:
    """Measured rates or steps as runs of so many steps each; those that did not run tell nothing."""
    found = measured(rows)
    table = found.rows
    return [
        Run(
            str(table.model[i]),
            str(table.card[i]),
            float(table.batch[i]) or None,
            int(table.cards[i]),
            _STEADY_STEPS,
            float(found.seconds[i]) * _STEADY_STEPS,
            None,
            "succeeded",
            nodes=int(table.nodes[i]),
            steady=True,
        )
        for i in range(len(table))
        if found.seconds[i] > 0
    ]


def _broken(path: Path, why: str) -> CommandError:
    return CommandError(f"cannot learn from {path}", why, "hcs cpn train --help, which lists the columns", code=FAILED)
