"""One cell of a tool's output → a value in our units, or None.

Each function knows the spellings of "unknown" and takes a number only with a unit it understands, so that a cut-off,
masked or foreign cell becomes null and never zero. ``unit`` is the unit the header or key gave, for tools that print
it there; a unit in the cell wins. The same words in other units are refused rather than guessed: MB may mean MiB or
10^6 bytes, and only the caller can know.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

Number = int | float
Reader = Callable[[str], object]

UNKNOWN: Final = (
    r"\[?\(?(?:N/?A|NA|Not (?:Supported|Available|Applicable)|Unsupported|None|Unknown(?: Error)?"
    r"|Insufficient Permissions"
    r"|(?:Requested )?functionality has been deprecated|(?:GPU )?requires reset|GPU is lost|ERR!?|Invalid|null|nan"
    r"|<unknown>|error|-+|/|\.\.\.)\)?\]?"
)
"""Everything that means "unknown", as a regular expression, to be matched without regard to case."""
NUMBER: Final = r"[+-]?[0-9]+(?:\.[0-9]+)?"

_UNKNOWN: Final = re.compile(rf"(?:{UNKNOWN})?", re.IGNORECASE)
_MASKED: Final = re.compile(r"x{3,}|\*{2,}|#{2,}|redacted|masked", re.IGNORECASE)
_ZEROS: Final = re.compile(r"(?:[a-z]+-)?(?:0x)?[0\-:. ]+", re.IGNORECASE)
_QUANTITY: Final = re.compile(rf"({NUMBER})\s*([^\s0-9].*)?", re.ASCII | re.DOTALL)
_INTEGER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_HEX: Final = re.compile(r"(?:0x)?[0-9a-fA-F]+", re.ASCII)
_BUS: Final = re.compile(r"(?:(?:[0-9a-f]{4,8}|[0-9a-f]{2}):)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_WIDTH: Final = re.compile(r"[xX]?([0-9]{1,2})|([0-9]{1,2})[xX]", re.ASCII)
_GENERATION: Final = re.compile(r"(?:Gen\s*)?([0-9])(?:\.0)?", re.ASCII | re.IGNORECASE)
_TRANSFERS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
_MOST_MIB: Final = 2**24
"""16 TiB: more is a figure in another unit."""
_WIDTHS: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
_MEMORY: Final = {"kib": 1 / 1024, "mib": 1, "gib": 1024, "tib": 1024 * 1024, "b": 2**-20, "bytes": 2**-20}
_POWER: Final = {"w": 1, "mw": 1 / 1000, "kw": 1000}
_FREQUENCY: Final = {"mhz": 1, "ghz": 1000}
_RATE: Final = {"gb/s": 1, "mb/s": 1 / 1000}


def word(text: str | None) -> str | None:
    """The text without blanks around it; None where it means unknown or was masked."""
    text = " ".join((text or "").split())
    return None if _UNKNOWN.fullmatch(text) or _MASKED.search(text) else text


def mode(text: str | None) -> str | None:
    """A mode's name; None for figures, which some releases print in its column."""
    found = word(text)
    return None if found is None or re.search(r"[0-9%]", found) else found


def state(text: str | None) -> str | None:
    """A tool's own word for a device's health; here "Not Available" and "Unknown" are statements."""
    text = " ".join((text or "").split())
    return text if re.search(r"[A-Za-z]{2}", text) and text.upper() not in ("N/A", "NA", "NONE") else None


def name(text: str | None) -> str | None:
    """A model's name; None where the tool shortened it with dots."""
    found = word(text)
    return None if found is None or found.endswith("...") else found


def identifier(text: str | None) -> str | None:
    """A UUID or serial number; None where it is all zeros, which is how people mask them."""
    found = word(text)
    return None if found is None or _ZEROS.fullmatch(found) else found


def bus_id(text: str | None) -> str | None:
    """A PCI address as the tool writes it; None where it is masked or all zeros."""
    found = word(text)
    if found is None or not _BUS.fullmatch(found):
        return None
    return found if re.search(r"[1-9a-fA-F]", found) else None


def integer(text: str | None) -> int | None:
    """A count or an id, without any unit."""
    found = word(text)
    return int(found) if found is not None and _INTEGER.fullmatch(found) else None


def hexadecimal(text: str | None) -> str | None:
    """A hexadecimal id, as written."""
    found = word(text)
    return found if found is not None and _HEX.fullmatch(found) else None


def percent(text: str | None, unit: str = "") -> Number | None:
    """A share from 0 to 100 per cent."""
    found = _in_units(text, {"%": 1, "pct": 1}, unit)
    return found if found is not None and 0 <= found <= 100 else None


