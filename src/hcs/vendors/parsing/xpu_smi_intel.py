"""Intel's ``xpu-smi``: the summary, ``discovery`` as JSON or table, ``dump`` as CSV, ``stats`` as a table.

``dump`` prints a line a second and device, and a metric may be missing from the first ones: of each device the last
value that was known counts. Asked for tiles it prints a line for each, and what one tile does says nothing of the
device.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from hcs.vendors.parsing import csvs, documents, tables, values
from hcs.vendors.parsing.report import Report, reading

VENDOR: Final = "intel"
_METRICS: Final[tuple[tuple[str, str, Callable[[str | None, str], Any]], ...]] = (
    ("gpu utilization", "utilization_pct", values.percent),
    ("gpu power", "power_w", values.watts),
    ("gpu core temperature", "temperature_c", values.celsius),
    ("gpu memory temperature", "memory_temperature_c", values.celsius),
    ("gpu memory util", "memory_utilization_pct", values.percent),
    ("gpu memory utilization", "memory_utilization_pct", values.percent),
    ("gpu memory used", "memory_used_mib", values.mebibytes),
    ("gpu frequency", "sm_clock_mhz", values.megahertz),
)
_KNOWN: Final = ("deviceid", "tileid", "timestamp", *(name for name, _, _ in _METRICS))
_PAIR: Final = re.compile(
    r"^[ \t]*\|[ \t]*([\w ]+?)[ \t]*(?:\(([^()|]*)\))?[ \t]*\|[ \t]*([^|]*?)[ \t]*\|[ \t]*$", re.M
)
_LINE: Final = re.compile(r"^\|\s*([0-9]*)\s*\|\s*([\w .]+?):\s*(\S.*?)\s*\|\s*$", re.MULTILINE)
_DESCRIBED: Final[dict[str, tuple[str, Callable[[str | None], Any]]]] = {
    "device_id": ("index", values.integer),
    "device_name": ("name", values.name),
    "uuid": ("uuid", values.identifier),
    "soc uuid": ("uuid", values.identifier),
    "device name": ("name", values.name),
    "pci_bdf_address": ("bus_id", values.bus_id),
    "pci bdf address": ("bus_id", values.bus_id),
    "pci_device_id": ("pci_device_id", values.hexadecimal),
    "serial_number": ("serial", values.identifier),
    "memory_physical_size_byte": ("memory_total_mib", lambda text: values.total_memory(text, "B")),
    "memory physical size": ("memory_total_mib", values.total_memory),
    "pcie_generation": ("pcie_gen_max", values.pcie_generation),
    "pcie_max_link_width": ("pcie_width_max", values.pcie_width),
    "memory_ecc_state": ("ecc_mode", values.word),
    "driver_version": ("driver_version", values.version),
}


def read(text: str, command: str = "") -> Report:
    """Whatever this output of Intel's xpu-smi says."""
    document = documents.read_json(text) if re.search(r'{\s*"', text) else None
    if isinstance(document, dict):
        listed = document.get("device_list")
        cards = listed if isinstance(listed, list) else [document]
        found = tuple(_described(card) for card in cards if isinstance(card, dict) and "device_id" in card)
        error = document.get("error")
        return Report(tool="xpu-smi-intel", devices=found, errors=(error,) if isinstance(error, str) else ())
    rows = csvs.rows(text, command, _KNOWN)
    if rows:
        latest: dict[int, dict[str, Any]] = {}
        for row in rows:
            index = values.integer(row["deviceid"][0]) if "deviceid" in row else None
            if index is not None and "tileid" in row:
                latest.setdefault(index, {})
            elif index is not None:
                known = {fact: convert(*row[name]) for name, fact, convert in _METRICS if name in row}
                merged = latest.setdefault(index, {})
                merged |= {fact: value for fact, value in known.items() if value is not None}
        dumped = tuple(reading(VENDOR, {"index": index, **facts}) for index, facts in latest.items())
        return Report(tool="xpu-smi-intel", devices=dumped)
    pairs = [(key.lower(), unit, value) for key, unit, value in _PAIR.findall(text)]
    if any(key == "gpu utilization" for key, _, _ in pairs):
        return Report(tool="xpu-smi-intel", devices=tuple(_stated(pairs)))
    if summary := tables.devices(text):
        return Report(tool="xpu-smi-intel", devices=tuple(reading(VENDOR, facts) for facts in summary))
    drawn: list[dict[str, str]] = []
    for index, key, value in _LINE.findall(text):
        if index:
            drawn.append({"device_id": index})
        if drawn:
            drawn[-1].setdefault(key.lower(), value)
    return Report(tool="xpu-smi-intel", devices=tuple(_described(card) for card in drawn))


def _described(card: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, value in card.items():
        known = _DESCRIBED.get(key)
        if known is not None and isinstance(value, str) and facts.get(known[0]) is None:
            facts[known[0]] = known[1](value)
    return reading(VENDOR, facts)


def _stated(pairs: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """``stats``: a table for each device. A value given for each tile is none of the device's."""
    found: list[dict[str, Any]] = []
    for key, unit, value in pairs:
        if key == "device id":
            found.append({"index": values.integer(value)})
        metric = next(((fact, convert) for name, fact, convert in _METRICS if name == key), None)
        if found and metric is not None and found[-1].get(metric[0]) is None:
            found[-1][metric[0]] = metric[1](value, unit)
    return [reading(VENDOR, facts) for facts in found]
