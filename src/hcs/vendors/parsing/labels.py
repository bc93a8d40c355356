"""The headings that tools put over their columns, and what may stand under each.

One list for all tools that draw boxes: they imitate each other, and a heading means the same wherever it is used. A
heading's cell shape is a pattern with the groups that become facts; the unit in the heading, as in ``Temp(C)``, stands
for the one the cell lacks.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hcs.vendors.parsing import values
from hcs.vendors.parsing.values import NUMBER, UNKNOWN

Read = Callable[[str | None], Any]

_U: Final = f"(?:{UNKNOWN}|[xX*#]{{3,}})"
_WORD: Final = r"(\S+)"
_WORDS: Final = r"(\S(?:.*?\S)?)"
_INT: Final = rf"([0-9]+|{_U})"
_BARE: Final = rf"({NUMBER}|{_U})"
_PERCENT: Final = rf"({NUMBER}\s*%|{_U})"
_DEGREES: Final = rf"({NUMBER}\s*(?:°\s?C|℃|C)|{_U})"
_WATT: Final = rf"({NUMBER}\s*m?W|{_U})"
_CLOCK: Final = rf"({NUMBER}\s*[MG]Hz|{_U})"
_BUS: Final = rf"([0-9a-fA-FxX*]{{2,8}}(?::[0-9a-fA-FxX*]{{2}}){{1,2}}\.\w|{_U})"
_BYTES: Final = rf"(?:{NUMBER}|[xX*]{{3,}})\s*[KMGT]?i?B"
_SIZE: Final = rf"({_BYTES}|{_U})"
_USED: Final = rf"({NUMBER}(?:\s*[KMGT]i?B)?|{_U})"
_PAIR: Final = rf"{_USED}\s*/\s*{_SIZE}"
_PLAIN_PAIR: Final = rf"{_BARE}\s*/\s*{_BARE}"


class Label(msgspec.Struct, frozen=True):
    """A heading: how it is spelled, what a cell under it looks like, and the facts its groups become."""

    spelling: str
    cell: str
    facts: tuple[tuple[str, Read], ...]


def _mib(text: str | None) -> Any:
    return values.mebibytes(text)


def _total(text: str | None) -> Any:
    return values.total_memory(text)


def _npu_mib(text: str | None) -> Any:
    return values.mebibytes(text, "MB", decimal_names=True)


def _one(fact: str, read: Read) -> tuple[tuple[str, Read], ...]:
    return ((fact, read),)


def _in(unit: str, read: Callable[[str | None, str], Any]) -> Read:
    return lambda text: read(text, unit)


def _pair(used: str, total: str, read: Read) -> tuple[tuple[str, Read], ...]:
    return ((used, read), (total, read))


LABELS: Final[tuple[Label, ...]] = (
    # Who it is.
    Label(r"GPU|AIP|XPU|Card|DEV|ID|Device|HCU|DCU", _INT, _one("index", values.integer)),
    Label(r"NPU", _INT, _one("npu_id", values.integer)),
    Label(r"Chip", _INT, _one("chip_id", values.integer)),
    Label(r"Phy-?ID", _INT, _one("physical_id", values.integer)),
    Label(r"Board", _INT, _one("board_id", values.integer)),
    Label(r"Name", _WORDS, _one("name", values.name)),
    Label(r"Bus-?\s?Id|PCIe", _BUS, _one("bus_id", values.bus_id)),
    Label(r"VF", _WORD, _one("virtual_function", values.integer)),
    Label(r"SN", _WORD, _one("serial", values.identifier)),
    Label(r"(?:Boot )?FW VER|Firmware", _WORD, _one("firmware_version", values.version)),
    Label(r"Driver(?:-Version)?", _WORD, _one("driver_version", values.version)),
    Label(r"Inited", _WORD, _one("initialised", values.word)),
    Label(r"Device Type", _WORD, _one("device_type", values.word)),
    # How it is.
    Label(r"Health|GPU-State", _WORDS, _one("health", values.state)),
    Label(r"Volatile Uncorr\. ECC", _WORD, _one("ecc_errors", values.integer)),
    Label(r"Ecc-Error", _WORD, _one("ecc_errors", values.integer)),
    Label(r"ECC Mode", _WORDS, _one("ecc_mode", values.word)),
    Label(r"ECC", _WORD, _one("ecc_mode", values.word)),
    # Heat, power, clocks.
    Label(r"Fan", _PERCENT, _one("fan_pct", values.percent)),
    Label(r"Temp\(C\)", _BARE, _one("temperature_c", _in("C", values.celsius))),
    Label(r"Temp", _DEGREES, _one("temperature_c", values.celsius)),
    Label(r"Perf|Pstate", _WORD, _one("performance_state", values.word)),
    Label(r"Dpm|Lpm", _WORD, _one("power_level", values.word)),
    Label(
        r"Pwr:\s?Usage/Cap|Pwr\(Usage/Cap\)",
        rf"(?:{_WATT}(?:\s*/\s*|\s+){_WATT}|{_U})",
        (("power_w", values.watts), ("power_cap_w", values.power_cap)),
    ),
    Label(r"Power\(W\)", _BARE, _one("power_w", _in("W", values.watts))),
    Label(r"Power|Pwr", _WATT, _one("power_w", values.watts)),
    Label(r"Clock-SM", _CLOCK, _one("sm_clock_mhz", values.megahertz)),
    Label(r"Clock-Mem", _CLOCK, _one("memory_clock_mhz", values.megahertz)),
    # Memory and load.
    Label(
        r"v-?Memory-Usage",
        _PAIR,
        (("virtual_memory_used_mib", _mib), ("virtual_memory_total_mib", _total)),
    ),
    Label(r"Memory-Usage", _PAIR, (("memory_used_mib", _mib), ("memory_total_mib", _total))),
    Label(r"L3-Usage", _PAIR, (("l3_used_mib", _mib), ("l3_total_mib", _total))),
    Label(r"Memory-Usage\(MB\)", _PLAIN_PAIR, _pair("ddr_used_mib", "ddr_total_mib", _npu_mib)),
    Label(r"HBM-Usage\(MB\)", _PLAIN_PAIR, _pair("hbm_used_mib", "hbm_total_mib", _npu_mib)),
    Label(
        r"Hugepages-Usage\s?\(page\)",
        _PLAIN_PAIR,
        _pair("hugepages_used_pages", "hugepages_total_pages", values.integer),
    ),
    Label(
        r"Mem",
        rf"(?:([0-9]+\s*[KMGT]iB)\s*\(\s*([0-9]+\s*[KMGT]iB)\s*\)|{_SIZE})",
        (("memory_used_mib", _mib), ("memory_total_mib", _total), ("memory_total_mib", _total)),
    ),
    Label(r"(?:GPU|AIP|XPU|MLU)-Util|Util|%GPU", _PERCENT, _one("utilization_pct", values.percent)),
    Label(r"AICore\(%\)", _BARE, _one("utilization_pct", _in("%", values.percent))),
    Label(r"DUsed", _PERCENT, _one("utilization_pct", values.percent)),
    # Modes.
    Label(r"Persistence-?M\.?|Persist-?M\.?", _WORD, _one("persistence_mode", values.word)),
    Label(r"TCC/WDDM|Driver-Model", _WORD, _one("driver_model", values.word)),
    Label(r"Disp\.A", _WORD, _one("display_active", values.word)),
    Label(r"Compute M\.|Compute-Mode", _WORDS, _one("compute_mode", values.mode)),
    Label(r"MIG M\.", _WORD, _one("mig_mode", values.word)),
    Label(r"SR-IOV(?: M\.)?", _WORD, _one("sriov_mode", values.word)),
    Label(r"sGPU-M\.?", _WORD, _one("sgpu_mode", values.word)),
    Label(r"Mode", _WORD, _one("virtualization_mode", values.word)),
    Label(r"GCU Virt", _WORD, _one("virtualization_mode", values.word)),
    Label(r"MPC Capable", _WORD, _one("mpc_capable", values.word)),
    Label(
        r"Pcie Lane Width",
        r"([0-9]+x)\(([0-9]+x)\)",
        (("pcie_width_current", values.pcie_width), ("pcie_width_max", values.pcie_width)),
    ),
)

_FOREIGN: Final = re.compile(r"\b(?:PID|Process(?:es)?|GI|CI|Shared|Vol)\b", re.IGNORECASE)


class Cell(msgspec.Struct, frozen=True):
    """A heading cell compiled: the pattern of the cells under it, and the fact of each of its groups."""

    pattern: re.Pattern[str]
    facts: tuple[tuple[str, Read], ...]
    known: int


def is_foreign(heading: str) -> bool:
    """Whether a heading belongs to a list of processes or of partitions rather than of devices."""
    return _FOREIGN.search(heading) is not None


_SPELLED: Final = [(label, re.compile(rf"(?:{label.spelling})(?![\w(%:/-])", re.IGNORECASE)) for label in LABELS]


def compile_cell(heading: str) -> Cell:
    """Read one heading cell, which may hold several headings; unknown ones take one word and become no fact."""
    rest = " ".join(heading.split())
    parts: list[str] = []
    facts: list[tuple[str, Read]] = []
    known = 0
    while rest:
        length, label = max(
            ((_length(spelled, rest), label) for label, spelled in _SPELLED), key=lambda found: found[0]
        )
        if not length:
            _, _, rest = rest.partition(" ")
            parts.append(r"\S+")
            continue
        parts.append(label.cell)
        facts += label.facts
        known += 1
        rest = rest[length:].strip()
    return Cell(re.compile(r"\s+".join(parts), re.IGNORECASE), tuple(facts), known)


def _length(spelled: re.Pattern[str], text: str) -> int:
    match = spelled.match(text)
    return match.end() if match else 0
