"""How far a rate may be from what somebody will measure: a range of factors for each source of rates.

Nothing here is an opinion. What a data sheet is worth is read off the cards that have both a rating and a measurement;
what one more measurement of the same model would give, off published repetitions. Where nothing can be read off
(derived rates), there is no range, and whoever shows the rate says so.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import msgspec

from hcs.model.devices import DEFAULT_WORKLOAD, Rate
from hcs.ura.catalogue import CardModel

REPEATED: Final = Fraction(6, 100)
"""Spread of measurements of one card model by different people: 3 to 6 % (RTX 4090: 159 to 172 TFLOPS in the
zzc0721/torch-performence-test-data collection)."""

OUTSIDE: Final = Fraction(1, 10)
"""The part of the known cards that lies beyond each end of a range."""

FEWEST: Final = 5
"""Cards a range must rest on."""


class Range(msgspec.Struct, frozen=True):
    """What is measured, over what is stated: from ``low`` to ``high`` for eight of ten cards. ``basis`` says why."""

    low: Fraction
    high: Fraction
    basis: str


def ranges(models: Iterable[CardModel]) -> dict[str, Range]:
    """Source → range, for the sources about which something is known."""
    found = {
        "measured": Range(1 - REPEATED, 1 + REPEATED, "published repetitions of one measurement differ by 3 to 6 %")
    }
    cards = tuple(models)
    for source in ("benchmark", "datasheet"):
        factors = sorted(_factors(cards, source))
        if len(factors) >= FEWEST:
            cut = int(len(factors) * OUTSIDE)
            low, high = factors[cut], factors[len(factors) - 1 - cut]
            basis = f"measured over {source} figure of the {len(factors)} cards that have both"
            found[source] = Range(min(low, 1 - REPEATED), max(high, 1 + REPEATED), basis)
    return found


def range_of_exchange(given: Rate | None, got: Rate, known: dict[str, Range]) -> tuple[Fraction, Fraction] | None:
    """Factors on an exact count between two rates; None where either side's is not known.

    ``given`` None: the amount is exact, as an amount of ACU is. The ends are those of both sides together, so the range
    is on the wide side: the two errors rarely meet at their worst.
    """
    own = known.get(got.source)
    other = Range(Fraction(1), Fraction(1), "") if given is None else known.get(given.source)
    if own is None or other is None:
        return None
    return other.low / own.high, other.high / own.low


def _factors(cards: Iterable[CardModel], source: str) -> Iterable[Fraction]:
    for card in cards:
        rate = card.rate(DEFAULT_WORKLOAD)
        if rate is None or rate.source != "measured":
            continue
        for other in card.others:
            if other.workload == DEFAULT_WORKLOAD and other.source == source and other.milliacu:
                yield Fraction(rate.milliacu, other.milliacu)
