"""The tables that come with the package, read once: the only place of this layer that opens a file.

``ratings.csv`` holds what vendors publish, one row a board; ``measurements.csv`` what people measured;
``comparisons.csv`` which measurements may be set against which. A blank cell means that no figure is known that anyone
would stand behind, never zero.
"""

import csv
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Final, cast

from hcs.model.devices import Source
from hcs.ura.rates import Comparison, Measurement, Rating

Row = dict[str, str]

READ: Final = "2026-11"
"""When the tables were read from their sources; few of those say when they measured."""


@cache
def measurements() -> tuple[Measurement, ...]:
    """All measured figures, also those that no rate is computed from."""
    return tuple(
        Measurement(
            card=f"{row['vendor']}/{row['model']}",
            metric=row["metric"],
            value=Fraction(row["value"]),
            unit=row["unit"],
            suite=row["suite"],
            method=row["method"],
            source=row["source"],
            as_of=READ,
        )
        for row in rows("measurements")
    )


@cache
def rows(table: str) -> tuple[Row, ...]:
    """One table as it is written; all values are text."""
    text = (files("hcs.ura") / "data" / f"{table}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def rating(row: Row) -> Rating:
    """The part of a row of ``ratings.csv`` that rates are computed from."""
    return Rating(
        vendor=row["vendor"],
        model=row["model"],
        devices=int(row["devices"]),
        fp16_tflops=figure(row["fp16_tflops"]),
        bf16_tflops=figure(row["bf16_tflops"]),
        confidence=row["confidence"],
        memory_gbps=figure(row["mem_bandwidth_gbps"]),
        as_of=READ,
    )


def comparison(row: Row) -> Comparison:
    """One row of ``comparisons.csv``.

    Raises:
        ValueError: the kind is not one of the two.
    """
    if row["kind"] not in ("rate", "time-over-reference"):
        raise ValueError(f"comparisons.csv: kind {row['kind']!r} is neither rate nor time-over-reference")
    return Comparison(
        workload=row["workload"],
        metric=row["metric"],
        suite=row["suite"],
        kind="rate" if row["kind"] == "rate" else "time-over-reference",
        reference=row["reference"],
        reference_suite=row["reference_suite"],
        cards=listed(row["cards"]),
        source=cast(Source, row["source"]),
        note=row["note"],
    )


def figure(text: str) -> Fraction | None:
    """A cell with a number, or None where it is blank."""
    return Fraction(text) if text else None


def listed(text: str) -> tuple[str, ...]:
    """A cell with several words between bars."""
    return tuple(part for part in text.split("|") if part)
