"""Exchange: how many cards of one model do the work of another, in a workload class, and how well we know.

A rate of exchange is a fraction of two rates and exact; only counts are rounded, always up, because half a card cannot
be ordered and too few would not do the work. Its source is the weaker of the two sides'. There is no constant like
"two of these for one of those": the same pair differs by a factor of three between workload classes.

What a request by total costs against a ResourceQuota is an exchange as well, with the A100-SXM4-80GB's rated dense
figure on the other side: nobody knows the card yet, and substitution must never change a charge.
"""

from fractions import Fraction
from math import ceil
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.devices import DEFAULT_WORKLOAD, SOURCES, Rate, Source
from hcs.model.requests import Total
from hcs.ura.catalogue import CardModel


class NoRateError(ValueError):
    """Nothing is known about what a card does in a workload class; the message names both."""


class ExchangeRate(msgspec.Struct, frozen=True):
    """What ``given`` is worth in ``got``, per device."""

    given: CardModel
    got: CardModel
    workload: str
    given_rate: Rate
    got_rate: Rate

    @property
    def ratio(self) -> Fraction:
        """Devices of ``got`` that do the work of one device of ``given``, exactly."""
        return Fraction(self.given_rate.milliacu, self.got_rate.milliacu)

    @property
    def source(self) -> Source:
        """The weaker of the two sources."""
        return weaker(self.given_rate.source, self.got_rate.source)

    def count(self, cards: int) -> int:
        """Devices of ``got`` that do the work of ``cards`` of ``given``, rounded up."""
        return ceil(self.ratio * cards)


def exchange(given: CardModel, got: CardModel, workload: str = DEFAULT_WORKLOAD) -> ExchangeRate:
    """The rate of exchange between two models.

    Raises:
        NoRateError: one of them has no rate in this class.
    """
    return ExchangeRate(given, got, workload, rate_of(given, workload), rate_of(got, workload))


def rate_of(card: CardModel, workload: str = DEFAULT_WORKLOAD) -> Rate:
    """The rate of a model, or an error that says what is missing.

    Raises:
        NoRateError: nothing is known, or too little to express in thousandths of an ACU.
    """
    rate = card.rate(workload)
    if rate is None or rate.milliacu <= 0:
        raise NoRateError(f"nothing is published about what {card.key} does in workload class {workload}; measure it")
    return rate


def cards_for_acu(milliacu: int | Fraction, card: CardModel, workload: str = DEFAULT_WORKLOAD) -> int:
    """Devices needed for an amount of compute in thousandths of an ACU, rounded up.

    Raises:
        NoRateError: the model has no rate in this class.
    """
    return ceil(Fraction(milliacu) / rate_of(card, workload).milliacu)


_RATED_FIELD: Final = {
    names.FP16_TFLOPS: "fp16_mtflops",
    names.FP32_TFLOPS: "fp32_mtflops",
    names.INT8_TOPS: "int8_mtops",
}


def rated_for(resource: str, card: CardModel) -> int | None:
    """The rated dense figure of one device that a TFLOPS or TOPS total is divided by, in thousandths of its unit.

    None where none is published. ``total-acu`` has no rated figure: use :func:`cards_for_acu`.
    """
    field = _RATED_FIELD.get(resource)
    value: int | None = getattr(card, field) if field else None
    return value or None


def rated_source(card: CardModel) -> Source:
    """What a rated figure of this model is worth: an estimate is derived, whatever sheet it is compared with."""
    return "derived" if card.confidence == "estimate" else "datasheet"


def cards_for_total(total: Total, card: CardModel, workload: str = DEFAULT_WORKLOAD) -> int | None:
    """Devices of a model that a total asks for, rounded up; None where no figure allows to say."""
    if total.resource == names.TOTAL_ACU:
        rate = card.rate(workload)
        return ceil(Fraction(total.amount * 1000, rate.milliacu)) if rate and rate.milliacu else None
    rated = rated_for(total.resource, card)
    return ceil(Fraction(total.amount * 1000, rated)) if rated else None


def weaker(one: Source, other: Source) -> Source:
    """The less trusted of two sources.

    >>> weaker("measured", "derived")
    'derived'
    """
    return max(one, other, key=SOURCES.index)


def in_words(wanted: str, wanted_milliacu: int, got: str, got_milliacu: int) -> str:
    """What one card of a model is worth in another, for people.

    >>> in_words("A100", 100_000, "910B2", 41_450)
    '1 A100 = 2.41 910B2'
    """
    hundredths = wanted_milliacu * 100 // max(got_milliacu, 1)
    return f"1 {wanted} = {hundredths // 100}.{hundredths % 100:02d} {got}"


_REFERENCE_RATING: Final = {
    names.FP16_TFLOPS: Fraction(312),
    names.FP32_TFLOPS: Fraction("19.5"),
    names.INT8_TOPS: Fraction(624),
    names.TOTAL_ACU: Fraction(100),
}
"""Rated dense figures of an A100-SXM4-80GB, in the resource's own unit; each is 100 ACU. Source: ``ratings.csv``."""


def charges_of_total(total: Total) -> int:
    """Whole ACU charged for a total, rounded up.

    Raises:
        KeyError: the resource is not one of :data:`hcs.model.names.TOTALS`.

    >>> charges_of_total(Total("ai.compute/fp16-tflops", 100))
    33
    """
    return ceil(total.amount * 100 / _REFERENCE_RATING[total.resource])
