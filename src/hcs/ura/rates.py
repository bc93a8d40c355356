"""Rates: from published figures to thousandths of an ACU, each with its provenance.

One ACU is 1 % of an A100-SXM4-80GB in the same workload class. A card and its reference are paired only as the
comparison table says, which names one metric of one suite each. In order of trust:

* *measured*: the card and an A100-SXM4, the same metric by the same program.
* *benchmark*: measured, but something stands in: another program for the A100, a sub-model that is not stated, BF16.
* *datasheet*: the published rating, FP16 TFLOPS / 3.12, in the matrix multiplication class only.
* *derived*: everything else that can be computed: an estimated rating, a BF16 rating, in ``decode`` the rated memory
  bandwidth (each token reads all weights once), in the other classes, and where no bandwidth is published, the matrix
  multiplication rate. Such a rate is
  shown with a warning and never substitutes one card for another by itself.

Where several figures of a card and class exist, the most trusted is its rate and the others stay visible beside it.

Amounts are rounded down, so that a card is never credited with more than was found.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final, Literal

import msgspec

from hcs.model.devices import DEFAULT_WORKLOAD, SOURCES, WORKLOADS, Rate, Source

REFERENCE: Final = ("nvidia", "A100-SXM4-80GB")
"""The card that is 100 ACU in every workload class."""
MTFLOPS_PER_100_ACU: Final = 312_000
"""Rated dense FP16 of an A100-SXM4-80GB, in thousandths of a TFLOPS."""
GBPS_PER_100_ACU: Final = 2039
"""Rated memory bandwidth of an A100-SXM4-80GB, in GB/s (NVIDIA's data sheet)."""


class Rating(msgspec.Struct, frozen=True):
    """The published figures of one board, of ``devices`` devices, that rates are computed from. Units as published."""

    vendor: str
    model: str
    devices: int
    fp16_tflops: Fraction | None
    bf16_tflops: Fraction | None
    confidence: str
    memory_gbps: Fraction | None = None
    as_of: str = ""

    @property
    def key(self) -> str:
        """``vendor/model``."""
        return f"{self.vendor}/{self.model}"


class Measurement(msgspec.Struct, frozen=True):
    """One measured figure of one board: ``metric`` by ``suite``, in ``unit``."""

    card: str
    metric: str
    value: Fraction
    unit: str
    suite: str
    method: str
    source: str
    as_of: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """Which figures may be set against which: one line of the comparison table.

    ``metric`` may end in ``*``, then all that match are averaged. ``kind`` says whether more is better (``rate``) or
    the figure is itself the time over the reference's. ``cards`` names who gets the rate where the measured card is a
    family; empty: the measured card.
    """

    workload: str
    metric: str
    suite: str
    kind: Literal["rate", "time-over-reference"]
    reference: str
    reference_suite: str
    cards: tuple[str, ...]
    source: Source
    note: str


class RateBook:
    """All rates of all cards, computed once from the tables."""

    def __init__(
        self, ratings: Iterable[Rating], measurements: Iterable[Measurement], comparisons: Iterable[Comparison]
    ) -> None:
        self._ratings = tuple(ratings)
        self._measurements = tuple(measurements)
        self._paired: dict[tuple[str, str], list[Rate]] = {}
        by_key = {rating.key: rating for rating in self._ratings}
        for comparison in comparisons:
            for card, rate in self._compare(comparison, by_key):
                self._paired.setdefault((card, rate.workload), []).append(rate)

    def rates(self, rating: Rating) -> tuple[Rate, ...]:
        """The rates of one device of this card, best source first within each class; empty when nothing is known."""
        if (rating.vendor, rating.model) == REFERENCE:
            return tuple(Rate(w, 100_000, "measured", "the reference card, 100 ACU by definition") for w in WORKLOADS)
        return tuple(found[0] for workload in WORKLOADS if (found := self._known(rating, workload)))

    def others(self, rating: Rating) -> tuple[Rate, ...]:
        """What else was found about this card, less trusted than its rates: conflicts stay visible."""
        if (rating.vendor, rating.model) == REFERENCE:
            return ()
        return tuple(rate for workload in WORKLOADS for rate in self._known(rating, workload)[1:])

    def _known(self, rating: Rating, workload: str) -> list[Rate]:
        """All rates of a card in a class, the most trusted first; among equals in the order of the tables."""
        found = list(self._paired.get((rating.key, workload), ()))
        if workload == DEFAULT_WORKLOAD:
            found += [rate] if (rate := _rated(rating)) else []
        elif workload == "decode" and (rate := _by_bandwidth(rating)):
            found.append(rate)
        elif not found and (base := self._known(rating, DEFAULT_WORKLOAD)):
            note = f"from its {DEFAULT_WORKLOAD} rate, unmeasured"
            if workload == "decode":
                note += "; its memory bandwidth, which decides, is not published"
            found.append(Rate(workload, base[0].milliacu, "derived", note, base[0].as_of))
        return sorted(found, key=lambda rate: SOURCES.index(rate.source))

    def _compare(self, comparison: Comparison, ratings: Mapping[str, Rating]) -> Iterable[tuple[str, Rate]]:
        figures: dict[str, list[Measurement]] = {}
        for row in self._measurements:
            if row.suite == comparison.suite and fnmatchcase(row.metric, comparison.metric):
                figures.setdefault(row.card, []).append(row)
        reference = self._figure(comparison.reference, comparison) if comparison.kind == "rate" else Fraction(1)
        for card, rows in figures.items():
            value = sum((row.value for row in rows), Fraction(0)) / len(rows)
            ratio = value / reference if comparison.kind == "rate" else 1 / value
            against = f"{_number(reference)} {rows[0].unit} of {comparison.reference.partition('/')[2]}"
            if comparison.kind == "rate":
                note = f"{comparison.metric} {_number(value)} against {against}, {comparison.suite}"
            else:
                note = f"{comparison.metric} {_number(value)} x the time of an A100, {comparison.suite}"
            if comparison.cards and card == comparison.reference:
                continue
            for name in comparison.cards or (card,):
                rating = ratings.get(name)
                if rating is None or not _stands(comparison, rating):
                    continue
                notes = [note, comparison.note]
                if rating.devices > 1:
                    notes.append(f"board figure over {rating.devices} devices")
                milliacu = 100_000 * ratio // rating.devices
                oldest = min((row.as_of for row in rows), default="")
                yield (
                    name,
                    Rate(comparison.workload, milliacu, comparison.source, "; ".join(filter(None, notes)), oldest),
                )

    def _figure(self, card: str, comparison: Comparison) -> Fraction:
        for row in self._measurements:
            if (row.card, row.metric, row.suite) == (card, comparison.metric, comparison.reference_suite):
                return row.value
        raise ValueError(
            f"{comparison.reference_suite} has no {comparison.metric} of {card}; mend the comparison table"
        )


def _stands(comparison: Comparison, rating: Rating) -> bool:
    """BF16 may stand in for FP16 only where the vendor rates both alike; on some cards FP16 takes a slower path."""
    return not comparison.metric.endswith("bf16") or (
        rating.fp16_tflops is not None and rating.fp16_tflops == rating.bf16_tflops
    )


def _rated(rating: Rating) -> Rate | None:
    """The matrix multiplication rate from published ratings."""
    if rating.fp16_tflops is not None:
        source: Source = "derived" if rating.confidence == "estimate" else "datasheet"
        milliacu = _milliacu(rating.fp16_tflops, rating.devices)
        return Rate(DEFAULT_WORKLOAD, milliacu, source, _rated_note(rating), rating.as_of)
    if rating.bf16_tflops is not None:
        note = f"from BF16 {_number(rating.bf16_tflops)} TFLOPS rated; no FP16 rating"
        return Rate(DEFAULT_WORKLOAD, _milliacu(rating.bf16_tflops, rating.devices), "derived", note, rating.as_of)
    return None


def _by_bandwidth(rating: Rating) -> Rate | None:
    """The decode rate from the rated memory bandwidth."""
    if rating.memory_gbps is None:
        return None
    milliacu = int(rating.memory_gbps * 100_000 / GBPS_PER_100_ACU // rating.devices)
    note = f"from its rated memory bandwidth, {_number(rating.memory_gbps)} GB/s, unmeasured"
    if rating.devices > 1:
        note += f"; board figure over {rating.devices} devices"
    return Rate("decode", milliacu, "derived", note, rating.as_of)


def _rated_note(rating: Rating) -> str:
    assert rating.fp16_tflops is not None
    note = f"FP16 {_number(rating.fp16_tflops)} TFLOPS rated"
    if rating.devices > 1:
        note += f", board figure over {rating.devices} devices"
    return note if rating.confidence == "datasheet" else f"{note} ({rating.confidence})"


def _milliacu(tflops: Fraction, devices: int) -> int:
    return int(tflops * 1000 * 100_000 / MTFLOPS_PER_100_ACU // devices)


def _number(value: Fraction) -> str:
    return f"{float(value):.10g}"
