"""What people write behind an annotation of a job: numbers quoted or not, sizes, moments, lists of inputs.

Each reader returns a value in base units or raises :class:`AmountError` with what was seen and how to write it. A
number is positive, finite and below a limit that no real job reaches, so that nothing later has to fear it.
"""

import datetime
import math
import re
from typing import Any, Final

from hcs.model.quantities import MAX_AMOUNT, QuantityError, parse_bytes
from hcs.wide.jobs import Blob, Bytes, Milliseconds

MOST_INPUTS: Final = 256
LONGEST: Final[Milliseconds] = 10 * 365 * 86_400_000
"""A deadline further away than ten years is a typing mistake."""
MOST_CPUS: Final = 100_000
MIB: Final = 1 << 20

_NUMBER: Final = re.compile(
    r"[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,4})?|\.[0-9]{1,30}(?:[eE][+-]?[0-9]{1,4})?"
)
_SIZED: Final = re.compile(r"([0-9][0-9.]*)\s*([KMGTP]i|[kKMGTP])[bB]?")
_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|s|m|h|d|w))+")
_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h|d|w)")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DIGEST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_SHOWN: Final = 60


class AmountError(ValueError):
    """Something nobody could have meant; the message shows how to write it."""


def read_number(value: Any, *, most: float) -> float:
    """Read a positive number, quoted or not.

    >>> read_number(20, most=1e9), read_number(" 2.5e1 ", most=1e9)
    (20.0, 25.0)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise AmountError(f"{shown(value)} is no number; write one, like 20")
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip().removeprefix("+")) is None:
        if value.strip().startswith("-") and _NUMBER.fullmatch(value.strip()[1:]):
            raise AmountError(f"{shown(value)} is negative; write a number above 0, like 20")
        raise AmountError(f"{shown(value)} is no number; write one, like 20")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        raise AmountError(f"{shown(value)} is no number; write one, like 20")
    if number < 0:
        raise AmountError(f"{shown(value)} is negative; write a number above 0, like 20")
    if number > most:
        raise AmountError(f"{shown(value)} is absurdly much; the limit is {most:g}")
    if number < 1e-9:
        raise AmountError(f"{shown(value)} is nothing; write a number above 0, like 20")
    return number


def read_data_size(value: Any) -> tuple[float, bool]:
    """Read an amount of data: a plain number in the user's own unit, or a size in bytes, which is given in MiB.

    Returns:
        The amount, and whether it was a size.

    >>> read_data_size("50000"), read_data_size("20Gi")
    ((50000.0, False), (20480.0, True))
    """
    if isinstance(value, str) and (match := _SIZED.fullmatch(value.strip())) is not None:
        number, unit = match.groups()
        try:
            size = parse_bytes(number + ("k" if unit == "K" else unit))
        except QuantityError as error:
            raise AmountError(str(error)) from error
        if size == 0:
            raise AmountError(f"{shown(value)} is nothing; write how much data there is, like 50000 or 20Gi")
        return size / MIB, True
    return read_number(value, most=1e15), False


def read_priority(value: Any) -> int:
    """Read a whole number, as Kubernetes bounds priorities."""
    text = str(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None or not -(2**31) <= int(text) <= 10**9:
        raise AmountError(
            f"{shown(value)} is no priority; write a whole number from -2147483648 to 1000000000, 0 is usual"
        )
    return int(text)


def read_deadline(value: Any, now: Milliseconds) -> Milliseconds:
    """Read a moment (RFC 3339) or a time from now, as milliseconds since 1970.

    >>> read_deadline("1h30m", 0), read_deadline("1970-01-02T00:00:00Z", 0)
    (5400000, 86400000)
    """
    example = "write a moment like 2030-01-31T18:00:00Z, or a time from now like 6h or 2d12h"
    text = value.strip() if isinstance(value, str) else ""
    if _DURATION.fullmatch(text):
        try:
            span = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        except ValueError:
            raise AmountError(f"{shown(value)} is no time; {example}") from None
        if not 1 <= span <= LONGEST:
            raise AmountError(f"{shown(value)} is {'nothing' if span < 1 else 'more than ten years'}; {example}")
        return now + round(span)
    try:
        moment = datetime.datetime.fromisoformat(text) if len(text) >= len("2030-01-31T18:00") else None
    except ValueError:
        moment = None
    if moment is None:
        raise AmountError(f"{shown(value)} is no moment; {example}")
    if moment.tzinfo is None:
        raise AmountError(f"{shown(value)} does not say in which time zone; add Z, or one like +01:00")
    at = round((moment - _EPOCH).total_seconds() * 1000)
    if at <= now:
        raise AmountError(f"{shown(value)} has passed; {example}, or leave it out")
    if at > now + LONGEST:
        raise AmountError(f"{shown(value)} is more than ten years away; {example}")
    return at


def read_inputs(value: Any) -> tuple[Blob, ...]:
    """Read a list of ``digest=size``, separated by commas or blanks.

    >>> read_inputs("sha256:0a1b=2Gi, imagenet=150Gi")[1]
    Blob(digest='imagenet', size=161061273600)
    """
    if not isinstance(value, str):
        raise AmountError(f"{shown(value)} is no list of inputs; write it like sha256:DIGEST=2Gi")
    found: dict[str, Bytes] = {}
    for word in value.replace(",", " ").split():
        digest, equals, text = word.rpartition("=")
        if not equals or _DIGEST.fullmatch(digest) is None:
            raise AmountError(f"{shown(word)} is no input; write it like sha256:DIGEST=2Gi")
        try:
            size = parse_bytes(text)
        except QuantityError as error:
            raise AmountError(f"input {shown(digest)}: {error}") from error
        if found.setdefault(digest, size) != size:
            raise AmountError(f"input {shown(digest)} is named with two sizes; equal digests are the same bytes")
        if len(found) > MOST_INPUTS:
            raise AmountError(f"more than {MOST_INPUTS} inputs; pack them into fewer")
    if sum(found.values()) > MAX_AMOUNT:
        raise AmountError(f"the inputs have {sum(found.values())} bytes together, more than {MAX_AMOUNT} are refused")
    return tuple(Blob(digest, size) for digest, size in found.items())


def read_cpu(value: Any) -> int:
    """Read an amount of CPU in thousandths of one.

    >>> read_cpu("500m"), read_cpu(2), read_cpu("1.5")
    (500, 2000, 1500)
    """
    text = str(value).strip() if not isinstance(value, bool) else ""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(m?)", text)
    if match is None:
        raise AmountError(f"{shown(value)} is no amount of CPU; write it like 500m or 2")
    thousandths = math.ceil(float(match[1]) * (1 if match[2] else 1000))
    if thousandths > MOST_CPUS * 1000:
        raise AmountError(f"{shown(value)} is more CPU than a node has; the limit is {MOST_CPUS}")
    return thousandths


def read_memory(value: Any) -> Bytes:
    """Read an amount of host memory; a number need not be quoted, and thousandths are allowed as in Kubernetes.

    >>> read_memory("1Gi"), read_memory(2e3), read_memory("1500m")
    (1073741824, 2000, 2)
    """
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if re.fullmatch(r"[0-9]{1,18}m", text):
        return -(-int(text[:-1]) // 1000)
    try:
        return parse_bytes(text)
    except QuantityError as error:
        raise AmountError(str(error)) from error


def shown(value: Any) -> str:
    """A value in a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
