"""The tables that come with the package, read once: the only place of this layer that opens a file.

``ratings.csv`` holds what vendors publish, one row a board; ``measurements.csv`` what people measured;
``comparisons.csv`` which measurements may be set against which. A blank cell means that no figure is known that anyone
would stand behind, never zero.
"""

import csv
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import cast

from hcs.model.devices import Source
from hcs.model.quantities import GIB
from hcs.ura.catalogue import CardModel, Catalogue
from hcs.ura.rates import Comparison, Measurement, RateBook, Rating

Row = dict[str, str]


@cache
def load_catalogue() -> Catalogue:
    """The catalogue of all cards this version knows."""
    book = RateBook(map(_rating, rows("ratings")), measurements(), map(_comparison, rows("comparisons")))
    return Catalogue(tuple(_card(row, book) for row in rows("ratings")))


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
        )
        for row in rows("measurements")
    )


@cache
def rows(table: str) -> tuple[Row, ...]:
    """One table as it is written; all values are text."""
    text = (files("hcs.ura") / "data" / f"{table}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _card(row: Row, book: RateBook) -> CardModel:
    devices = int(row["devices"])
    vram = row["vram_gib"]
    return CardModel(
        vendor=row["vendor"],
        model=row["model"],
        aliases=_list(row["aliases"]),
        devices_per_board=devices,
        vram=int(Fraction(vram) * GIB // devices) if vram else None,
        fp32_mtflops=_thousandths(row["fp32_tflops"], devices),
        fp16_mtflops=_thousandths(row["fp16_tflops"], devices),
        bf16_mtflops=_thousandths(row["bf16_tflops"], devices),
        int8_mtops=_thousandths(row["int8_tops"], devices),
        memory_mbps=_thousandths(row["mem_bandwidth_gbps"], devices),
        interconnect=row["interconnect"],
        rates=book.rates(_rating(row)),
        confidence=row["confidence"],
        source=row["source"],
    )


def _rating(row: Row) -> Rating:
    return Rating(
        vendor=row["vendor"],
        model=row["model"],
        devices=int(row["devices"]),
        fp16_tflops=_figure(row["fp16_tflops"]),
        bf16_tflops=_figure(row["bf16_tflops"]),
        confidence=row["confidence"],
    )


def _comparison(row: Row) -> Comparison:
    if row["kind"] not in ("rate", "time-over-reference"):
        raise ValueError(f"comparisons.csv: kind {row['kind']!r} is neither rate nor time-over-reference")
    return Comparison(
        workload=row["workload"],
        metric=row["metric"],
        suite=row["suite"],
        kind="rate" if row["kind"] == "rate" else "time-over-reference",
        reference=row["reference"],
        reference_suite=row["reference_suite"],
        cards=_list(row["cards"]),
        source=cast(Source, row["source"]),
        note=row["note"],
    )


def _figure(text: str) -> Fraction | None:
    return Fraction(text) if text else None


def _thousandths(text: str, devices: int) -> int | None:
    return int(Fraction(text) * 1000 // devices) if text else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("|") if part)
