"""Exact amounts: memory, ACU, counts, and the words people write for them.

Everything is parsed once where data enters and is an exact integer in its base unit from then on: bytes for memory,
thousandths of an ACU for compute (a share of a card is rarely a whole ACU), plain counts for the rest. Floating point
never decides whether something fits.
"""

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final, NewType

Bytes = NewType("Bytes", int)
MilliAcu = NewType("MilliAcu", int)

GIB: Final = 1 << 30
MAX_AMOUNT: Final = 1 << 50
"""The largest amount accepted anywhere: a pebibyte on one card, or as many ACU; beyond it is a typing mistake."""

_BINARY: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_QUANTITY: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)([eE][+-]?[0-9]{1,3}|[A-Za-z]*)")


class QuantityError(ValueError):
    """A quantity no one could have meant; the message shows how to write it."""


def parse_amount(text: str | int, *, what: str = "an amount", example: str = "1 or 16Gi") -> int:
    """Read a Kubernetes quantity that must be a whole, positive or zero number.

    All forms Kubernetes accepts for an extended resource are read: ``16Gi``, ``16G``, ``1.5Gi``, ``100e3``, ``4``.

    Args:
        text: the quantity as written.
        what: the name used in the error.
        example: how it should be written, used in the error.

    Raises:
        QuantityError: not a number, negative, not whole, or above :data:`MAX_AMOUNT`.

    >>> parse_amount("1.5Ki")
    1536
    """
    if isinstance(text, int):
        text = str(text)
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or len(text) > 64:
        raise QuantityError(f"cannot read {_shown(text)} as {what}; write it like {example}")
    number, suffix = match.groups()
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix not in _BINARY:
        scale = Fraction(10) ** int(suffix[1:])
    elif suffix in _BINARY:
        scale = Fraction(_BINARY[suffix])
    elif suffix in _DECIMAL:
        scale = Fraction(_DECIMAL[suffix])
    else:
        raise QuantityError(f"cannot read {_shown(text)} as {what}: unknown unit {suffix!r}; write it like {example}")
    value = Fraction(Decimal(number)) * scale
    if value.denominator != 1:
        raise QuantityError(f"{_shown(text)} is not whole; {what} must be a whole number, like {example}")
    if value < 0:
        raise QuantityError(f"{_shown(text)} is negative; {what} must be zero or more, like {example}")
    if value > MAX_AMOUNT:
        raise QuantityError(f"{_shown(text)} is more than {what} can be (limit {MAX_AMOUNT}); write it like {example}")
    return int(value)


def parse_bytes(text: str | int) -> Bytes:
    """Read a memory quantity into bytes.

    Raises:
        QuantityError: see :func:`parse_amount`.

    >>> parse_bytes("16Gi")
    17179869184
    """
    return Bytes(parse_amount(text, what="memory in bytes", example="512Mi or 16Gi"))


def parse_count(text: str | int, *, what: str = "a count") -> int:
    """Read a count.

    Raises:
        QuantityError: see :func:`parse_amount`.
    """
    return parse_amount(text, what=what, example="1 or 8")


def parse_acu(text: str | int) -> MilliAcu:
    """Read whole ACU into thousandths.

    Raises:
        QuantityError: see :func:`parse_amount`.

    >>> parse_acu("40")
    40000
    """
    return MilliAcu(parse_amount(text, what="ACU", example="40 (percent of an A100)") * 1000)


def format_bytes(amount: int) -> str:
    """Write bytes exactly, in the largest binary unit that divides them.

    >>> format_bytes(17179869184), format_bytes(1000)
    ('16Gi', '1000')
    """
    for suffix, scale in reversed(_BINARY.items()):
        if amount and amount % scale == 0:
            return f"{amount // scale}{suffix}"
    return str(amount)


def show_bytes(amount: int) -> str:
    """Write bytes for people: at most one decimal, rounded down (``11.9Gi``)."""
    for suffix, scale in reversed(_BINARY.items()):
        if amount >= scale:
            tenths = amount * 10 // scale
            return f"{tenths // 10}{suffix}" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}{suffix}"
    return str(amount)


def show_acu(amount: int) -> str:
    """Write thousandths of an ACU for people, with one decimal where it matters.

    >>> show_acu(40000), show_acu(121567)
    ('40', '121.5')
    """
    tenths = amount // 100
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
