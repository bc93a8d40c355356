"""Kubernetes quantities on the wire: exact values and the canonical spelling the API server gives back.

The server rewrites what people type (``1024Mi`` becomes ``1Gi``, ``0.5`` becomes ``500m``), and our programs see the
rewritten form. Promises: exact arithmetic (fractions), and ``canonical(canonical(x)) == canonical(x)``.
"""

from __future__ import annotations

import re
from fractions import Fraction

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT = {power: suffix for suffix, power in _DECIMAL.items()}
_SHAPE = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")
REGEX_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # the server's words
)


class QuantityError(ValueError):
    """Text that is no quantity; the message is the one the API server gives."""


def parse(text: object) -> tuple[Fraction, str]:
    """Read a quantity: its exact value and its family, ``binary``, ``decimal`` or ``exponent``."""
    spelled = str(text).strip() if not isinstance(text, bool) else ""
    shape = _SHAPE.match(spelled)
    if shape is None:
        raise QuantityError(REGEX_MESSAGE)
    number, suffix = Fraction(shape.group(1)), shape.group(2) or ""
    if suffix in _BINARY:
        return number * 1024 ** _BINARY[suffix], "binary"
    if suffix in _DECIMAL:
        return number * Fraction(10) ** _DECIMAL[suffix], "decimal"
    exponent = int(suffix[1:])
    if abs(exponent) > 30:
        raise QuantityError(REGEX_MESSAGE)
    return number * Fraction(10) ** exponent, "exponent"


def value(text: object) -> Fraction:
    """The exact value of a quantity in its base unit (bytes, cores, pieces)."""
    return parse(text)[0]


def spell(amount: Fraction, family: str) -> str:
    """Write an amount canonically in a family; rounds up to a billionth as the server does."""
    if family == "binary" and amount.denominator == 1 and abs(amount) >= 1024:
        whole, power = amount.numerator, 0
        while power < 6 and whole % 1024 == 0:
            whole, power = whole // 1024, power + 1
        if power:  # without a suffix nothing says binary, and the server reads back what it stored
            return f"{whole}{['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'][power]}"
    nanos = -((-amount * 10**9) // 1)
    whole, power = int(nanos), -9
    if whole == 0:
        return "0"
    while power < 18 and whole % 1000 == 0:
        whole, power = whole // 1000, power + 3
    if family == "exponent":
        return f"{whole}e{power}" if power else str(whole)
    return f"{whole}{_EXPONENT[power]}"


def canonical(text: object, *, thousandths: bool = False) -> str:
    """The spelling a real API server stores and returns.

    >>> canonical("1.5Gi"), canonical("0.5"), canonical(16)
    ('1536Mi', '500m', '16')
    """
    amount, family = parse(text)
    if thousandths:
        amount = Fraction(-((-amount * 1000) // 1), 1000)
    return spell(amount, family)


def is_countable(text: object) -> bool:
    """Whether an extended resource may carry this amount: whole, and small enough to count in thousandths (int64)."""
    amount = value(text)
    return amount.denominator == 1 and abs(amount) * 1000 <= 2**63 - 1
