"""``rocm-smi`` and Hygon's ``hy-smi``, which descends from it: the concise table, ``--json``, ``--showtopo``, and what
the other ``--show`` options print as ``GPU[0] : key: value``.

Columns of the table stand apart by two blanks or more and are named by the line above them. A line on which the tool
could read neither heat, power, clocks nor performance level is a card it has lost; the 0 % it prints there for load is
a default, not a reading, and becomes null.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from hcs.vendors.parsing import documents, matrices, values
from hcs.vendors.parsing.report import Reading, Report, agreed, reading

Read = Callable[[str | None], Any]

_COLUMNS: Final[tuple[tuple[str, str, Read], ...]] = (
    (r"GPU|DCU|HCU|Device", "index", values.integer),
    (r"Temp.*", "temperature_c", values.celsius),
    (r"(?:Avg|Socket)?\s?(?:Pwr|Power)(?:\s*\(.*\))?", "power_w", values.watts),
    (r"PwrCap", "power_cap_w", values.power_cap),
    (r"(?:GPU|DCU|HCU)%", "utilization_pct", values.percent),
    (r"VRAM%", "memory_used_pct", values.percent),
    (r"SCLK", "sm_clock_mhz", values.megahertz),
    (r"MCLK", "memory_clock_mhz", values.megahertz),
    (r"Fan", "fan_pct", values.percent),
    (r"Perf", "performance_level", values.word),
    (r"Mode", "device_mode", values.word),
    (r"Node", "kfd_node", values.integer),
)
_HEADING: Final = re.compile(r"^\s*(?:GPU|DCU|HCU|Device)\s{2,}.*\b(?:Temp|PwrCap|Perf)\b")
_LOST: Final = ("temperature_c", "power_w", "sm_clock_mhz", "memory_clock_mhz", "performance_level", "power_cap_w")
_LOAD: Final = ("utilization_pct", "memory_used_pct", "fan_pct")
_COMPLAINT: Final = re.compile(
    r"^.*(?:Expected integer value|ERROR:|Unable to|not initialized|Cannot|No .*devices).*$", re.M
)
_CARD: Final = re.compile(r"card([0-9]+)", re.IGNORECASE)
_KEY: Final = re.compile(r"(.*?)\s*(?:\(([^()]*)\))?\s*:?")
_KEYED: Final = re.compile(
    r"^[ \t]*(?:GPU|DCU|HCU)\[([0-9]+)\][ \t]*:[ \t]*([^:\n]*[^:\s])[ \t]*:[ \t]*(\S[^\n]*?)[ \t]*$", re.M
)
_LINK: Final = re.compile(r"\(Topology\) Link type between DRM devices ([0-9]+) and ([0-9]+)", re.IGNORECASE)
_PCIE: Final = re.compile(r"[0-9]+\s*\(([0-9.]+GT/s)\s+x([0-9]+)\)")
_MAKER: Final = (("hygon", re.compile("Haiguang|Hygon", re.I)), ("amd", re.compile("Advanced Micro Devices|AMD", re.I)))


def read(text: str, command: str = "", *, tool: str = "rocm-smi", vendor: str = "amd") -> Report:
    """Whatever this output of rocm-smi or hy-smi says."""
    errors = tuple(dict.fromkeys(match.group().strip() for match in _COMPLAINT.finditer(text)))
    document = documents.read_json(text) if re.search(r'{\s*"', text) else None
    if isinstance(document, dict):
        return _of_json(document, tool, vendor, errors)
    if topology := matrices.read(text):
        return Report(tool=tool, gpus=topology.devices, links=topology.links, numa=topology.numa, errors=errors)
    listed = tuple(_of_table(text, vendor))
    if not listed and (keyed := _keyed(text)):
        return _of_json(keyed, tool, vendor, errors)
    return Report(tool=tool, devices=listed, errors=errors)


def _keyed(text: str) -> dict[str, Any]:
    """``GPU[0] : key: value`` as the JSON would have it; a key with two values has none."""
    cards: dict[str, dict[str, str]] = {}
    for number, key, value in _KEYED.findall(text):
        card = cards.setdefault(f"card{number}", {})
        card[key] = value if card.get(key, value) == value else ""
    return cards


def _of_table(text: str, vendor: str) -> list[Reading]:
    heading: list[str] | None = None
    named = False
    found: list[dict[str, Any]] = []
    for line in text.split("\n"):
        if _HEADING.match(line):
            heading, named = re.split(r"\s{2,}", line.strip()), False
        elif heading and "Name (" in line:
            named = True
        elif heading and re.match(r"\s*[0-9]+\s", line):
            facts = _row(heading, line)
            if facts is not None:
                found.append(facts)
        elif named and found and re.match(r"\s{4,}\S", line) and len(line.strip()) < 20:
            found[-1].setdefault("name", values.name(line))  # cut to 20 characters by the tool
    return [reading(vendor, facts) for facts in found]


def _row(heading: list[str], line: str) -> dict[str, Any] | None:
    cells = re.split(r"\s{2,}", re.sub(r",\s+", ",", line.strip()))
    if len(cells) != len(heading):
        cells = re.sub(r",\s+", ",", line.strip()).split()
    if len(cells) != len(heading):
        return None
    facts: dict[str, Any] = {}
    for title, cell in zip(heading, cells, strict=True):
        column = next(((fact, read) for spelled, fact, read in _COLUMNS if re.fullmatch(spelled, title)), None)
        if column is not None and facts.get(column[0]) is None:
            facts[column[0]] = column[1](cell)
        elif title == "IDs":
            ids = cell.split(",")
            facts["pci_device_id"] = values.hexadecimal(ids[0])
    if facts.get("index") is None:
        return None
    if all(facts.get(fact) is None for fact in _LOST):
        facts |= dict.fromkeys(_LOAD)
        facts["sensors_readable"] = False
    return facts


def _of_json(document: dict[str, Any], tool: str, vendor: str, errors: tuple[str, ...]) -> Report:
    devices: list[Reading] = []
    numa: dict[str, dict[str, Any]] = {}
    for key, card in document.items():
        match = _CARD.fullmatch(key)
        if match is None or not isinstance(card, dict):
            continue
        device = _card(card, vendor, int(match.group(1)))
        node = values.integer(_get(card, "(Topology) Numa Node"))
        if node is not None:
            numa[f"GPU{match.group(1)}"] = {"cpus": None, "numa": node}
        devices.append(device)
    system = document.get("system")
    links: dict[str, str] = {}
    labels: set[int] = set()
    for key, value in system.items() if isinstance(system, dict) else ():
        match = _LINK.fullmatch(str(key))
        word = values.word(value) if isinstance(value, str) else None
        if match and word:
            one, other = int(match.group(1)), int(match.group(2))
            links[f"GPU{one}-GPU{other}"] = word
            labels |= {one, other}
    driver = values.version(_get(system, "Driver version")) if isinstance(system, dict) else None
    return Report(
        tool=tool,
        driver=driver or agreed(device.get("driver_version") for device in devices),
        devices=tuple(devices),
        gpus=tuple(f"GPU{label}" for label in sorted(labels)) if links else None,
        links=links or None,
        numa=numa or None,
        errors=errors,
    )


def _card(card: dict[str, Any], vendor: str, index: int) -> Reading:
    facts: dict[str, Any] = {"index": index}
    for key, value in card.items():
        match = _KEY.fullmatch(" ".join(key.split()))
        if match is None or not isinstance(value, str):
            continue
        fact = _JSON.get(match.group(1).lower())
        if fact is None:
            full = key.lower().split("(")[0].strip()
            sensor = re.search(r"sensor (\w+)", key, re.IGNORECASE)
            if full == "temperature" and sensor:
                facts[f"{sensor.group(1).lower()}_temperature_c"] = values.celsius(value, "C")
            continue
        name, convert = fact
        if facts.get(name) is None:
            facts[name] = convert(value, match.group(2) or "")
    facts["memory_temperature_c"] = facts.pop("memory_temperature_c", None) or facts.pop("mem_temperature_c", None)
    facts["temperature_c"] = facts.pop("edge_temperature_c", None)
    if facts["temperature_c"] is None:
        facts["temperature_c"] = facts.get("junction_temperature_c")
    model = _get(card, "Card model") or "0x"
    if facts.get("name") is None or facts["name"].startswith("0x"):
        facts["name"] = None if model.startswith("0x") else values.name(model)
    if pcie := _PCIE.fullmatch(_get(card, "pcie clock level") or ""):
        facts["pcie_gen_current"] = values.generation_of_speed(pcie.group(1))
        facts["pcie_width_current"] = values.pcie_width(pcie.group(2))
    maker = _get(card, "Card vendor") or ""
    return reading(next((word for word, spelled in _MAKER if spelled.search(maker)), vendor), facts)


def _plain(read: Read) -> Callable[[str, str], Any]:
    return lambda value, unit: read(value)


_JSON: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "card series": ("name", _plain(values.name)),
    "device name": ("name", _plain(values.name)),
    "unique id": ("uuid", _plain(values.identifier)),
    "serial number": ("serial", _plain(values.identifier)),
    "pci bus": ("bus_id", _plain(values.bus_id)),
    "device id": ("pci_device_id", _plain(values.hexadecimal)),
    "gpu id": ("pci_device_id", _plain(values.hexadecimal)),
    "vbios version": ("vbios_version", _plain(values.word)),
    "driver version": ("driver_version", _plain(values.version)),
    "vram total memory": ("memory_total_mib", values.total_memory),
    "vram total used memory": ("memory_used_mib", values.mebibytes),
    "average graphics package power": ("power_w", values.watts),
    "current socket graphics package power": ("power_w", values.watts),
    "max graphics package power": ("power_cap_w", values.power_cap),
    "gpu use": ("utilization_pct", values.percent),
    "dcu use": ("utilization_pct", values.percent),
    "hcu use": ("utilization_pct", values.percent),
    "gpu memory use": ("memory_activity_pct", values.percent),
    "fan speed": ("fan_pct", values.percent),
    "pcie replay count": ("pcie_replay", _plain(values.integer)),
    "performance level": ("performance_level", _plain(values.word)),
}


def _get(card: Any, wanted: str) -> str | None:
    if not isinstance(card, dict):
        return None
    return next(
        (v for k, v in card.items() if " ".join(k.split()).lower() == wanted.lower() and isinstance(v, str)), None
    )
