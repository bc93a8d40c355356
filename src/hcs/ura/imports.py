"""Results of others, as rates: a table of figures in, rates of exchange out, or every reason why a row cannot be used.

A figure is either in ACU already, or in any unit that counts work per time, set against the same figure of the
reference card (A100-SXM4-80GB) in the same table: the same workload class, unit and suite. A figure without its
reference says nothing, and is refused.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from fractions import Fraction
from typing import Final

import msgspec

from hcs.model.devices import WORKLOADS, Rate, Source
from hcs.ura.catalogue import CardError, CardModel, Catalogue

COLUMNS: Final = ("vendor", "model", "workload", "value", "unit", "source", "date", "suite", "note", "devices")
NEEDED: Final = ("model", "workload", "value", "unit")
_SOURCES: Final[tuple[Source, ...]] = ("measured", "benchmark", "datasheet")
_MOST_NOTE: Final = 256


class Imported(msgspec.Struct, frozen=True):
    """One card's rates from a table."""

    card: CardModel
    rates: tuple[Rate, ...]


class TableError(ValueError):
    """A table that cannot be used; ``problems`` has one sentence for each row that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class _Figure(msgspec.Struct, frozen=True):
    row: int
    card: CardModel
    workload: str
    value: Fraction
    unit: str
    suite: str
    source: Source
    note: str
    as_of: str


def rates_of(rows: Iterable[Mapping[str, str | None]], catalogue: Catalogue, today: date) -> tuple[Imported, ...]:
    """Read a table.

    Args:
        rows: one mapping a row, with the columns of :data:`COLUMNS`. ``value`` is per card as the driver lists them,
            or of ``devices`` such cards together. ``unit`` is ``ACU``, or any; then more must be better. ``source`` is
            measured (the default), benchmark or datasheet; ``date`` like 2026-11-20, the day of import by default.
        catalogue: finds the cards.
        today: the day of import.

    Returns:
        By card, in the order of the table; of several figures of a card and class the most trusted, then the newest.

    Raises:
        TableError: with every problem found.
    """
    problems: list[str] = []
    figures = [figure for n, row in enumerate(rows, 2) if (figure := _figure(n, row, catalogue, today, problems))]
    reference = catalogue.reference
    base = {
        (f.workload, f.unit.casefold(), f.suite): f.value
        for f in figures
        if f.card == reference and f.unit.casefold() != "acu"
    }
    found: dict[CardModel, dict[str, Rate]] = {}
    for figure in figures:
        if figure.card == reference:
            continue
        rate = _rate(figure, base, problems)
        if rate is None:
            continue
        known = found.setdefault(figure.card, {}).get(rate.workload)
        if known is None or (_SOURCES.index(rate.source), _older(rate)) < (_SOURCES.index(known.source), _older(known)):
            found[figure.card][rate.workload] = rate
    if not problems and not found:
        problems.append("there is no row of a card other than the reference")
    if problems:
        raise TableError(problems)
    return tuple(Imported(card, tuple(rates[w] for w in WORKLOADS if w in rates)) for card, rates in found.items())


def _figure(
    number: int, row: Mapping[str, str | None], catalogue: Catalogue, today: date, problems: list[str]
) -> _Figure | None:
    cells = {key: (row.get(key) or "").strip() for key in COLUMNS}
    before = len(problems)

    def wrong(sentence: str) -> None:
        problems.append(f"row {number}: {sentence}")

    for key in NEEDED:
        if not cells[key]:
            wrong(f"{key} is empty")
    card = None
    if cells["model"]:
        try:
            card = catalogue.find(cells["model"], cells["vendor"] or None)
        except CardError as error:
            wrong(str(error))
    if cells["workload"] and cells["workload"] not in WORKLOADS:
        wrong(f"no workload class {cells['workload']!r}; there are {', '.join(WORKLOADS)}")
    source = cells["source"] or "measured"
    if source not in _SOURCES:
        wrong(f"source is {source!r}; it is one of {', '.join(_SOURCES)}")
    value = _positive(cells["value"])
    if cells["value"] and value is None:
        wrong(f"value is {cells['value'][:40]!r}; a number above 0 is expected")
    devices = _positive(cells["devices"] or "1")
    if devices is None or devices.denominator != 1:
        wrong(f"devices is {cells['devices'][:40]!r}; a count is expected")
    as_of = cells["date"] or today.isoformat()
    try:
        if date.fromisoformat(as_of) > today:
            wrong(f"date {as_of} lies in the future")
    except ValueError:
        wrong(f"date is {as_of[:40]!r}; write it like {today.isoformat()}")
    if len(problems) > before or card is None or value is None or devices is None:
        return None
    note = "; ".join(filter(None, (cells["note"], cells["suite"])))[:_MOST_NOTE]
    kind: Source = next(known for known in _SOURCES if known == source)
    return _Figure(number, card, cells["workload"], value / devices, cells["unit"], cells["suite"], kind, note, as_of)


def _rate(figure: _Figure, base: Mapping[tuple[str, str, str], Fraction], problems: list[str]) -> Rate | None:
    if figure.unit.casefold() == "acu":
        milliacu, note = figure.value * 1000, figure.note
    else:
        reference = base.get((figure.workload, figure.unit.casefold(), figure.suite))
        if reference is None:
            where = f" by {figure.suite}" if figure.suite else ""
            problems.append(
                f"row {figure.row}: {figure.value} {figure.unit} of {figure.card.key} stands against nothing; add what "
                f"an A100-SXM4-80GB does in {figure.workload} in {figure.unit}{where}, or give the figure in ACU"
            )
            return None
        milliacu = figure.value / reference * 100_000
        against = f"{float(figure.value):.6g} against {float(reference):.6g} {figure.unit} of A100-SXM4-80GB"
        note = "; ".join(filter(None, (against, figure.note)))[:_MOST_NOTE]
    if int(milliacu) < 1:
        problems.append(f"row {figure.row}: {float(milliacu) / 1000:g} ACU is less than can be written")
        return None
    return Rate(figure.workload, int(milliacu), figure.source, note, figure.as_of)


def _older(rate: Rate) -> int:
    """Smaller for newer."""
    return -date.fromisoformat(rate.as_of).toordinal()


def _positive(text: str) -> Fraction | None:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
    return value if 0 < value < 10**12 else None
