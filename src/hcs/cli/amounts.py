"""What people write for an amount of compute: ``2 x 910B2``, ``250 ACU``, ``100 TFLOPS FP16``, or just a card."""

import re
from fractions import Fraction
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.quantities import MAX_AMOUNT


class AmountError(ValueError):
    """An amount that cannot be read; the message shows how to write it."""


class CardsAmount(msgspec.Struct, frozen=True):
    """A number of cards; ``count`` is None where only the card was named."""

    name: str
    count: int | None


class AcuAmount(msgspec.Struct, frozen=True):
    """Compute in thousandths of an ACU."""

    milliacu: Fraction


class RatedAmount(msgspec.Struct, frozen=True):
    """A rated total in thousandths of a TFLOPS or TOPS; ``label`` is the unit as people write it."""

    resource: str
    thousandths: Fraction
    label: str


Amount = CardsAmount | AcuAmount | RatedAmount

_NUMBER: Final = r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?)"
_CARDS: Final = re.compile(r"(?P<count>[0-9]{1,7})(?:\s*[x×*]\s*|\s+)(?P<name>\S.*)", re.IGNORECASE)
_ACU: Final = re.compile(_NUMBER + r"\s*m?ACU", re.IGNORECASE)
_RATED: Final = re.compile(
    _NUMBER + r"\s*(?P<before>FP16|FP32|INT8)?\s*(?P<unit>[TP](?:FLOPS|OPS))(?:\s+|\s*)(?P<after>FP16|FP32|INT8)?",
    re.IGNORECASE,
)
_RESOURCES: Final = {"FP16": names.FP16_TFLOPS, "FP32": names.FP32_TFLOPS, "INT8": names.INT8_TOPS}
_EXAMPLES: Final = "write it like '2 x 910B2', '250 ACU', '100 TFLOPS FP16' or A100-SXM4-80GB"


def read_amount(text: str) -> Amount:
    """Read an amount; anything that is no amount of another kind is a card's name.

    Raises:
        AmountError: zero, absurdly much, or a precision that does not go with its unit.

    >>> read_amount("2 x 910B2")
    CardsAmount(name='910B2', count=2)
    """
    text = " ".join(text.split())
    if not text:
        raise AmountError(f"the amount is empty; {_EXAMPLES}")
    if match := _ACU.fullmatch(text):
        scale = 1 if text.lower().endswith("macu") else 1000
        return AcuAmount(_bounded(Fraction(match["number"]) * scale, text))
    if match := _RATED.fullmatch(text):
        return _rated(match, text)
    if match := _CARDS.fullmatch(text):
        return CardsAmount(match["name"], int(_bounded(Fraction(match["count"]), text)))
    if re.fullmatch(r"[0-9.]+", text):
        raise AmountError(f"{text!r} has no unit; {_EXAMPLES}")
    return CardsAmount(text, None)


def _rated(match: re.Match[str], text: str) -> RatedAmount:
    unit = match["unit"].upper()
    precisions = {word.upper() for word in (match["before"], match["after"]) if word}
    if len(precisions) > 1:
        raise AmountError(f"{text!r} names two precisions; keep one of FP16, FP32 and INT8")
    precision = precisions.pop() if precisions else ("INT8" if unit.endswith("TOPS") or unit == "POPS" else "FP16")
    if (precision == "INT8") != (not unit.endswith("FLOPS")):
        raise AmountError(f"{text!r} mixes {precision} and {unit}; FP16 and FP32 go with TFLOPS, INT8 with TOPS")
    scale = 1000 * (1000 if unit.startswith("P") else 1)
    amount = _bounded(Fraction(match["number"]) * scale, text)
    return RatedAmount(_RESOURCES[precision], amount, f"{precision} {'TOPS' if precision == 'INT8' else 'TFLOPS'}")


def _bounded(value: Fraction, text: str) -> Fraction:
    if value <= 0:
        raise AmountError(f"{text!r} is nothing; ask for at least 1")
    if value > MAX_AMOUNT:
        raise AmountError(f"{text!r} is more compute than there is; {_EXAMPLES}")
    return value
