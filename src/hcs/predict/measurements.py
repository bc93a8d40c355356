"""Tables of measurements as columns: which of three shapes a table has, and every number in it checked.

* **rates**: ``gpu, model, batch_size, num_gpus, consolidated, steps_per_s``; batch 0 where there is no such setting.
* **steps**: ``gpu, model, local_batch, nodes, gpus, layout, step_s`` and, where measured, ``sync_s``; a layout gives
  the cards of each node in digits like ``1-3``, or is ``even``.
* **runs**: ``model, kind, cards, seconds`` and, where known, ``batch, steps, peak_memory, outcome, nodes, probe,
  shared_with, finished``, as ``runs.Run`` explains them.

Other columns are not looked at. The first row that cannot be read is named with its number and what was expected.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np

from hcs.model.quantities import QuantityError, parse_bytes
from hcs.predict.runs import Outcome, Run
from hcs.predict.table import Floats, Table, table

Row = Mapping[str, str]
Value = TypeVar("Value")
Shape = Literal["rates", "steps", "runs"]

_NEEDED: dict[Shape, tuple[str, ...]] = {
    "rates": ("gpu", "model", "batch_size", "num_gpus", "consolidated", "steps_per_s"),
    "steps": ("gpu", "model", "local_batch", "nodes", "gpus", "layout", "step_s"),
    "runs": ("model", "kind", "cards", "seconds"),
}
RUN_COLUMNS = (
    *_NEEDED["runs"],
    *("batch", "steps", "peak_memory", "outcome", "nodes", "probe", "shared_with", "finished", "steady"),
)
"""What is looked at of a run."""
_MOST_CARDS = 100_000
_LEAST_PEAK = 1 << 20


class MeasurementError(ValueError):
    """A table nothing can be learnt from, or a row of it that cannot be read; the message says which and why."""


@dataclass(frozen=True)
class Measured:
    """Seconds of one step for each row, NaN where it did not run, and of its exchange of gradients where measured."""

    rows: Table
    seconds: Floats
    exchange: Floats | None


def shape_of(columns: Sequence[str]) -> Shape:
    """Which shape a table with these columns has."""
    for shape, needed in _NEEDED.items():
        if set(needed) <= set(columns):
            return shape
    known = "; or ".join(f"{', '.join(needed)} ({shape})" for shape, needed in reversed(_NEEDED.items()))
    raise MeasurementError(f"the columns are {', '.join(map(str, columns)) or 'none'}; expected {known}")


def measured(rows: Sequence[Row]) -> Measured:
    """Rates or steps as columns; a rate becomes the seconds of a step."""
    shape = shape_of(list(rows[0]) if rows else [])
    if shape == "runs":
        raise MeasurementError("the table holds whole runs; expected measured rates or step times")
    _each(rows, _checked)
    if shape == "rates":
        rate = _column(rows, "steps_per_s")
        seconds = np.divide(1.0, rate, out=np.full(len(rows), np.nan), where=rate > 0)
        return Measured(asked(rows), seconds, None)
    seconds = _column(rows, "step_s")
    return Measured(asked(rows), np.where(seconds > 0, seconds, np.nan), _column(rows, "sync_s"))


def asked(rows: Sequence[Row]) -> Table:
    """What was run, without how long it took: model, card, batch and cards of rates or steps."""
    if shape_of(list(rows[0]) if rows else []) == "rates":
        names, layouts = ("batch_size",), _each(rows, _sides)
        campaign = [""] * len(rows)
    else:
        names, layouts = ("local_batch",), _each(rows, _digits)
        campaign = ["even" if row["layout"] == "even" else "" for row in rows]
    batches = _each(rows, lambda row: _number(row, names[0]))
    return table([row["model"] for row in rows], [row["gpu"] for row in rows], batches, layouts, campaign)


def history(rows: Sequence[Row]) -> list[Run]:
    """Rows of runs as runs."""
    return _each(rows, _run)


def _run(row: Row) -> Run:
    outcome = (row.get("outcome") or "succeeded").strip()
    if outcome not in get_args(Outcome):
        raise MeasurementError(f"outcome is {outcome!r}; expected one of {', '.join(get_args(Outcome))}")
    return Run(
        _name(row, "model"),
        _name(row, "kind"),
        _optional(row, "batch"),
        _count(row, "cards"),
        _optional(row, "steps"),
        _number(row, "seconds"),
        peak_bytes(row.get("peak_memory") or ""),
        outcome,  # type: ignore[arg-type]  # checked above
        (row.get("probe") or "").strip().lower() in ("1", "true", "yes"),
        (row.get("shared_with") or "").strip() or None,
        int(_optional(row, "finished") or 0),
        _count(row, "nodes") if row.get("nodes") else 1,
    )


def peak_bytes(text: str) -> int | None:
    """Peak memory in bytes, as a number or with a unit; None for an empty text and for 0, which say nothing.

    >>> peak_bytes("3Gi"), peak_bytes("3.2e9"), peak_bytes("")
    (3221225472, 3200000000, None)

    Raises:
        MeasurementError: it is no amount, or so small that another unit was meant.
    """
    text = text.strip()
    try:
        value = float(text or 0)
        if not math.isfinite(value) or value < 0:
            raise MeasurementError(f"peak_memory is {text}; expected bytes, 0 or more")
        amount = int(value)
    except ValueError as error:
        if isinstance(error, MeasurementError):
            raise
        try:
            amount = parse_bytes(text)
        except QuantityError:
            raise MeasurementError(f"peak_memory is {text!r}; expected bytes, or a unit as in 3Gi") from None
    if 0 < amount < _LEAST_PEAK:
        raise MeasurementError(
            f"peak_memory is {amount} bytes, less than any job holds; write its unit, as in {amount}Mi"
        )
    return amount or None


def _checked(row: Row) -> None:
    _name(row, "model")
    _name(row, "gpu")


def _sides(row: Row) -> list[int]:
    count = _count(row, "num_gpus")
    return [count] if row["consolidated"].strip() == "1" else [1] * count


def _digits(row: Row) -> list[int]:
    cards, nodes, layout = _count(row, "gpus"), _count(row, "nodes"), row["layout"].strip()
    if nodes > cards:
        raise MeasurementError(f"{cards} gpus on {nodes} nodes; expected at least one on each")
    if layout == "even":
        return [cards // nodes + (index < cards % nodes) for index in range(nodes)]
    parts = layout.split("-")
    if not all(part.isdecimal() and int(part) for part in parts) or sum(map(int, parts)) != cards:
        raise MeasurementError(f"layout is {layout!r} for {cards} gpus; expected their number on each node, like 1-3")
    return [int(part) for part in parts]


def _name(row: Row, column: str) -> str:
    value = (row.get(column) or "").strip()
    if not value:
        raise MeasurementError(f"{column} is empty; expected a name")
    return value


def _count(row: Row, column: str) -> int:
    text = (row.get(column) or "").strip()
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_CARDS:
        raise MeasurementError(f"{column} is {text!r}; expected a whole number from 1 to {_MOST_CARDS}")
    return int(text)


def _number(row: Row, column: str) -> float:
    text = (row.get(column) or "").strip()
    try:
        value = float(text)
    except ValueError:
        raise MeasurementError(f"{column} is {text!r}; expected a number") from None
    if not math.isfinite(value) or value < 0:
        raise MeasurementError(f"{column} is {text}; expected a finite number, 0 or more")
    return value


def _optional(row: Row, column: str) -> float | None:
    return _number(row, column) if (row.get(column) or "").strip() else None


def _column(rows: Sequence[Row], name: str) -> Floats:
    return np.array(_each(rows, lambda row: _optional(row, name)), dtype=np.float64)


def _each(rows: Sequence[Row], read: Callable[[Row], Value]) -> list[Value]:
    answers = []
    for number, row in enumerate(rows, start=1):
        try:
            answers.append(read(row))
        except MeasurementError as error:
            raise MeasurementError(f"row {number}: {error}") from error
    return answers
