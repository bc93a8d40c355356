"""Words in annotations and configuration files: booleans, whole numbers, durations, paths, hashes.

Each reader gives None for what it cannot read; who asked knows the key and writes the sentence.
"""

import re
from fractions import Fraction
from typing import Any, Final

INT32_MAX: Final = 2**31 - 1
"""The largest number that fits an int of micad's create message."""
_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_DURATION: Final = re.compile(r"\+?((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|ms|s|m|h))+")
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": -9, "us": -6, "µs": -6, "ms": -3}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_HASH: Final = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


def read_bool(text: str) -> bool | None:
    """``1 t true`` and ``0 f false``, in any case.

    >>> read_bool("T"), read_bool("0"), read_bool("yes")
    (True, False, None)
    """
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def read_whole(value: Any) -> int | None:
    """A whole number, as a number or as decimal digits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else None


def read_duration(text: str) -> int | None:
    """Milliseconds of a duration: a whole number of seconds, or numbers with units like ``1m30s``, ``500ms``.

    >>> read_duration("30"), read_duration("1m30s"), read_duration("0"), read_duration("soon")
    (30000, 90000, 0, None)
    """
    if len(text) > 64:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text) * 1000
    if not _DURATION.fullmatch(text):
        return None
    seconds = Fraction(0)
    for number, unit in _PART.findall(text):
        scale = Fraction(_SECONDS[unit]) if unit in _SECONDS else Fraction(10) ** _UNITS[unit]
        seconds += Fraction(number.rstrip(".")) * scale
    return int(seconds * 1000) if seconds < 10**9 else None


def read_inner_path(text: str) -> str | None:
    """A path inside the rootfs, relative and without ``..``; None when it leaves the rootfs by its words alone.

    Links are another matter, and looked at where the files are.

    >>> read_inner_path("/boot/../app.elf"), read_inner_path("../../etc/passwd")
    ('app.elf', None)
    """
    parts: list[str] = []
    for part in text.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts) if parts and "\0" not in text else None


def read_hash(text: str) -> str | None:
    """The 64 hex digits of a SHA-256, lower-case; ``sha256:`` may stand before them."""
    match = _HASH.fullmatch(text)
    return match[1].lower() if match else None
