"""Enflame's ``efsmi``: the table, whose memory column is the total alone, and ``-q``, whose keys have changed names.

``DUsed`` is how busy the device is.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from hcs.vendors.parsing import outlines, tables, values
from hcs.vendors.parsing.report import Report, agreed, reading

_DEVICE: Final = re.compile(r"^[ \t]*DEV ID[ \t]+([0-9]+)[ \t]*$", re.MULTILINE)
_KEYS: Final[dict[tuple[str, str], tuple[str, Callable[[str | None], Any]]]] = {
    ("Driver Info", "Ver"): ("driver_version", values.version),
    ("Device Info", "Dev Name"): ("name", values.name),
    ("Device Info", "Dev UUID"): ("uuid", values.identifier),
    ("Device Info", "Dev SN"): ("serial", values.identifier),
    ("Device Info", "Health"): ("health", values.state),
    ("PCIe Info", "Domain"): ("domain", values.word),
    ("PCIe Info", "Bus"): ("bus", values.word),
    ("PCIe Info", "Dev"): ("dev", values.word),
    ("PCIe Info", "Func"): ("func", values.word),
    ("Link Info", "Max Link Speed"): ("pcie_gen_max", values.pcie_generation),
    ("Link Info", "Max Link Width"): ("pcie_width_max", values.pcie_width),
    ("Link Info", "Cur Link Speed"): ("pcie_gen_current", values.pcie_generation),
    ("Link Info", "Cur Link Width"): ("pcie_width_current", values.pcie_width),
    ("Link Info", "Tx Throughput"): ("pcie_tx_mibps", values.mebibytes_per_second),
    ("Link Info", "Rx Throughput"): ("pcie_rx_mibps", values.mebibytes_per_second),
    ("Power Info", "Power Capa"): ("power_cap_w", values.power_cap),
    ("Power Info", "Cur Power"): ("power_w", values.watts),
    ("Power Info", "Dpm Level"): ("power_level", values.word),
    ("Device Mem Info", "Total Size"): ("memory_total_mib", values.total_memory),
    ("Device Mem Info", "Mem Size"): ("memory_total_mib", values.total_memory),
    ("Device Mem Info", "Used Size"): ("memory_used_mib", values.mebibytes),
    ("Device Mem Info", "Mem Usage"): ("memory_used_mib", values.mebibytes),
    ("Device Mem Info", "Reserved Size"): ("memory_reserved_mib", values.mebibytes),
    ("Device Mem Info", "Mem Ecc"): ("ecc_mode", values.word),
    ("Temperature Info", "GCU Temp"): ("temperature_c", values.celsius),
    ("Device Usage Info", "GCU Usage"): ("utilization_pct", values.percent),
    ("ECC Mode", "Current"): ("ecc_mode", values.word),
    ("RMA Info", "Flags"): ("rma_flag", values.flag),
    ("RMA Info", "Total DBE"): ("ecc_double_bit_errors_total", values.integer),
    ("Clock Info", "Mem CLK"): ("memory_clock_mhz", values.megahertz),
}
_HEADINGS: Final = frozenset(heading for heading, _ in _KEYS)


def read(text: str, command: str = "") -> Report:
    """Whatever this output of efsmi says."""
    version = tables.search(r"EFSMI:?[ \t]+(V?[0-9][\w.]*)", text, values.version)
    driver = tables.search(r"Driver Ver:[ \t]*([^|\s]+)", text, values.version)
    _, parts = outlines.sections(text, _DEVICE)
    if parts:
        devices = tuple(reading("enflame", {"index": int(m.group(1)), **_described(part)}) for m, part in parts)
        driver = driver or agreed(device.get("driver_version") for device in devices)
        return Report(tool="efsmi", version=version, driver=driver, devices=devices)
    return Report(
        tool="efsmi",
        version=version,
        driver=driver,
        devices=tuple(reading("enflame", facts) for facts in tables.devices(text)),
    )


def _described(part: str) -> dict[str, Any]:
    """Keys below their headings. The headings' indentation says nothing: "Link Info" is level with what is under it."""
    facts: dict[str, Any] = {}
    heading = ""
    for line in part.split("\n"):
        key, colon, value = line.partition(" :")
        key = " ".join(key.split())
        if not colon:
            heading = key or heading
            continue
        known = _KEYS.get((heading, key))
        if known is not None and facts.get(known[0]) is None:
            facts[known[0]] = known[1](value)
    place = [facts.pop(name, None) for name in ("domain", "bus", "dev", "func")]
    if all(place):
        facts["bus_id"] = values.bus_id(f"{place[0]}:{place[1]}:{place[2]}.{place[3]}")
    return facts
