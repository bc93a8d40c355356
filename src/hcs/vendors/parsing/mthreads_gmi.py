"""Moore Threads' ``mthreads-gmi``: the table, ``-q`` and ``--query --json``.

Used memory above the total is printed where the system's IOMMU is set up wrongly: it is passed on as it stands, and is
a sign of its own.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hcs.vendors.parsing import documents, matrices, outlines, tables, values
from hcs.vendors.parsing.documents import Path
from hcs.vendors.parsing.report import Reading, Report, reading

VENDOR: Final = "mthreads"
_GPU: Final = re.compile(
    r"^[ \t]*GPU ?([0-9]+)?[ \t]+(?:[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])?[ \t]*$", re.M
)
_PATHS: Final[tuple[tuple[str, Callable[[str | None], Any], tuple[str, ...]], ...]] = (
    ("index", values.integer, ("Index",)),
    ("name", values.name, ("Product Name",)),
    ("uuid", values.identifier, ("GPU UUID",)),
    ("serial", values.identifier, ("Serial Number",)),
    ("bus_id", values.bus_id, ("PCI/Bus ID", "PCI/Bus Id")),
    ("memory_total_mib", values.total_memory, ("FB Memory Usage/Total",)),
    ("memory_used_mib", values.mebibytes, ("FB Memory Usage/Used",)),
    ("utilization_pct", values.percent, ("Utilization/Gpu", "Utilization/GPU")),
    ("memory_utilization_pct", values.percent, ("Utilization/Memory",)),
    ("temperature_c", values.celsius, ("Temperature/GPU Current Temp",)),
    ("power_w", values.watts, ("Power Readings/Power Draw",)),
    ("power_cap_w", values.power_cap, ("Power Readings/Current Power Limit", "Power Readings/Power Limit")),
    (
        "pcie_gen_current",
        values.pcie_generation,
        ("PCI/GPU Link Info/PCIe Generation/Current", "PCI/PCIe Generation/Current"),
    ),
    ("pcie_gen_max", values.pcie_generation, ("PCI/GPU Link Info/PCIe Generation/Max", "PCI/PCIe Generation/Max")),
    ("pcie_width_current", values.pcie_width, ("PCI/GPU Link Info/Link Width/Current", "PCI/Link Width/Current")),
    ("pcie_width_max", values.pcie_width, ("PCI/GPU Link Info/Link Width/Max", "PCI/Link Width/Max")),
    ("ecc_mode", values.word, ("Ecc Mode/Current", "ECC Mode/Current")),
    ("firmware_version", values.version, ("MTBios Version",)),
)


def read(text: str, command: str = "") -> Report:
    """Whatever this output of mthreads-gmi says."""
    document = documents.read_json(text) if re.search(r'{\s*"', text) else None
    if isinstance(document, dict):
        listed = document.get("GPU")
        return Report(
            tool="mthreads-gmi",
            driver=values.version(documents.flatten(document).get(("Driver Version",))),
            devices=tuple(
                _of_paths(documents.flatten(card)) for card in (listed if isinstance(listed, list) else []) if card
            ),
            facts=_attached(values.integer(documents.flatten(document).get(("Attached GPUs",)))),
        )
    if topology := matrices.read(text):
        return Report(tool="mthreads-gmi", gpus=topology.devices, links=topology.links, numa=topology.numa)
    version = tables.search(r"mthreads-gmi:[ \t]*([0-9][\w.]*)", text, values.version)
    driver = tables.search(r"Driver Version[ \t]*:[ \t]*(\S+)", text, values.version)
    drawn = tables.devices(text)
    _, parts = outlines.sections(text, _GPU)
    if not drawn and parts:
        outlined = []
        for match, part in parts:
            device = _of_paths(outlines.flatten(part))
            outlined.append({**device, "index": device["index"] or values.integer(match.group(1))})
        return Report(tool="mthreads-gmi", version=version, driver=driver, devices=tuple(outlined))
    return Report(
        tool="mthreads-gmi",
        version=version,
        driver=driver,
        devices=tuple(reading(VENDOR, facts) for facts in drawn),
    )


def _attached(count: int | None) -> dict[str, Any]:
    return {} if count is None else {"attached_gpus": count}


def _of_paths(paths: Mapping[Path, str]) -> Reading:
    facts: dict[str, Any] = {}
    for fact, convert, names in _PATHS:
        for name in names:
            if facts.get(fact) is None:
                facts[fact] = convert(paths.get(tuple(name.split("/"))))
    return reading(VENDOR, facts)