def celsius(text: str | None, unit: str = "") -> Number | None:
    """A temperature a card can have, in degrees Celsius."""
    scale: dict[str, float] = {"c": 1, "°c": 1, "℃": 1, "celsius": 1, "celsius degree": 1, "degrees c": 1}
    found = _in_units(text, scale, unit)
    return found if found is not None and -60 <= found <= 200 else None


def degrees(text: str | None, unit: str = "") -> Number | None:
    """A distance between two temperatures, which may be negative, in degrees Celsius."""
    return celsius(text, unit)


def watts(text: str | None, unit: str = "") -> Number | None:
    """Power drawn, in watts."""
    found = _in_units(text, _POWER, unit)
    return found if found is not None and 0 <= found < 100_000 else None


def power_cap(text: str | None, unit: str = "") -> Number | None:
    """A power limit in watts. None for 0: no card runs on nothing; second dies of a package print that."""
    return watts(text, unit) or None


def mebibytes(text: str | None, unit: str = "", *, decimal_names: bool = False) -> Number | None:
    """An amount of memory in MiB.

    Args:
        text: the cell.
        unit: the header's unit.
        decimal_names: whether this tool writes MB and means MiB.
    """
    scale: dict[str, float] = dict(_MEMORY)
    if decimal_names:
        scale |= {"mb": 1, "m": 1, "gb": 1024}
    found = _in_units(text, scale, unit)
    return found if found is not None and 0 <= found < _MOST_MIB else None


def total_memory(text: str | None, unit: str = "", *, decimal_names: bool = False) -> Number | None:
    """A card's memory in MiB. None for 0: no card has none."""
    return mebibytes(text, unit, decimal_names=decimal_names) or None


def megahertz(text: str | None, unit: str = "") -> Number | None:
    """A clock in MHz."""
    found = _in_units(text, _FREQUENCY, unit)
    return found if found is not None and found >= 0 else None


def gigabytes_per_second(text: str | None, unit: str = "") -> Number | None:
    """A bandwidth in GB/s."""
    return _in_units(text, _RATE, unit)


def kilobytes_per_second(text: str | None, unit: str = "") -> Number | None:
    """A throughput in KB/s, as NVIDIA's tools print it."""
    return _in_units(text, {"kb/s": 1}, unit)


def mebibytes_per_second(text: str | None, unit: str = "") -> Number | None:
    """A throughput in MiB/s, as Enflame's tool prints it."""
    return _in_units(text, {"mib/s": 1}, unit)


def microseconds(text: str | None, unit: str = "") -> Number | None:
    """A duration in microseconds."""
    return _in_units(text, {"us": 1}, unit)


def pcie_generation(text: str | None) -> int | None:
    """``4``, ``Gen4`` or ``4.0`` as 4."""
    match = _GENERATION.fullmatch(word(text) or "")
    return int(match.group(1)) if match and 1 <= int(match.group(1)) <= 7 else None


def generation_of_speed(text: str | None) -> int | None:
    """``16.0GT/s`` as generation 4."""
    found = _in_units(text, {"gt/s": 1}, "")
    return _TRANSFERS.get(float(found)) if found is not None else None


def pcie_width(text: str | None) -> int | None:
    """``16x``, ``X16`` or ``16`` as 16 lanes."""
    match = _WIDTH.fullmatch(word(text) or "")
    lanes = int(match.group(1) or match.group(2)) if match else 0
    return lanes if lanes in _WIDTHS else None


def version(text: str | None) -> str | None:
    """A version without the letter v before it."""
    found = word(text)
    if found is None or not re.search(r"[0-9]", found):
        return None
    return found[1:] if re.match(r"[vV][0-9]", found) else found


def flag(text: str | None) -> bool | None:
    """Whether something is active: ``Active``, ``Yes`` and their opposites."""
    found = (word(text) or "").lower()
    if found in ("active", "yes", "true"):
        return True
    return False if found in ("not active", "no", "false") else None


def _in_units(text: str | None, scale: Mapping[str, float], header: str) -> Number | None:
    match = _QUANTITY.fullmatch((text or "").strip())
    if match is None or len(match.group(1)) > 24:
        return None
    unit = (match.group(2) or header).strip().lower()
    factor = scale.get(unit)
    if factor is None:
        return None
    number: Number = float(match.group(1)) if "." in match.group(1) else int(match.group(1))
    if factor == 1:
        return number
    result = number * factor
    return int(result) if result == int(result) else result
