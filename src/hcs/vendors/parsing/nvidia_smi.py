"""``nvidia-smi``: ``-q -x``, ``-q``, ``--query-gpu``, ``-L``, ``topo -m``, ``nvlink -s`` and the plain table.

The tool's XML and its text say the same under similar names, so one table maps both; which spelling a driver uses has
changed with releases 450, 510, 535 and 570. ``power_w`` is what ``power.draw`` means: the average where the card
averages, else the instant. ``ecc_errors`` counts uncorrected errors since the driver was loaded, as the plain table
does. Sources: nvidia-smi's manual and the DTDs it ships.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hcs.vendors.parsing import csvs, documents, matrices, outlines, tables, values
from hcs.vendors.parsing.documents import Path
from hcs.vendors.parsing.report import Reading, Report, reading

VENDOR: Final = "nvidia"
Read = Callable[[str | None], Any]

_GPU_LINE: Final = re.compile(
    r"GPU[ \t]+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])[ \t]*$", re.MULTILINE
)
_LISTED: Final = re.compile(r"^[ \t]*GPU ([0-9]+): (.+?) \(UUID: ([^()\s]+)\)[ \t]*$", re.MULTILINE)
_PARTITION: Final = re.compile(
    r"^[ \t]+MIG (\S+)[ \t]+Device[ \t]+([0-9]+):[ \t]+\(UUID: ([^()\s]+)\)[ \t]*$", re.MULTILINE
)
_NVLINK: Final = re.compile(r"^[ \t]*Link ([0-9]+):[ \t]+(<inactive>|[0-9.]+ GB/s)[ \t]*$", re.MULTILINE)
_COMPLAINTS: Final = (
    "not a valid field to query",
    "no devices were found",
    "unable to determine",
    "has failed because",
    "couldn't communicate",
    "failed to initialize",
    "does not have or support nvlink",
)

_PATHS: Final[tuple[tuple[str, Read, tuple[str, ...]], ...]] = (
    ("name", values.name, ("product_name", "Product Name")),
    ("uuid", values.identifier, ("uuid", "GPU UUID", "GPU Uuid")),
    ("serial", values.identifier, ("serial", "Serial Number")),
    ("minor_number", values.integer, ("minor_number", "Minor Number")),
    ("bus_id", values.bus_id, ("pci/pci_bus_id", "PCI/Bus Id")),
    ("memory_total_mib", values.total_memory, ("fb_memory_usage/total", "FB Memory Usage/Total")),
    ("memory_used_mib", values.mebibytes, ("fb_memory_usage/used", "FB Memory Usage/Used")),
    ("memory_reserved_mib", values.mebibytes, ("fb_memory_usage/reserved", "FB Memory Usage/Reserved")),
    ("utilization_pct", values.percent, ("utilization/gpu_util", "Utilization/GPU", "Utilization/Gpu")),
    ("memory_utilization_pct", values.percent, ("utilization/memory_util", "Utilization/Memory")),
    ("temperature_c", values.celsius, ("temperature/gpu_temp", "Temperature/GPU Current Temp")),
    ("memory_temperature_c", values.celsius, ("temperature/memory_temp", "Temperature/Memory Current Temp")),
    (
        "power_w",
        values.watts,
        (
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/power_draw",
            "gpu_power_readings/instant_power_draw",
            "power_readings/power_draw",
            "GPU Power Readings/Average Power Draw",
            "GPU Power Readings/Power Draw",
            "GPU Power Readings/Instantaneous Power Draw",
            "Power Readings/Power Draw",
        ),
    ),
    (
        "power_cap_w",
        values.power_cap,
        (
            "gpu_power_readings/current_power_limit",
            "power_readings/enforced_power_limit",
            "GPU Power Readings/Current Power Limit",
            "Power Readings/Enforced Power Limit",
        ),
    ),
    ("pcie_gen_current", values.pcie_generation, (
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "PCI/GPU Link Info/PCIe Generation/Current")),
    ("pcie_gen_max", values.pcie_generation, (
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "PCI/GPU Link Info/PCIe Generation/Max")),
    ("pcie_width_current", values.pcie_width, (
        "pci/pci_gpu_link_info/link_widths/current_link_width", "PCI/GPU Link Info/Link Width/Current")),
    ("pcie_width_max", values.pcie_width, (
        "pci/pci_gpu_link_info/link_widths/max_link_width", "PCI/GPU Link Info/Link Width/Max")),
    ("pcie_replay", values.integer, ("pci/replay_counter", "PCI/Replays Since Reset", "PCI/Replays since reset")),
    ("pcie_replay_rollovers", values.integer, ("pci/replay_rollover_counter", "PCI/Replay Number Rollovers")),
    ("pcie_tx_kbps", values.kilobytes_per_second, ("pci/tx_util", "PCI/Tx Throughput")),
    ("pcie_rx_kbps", values.kilobytes_per_second, ("pci/rx_util", "PCI/Rx Throughput")),
    ("fan_pct", values.percent, ("fan_speed", "Fan Speed")),
    ("performance_state", values.word, ("performance_state", "Performance State")),
    ("compute_mode", values.word, ("compute_mode", "Compute Mode")),
    ("persistence_mode", values.word, ("persistence_mode", "Persistence Mode")),
    ("mig_mode", values.word, ("mig_mode/current_mig", "MIG Mode/Current")),
    ("ecc_mode", values.word, ("ecc_mode/current_ecc", "ECC Mode/Current", "Ecc Mode/Current")),
    ("recovery_action", values.word, ("gpu_recovery_action", "GPU Recovery Action")),
    ("reset_required", values.flag, ("gpu_reset_status/reset_required", "GPU Reset Status/Reset Required")),
    ("sm_clock_mhz", values.megahertz, ("clocks/sm_clock", "Clocks/SM")),
    ("memory_clock_mhz", values.megahertz, ("clocks/mem_clock", "Clocks/Memory")),
    ("remapped_rows_correctable", values.integer, (
        "remapped_rows/remapped_row_corr", "Remapped Rows/Correctable Error")),
    ("remapped_rows_uncorrectable", values.integer, (
        "remapped_rows/remapped_row_unc", "Remapped Rows/Uncorrectable Error")),
    ("row_remap_pending", values.flag, ("remapped_rows/remapped_row_pending", "Remapped Rows/Pending")),
    ("row_remap_failed", values.flag, (
        "remapped_rows/remapped_row_failure", "Remapped Rows/Remapping Failure Occurred")),
    ("retired_pages_pending", values.flag, (
        "retired_pages/pending_retirement", "retired_pages/pending_blacklist", "Retired Pages/Pending Page Blacklist")),
)  # fmt: skip

_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "idle": ("gpu_idle", "Idle"),
    "application_clocks": ("applications_clocks_setting", "Applications Clocks Setting"),
    "sw_power_cap": ("sw_power_cap", "SW Power Cap"),
    "hw_slowdown": ("hw_slowdown", "HW Slowdown"),
    "hw_thermal": ("hw_thermal_slowdown", "HW Slowdown/HW Thermal Slowdown", "HW Thermal Slowdown"),
    "hw_power_brake": ("hw_power_brake_slowdown", "HW Slowdown/HW Power Brake Slowdown", "HW Power Brake Slowdown"),
    "sync_boost": ("sync_boost", "Sync Boost"),
    "sw_thermal": ("sw_thermal_slowdown", "SW Thermal Slowdown"),
    "display_clocks": ("display_clocks_setting", "display_clock_setting", "Display Clock Setting"),
}
"""Our names of the clock event reasons, and theirs."""

_SPLIT_PATHS: Final = tuple((fact, read, tuple(tuple(n.split("/")) for n in names)) for fact, read, names in _PATHS)
_SPLIT_REASONS: Final = {ours: tuple(tuple(name.split("/")) for name in names) for ours, names in _REASONS.items()}

_COLUMNS: Final[tuple[tuple[str, Callable[[str | None, str], Any] | Read, tuple[str, ...]], ...]] = (
    ("index", values.integer, ("index",)),
    ("name", values.name, ("name", "gpu_name")),
    ("uuid", values.identifier, ("uuid", "gpu_uuid")),
    ("serial", values.identifier, ("serial", "gpu_serial")),
    ("bus_id", values.bus_id, ("pci.bus_id", "gpu_bus_id", "bus_id")),
    ("memory_total_mib", values.total_memory, ("memory.total",)),
    ("memory_used_mib", values.mebibytes, ("memory.used",)),
    ("memory_reserved_mib", values.mebibytes, ("memory.reserved",)),
    ("utilization_pct", values.percent, ("utilization.gpu", "utilization.aip")),
    ("memory_utilization_pct", values.percent, ("utilization.memory",)),
    ("temperature_c", lambda t, u: values.celsius(t, u or "C"), ("temperature.gpu", "temperature.aip")),
    ("memory_temperature_c", lambda t, u: values.celsius(t, u or "C"), ("temperature.memory",)),
    ("power_w", values.watts, ("power.draw",)),
    ("power_cap_w", values.power_cap, ("enforced.power.limit", "power.limit")),
    ("pcie_gen_current", values.pcie_generation, ("pcie.link.gen.current", "pcie.link.gen.gpucurrent")),
    ("pcie_gen_max", values.pcie_generation, ("pcie.link.gen.max",)),
    ("pcie_width_current", values.pcie_width, ("pcie.link.width.current",)),
    ("pcie_width_max", values.pcie_width, ("pcie.link.width.max",)),
    ("ecc_mode", values.word, ("ecc.mode.current",)),
    ("ecc_errors", values.integer, ("ecc.errors.uncorrected.volatile.total",)),
    ("ecc_corrected_errors", values.integer, ("ecc.errors.corrected.volatile.total",)),
    ("compute_mode", values.word, ("compute_mode",)),
    ("persistence_mode", values.word, ("persistence_mode",)),
    ("mig_mode", values.word, ("mig.mode.current",)),
    ("performance_state", values.word, ("pstate",)),
    ("recovery_action", values.word, ("gpu_recovery_action",)),
    ("fan_pct", values.percent, ("fan.speed",)),
    ("sm_clock_mhz", values.megahertz, ("clocks.current.sm", "clocks.sm")),
    ("memory_clock_mhz", values.megahertz, ("clocks.current.memory", "clocks.mem")),
    ("remapped_rows_correctable", values.integer, ("remapped_rows.correctable",)),
    ("remapped_rows_uncorrectable", values.integer, ("remapped_rows.uncorrectable",)),
    ("row_remap_pending", values.flag, ("remapped_rows.pending",)),
    ("row_remap_failed", values.flag, ("remapped_rows.failure",)),
    ("retired_pages_pending", values.flag, ("retired_pages.pending",)),
)
_UNITLESS: Final = frozenset(
    {"index", "name", "uuid", "serial", "bus_id", "pcie_gen_current", "pcie_gen_max", "pcie_width_current"}
    | {"pcie_width_max", "ecc_mode", "ecc_errors", "ecc_corrected_errors", "compute_mode", "persistence_mode"}
    | {"mig_mode", "performance_state", "recovery_action", "remapped_rows_correctable", "row_remap_pending"}
    | {"remapped_rows_uncorrectable", "row_remap_failed", "retired_pages_pending"}
)
KNOWN_COLUMNS: Final = (*(name for _, _, names in _COLUMNS for name in names), "driver_version", "timestamp")


def read(text: str, command: str = "") -> Report:
    """Whatever this output of nvidia-smi says; the command's arguments help where the output has no header."""
    errors = _complaints(text)
    driver = tables.search(r"driver[ _]version[>\s]*:?[ \t]*([^<>|\s]+)", text, values.version)
    facts: dict[str, Any] = {}
    if cuda := tables.search(r"cuda[ _]version[>\s]*:?[ \t]*([^<>|\s]+)", text, values.version):
        facts["cuda_version"] = cuda
    attached = tables.search(r"(?:<attached_gpus>|Attached GPUs\s*:)\s*([0-9]+)\s*[<\n]", text, values.integer)
    if attached is not None:
        facts["attached_gpus"] = attached
    version = tables.search(r"NVIDIA-SMI[ \t]+([0-9][\w.]*)", text, values.version)
    if "<gpu" in text or "<nvidia_smi_log" in text:
        root = documents.read_xml(text)
        found = [_of_xml(gpu) for gpu in root.all("gpu")]
        return Report(
            tool="nvidia-smi", version=version, driver=driver, devices=tuple(found), facts=facts, errors=errors
        )
    _, parts = outlines.sections(text, _GPU_LINE)
    if parts:
        outlined = tuple(_of_paths(outlines.flatten(part), {"bus_id": values.bus_id(m.group(1))}) for m, part in parts)
        return Report(tool="nvidia-smi", version=version, driver=driver, devices=outlined, facts=facts, errors=errors)
    if topology := matrices.read(text):
        return Report(
            tool="nvidia-smi",
            gpus=topology.devices,
            links=topology.links,
            numa=topology.numa,
            facts={"nics": topology.ports} if topology.ports else {},
            errors=errors,
        )
    if _LISTED.search(text):
        devices = _listed(text)
        names = tuple(str(device["name"]) for device in devices if device["name"] is not None)
        return Report(tool="nvidia-smi", devices=devices, gpus=names, errors=errors)
    if answers := csvs.rows(text, command, KNOWN_COLUMNS):
        from_rows = tuple(of_row(VENDOR, row) for row in answers if "pid" not in row)
        drivers = {row["driver_version"][0] for row in answers if "driver_version" in row}
        driver = values.version(drivers.pop()) if len(drivers) == 1 else None
        return Report(tool="nvidia-smi", driver=driver, devices=from_rows, errors=errors)
    drawn = tuple(reading(VENDOR, device) for device in tables.devices(text))
    return Report(tool="nvidia-smi", version=version, driver=driver, devices=drawn, facts=facts, errors=errors)


def _complaints(text: str) -> tuple[str, ...]:
    """Lines in which the tool says that something is wrong."""
    lowered = text.lower()
    if not any(phrase in lowered for phrase in _COMPLAINTS):
        return ()
    lines = (line.strip() for line in text.split("\n"))
    return tuple(dict.fromkeys(line for line in lines if any(phrase in line.lower() for phrase in _COMPLAINTS)))


def of_row(vendor: str, row: csvs.Row) -> Reading:
    """A device from one answer to ``--query-gpu`` or to another tool's imitation of it."""
    facts: dict[str, Any] = {}
    for fact, convert, columns in _COLUMNS:
        for column in columns:
            if facts.get(fact) is None and column in row:
                cell, unit = row[column]
                facts[fact] = convert(cell) if fact in _UNITLESS else convert(cell, unit)  # type: ignore[call-arg]
    reasons = _reasons(
        {
            (key.rpartition(".")[2],): cell
            for key, (cell, _) in row.items()
            if key.startswith(("clocks_event_reasons.", "clocks_throttle_reasons."))
        }
    )
    return reading(vendor, {**facts, "throttle_reasons": reasons})


def _of_xml(gpu: documents.Element) -> Reading:
    paths = dict(reversed(gpu.walk()))
    bus = re.search(r'id="([^"]+)"', gpu.attributes)
    facts: dict[str, Any] = {"bus_id": values.bus_id(bus.group(1)) if bus else None}
    partitions = [
        {
            "index": values.integer(inner.get(("index",))),
            "gpu_instance_id": values.integer(inner.get(("gpu_instance_id",))),
            "memory_total_mib": values.total_memory(inner.get(("fb_memory_usage", "total"))),
            "memory_used_mib": values.mebibytes(inner.get(("fb_memory_usage", "used"))),
        }
        for inner in (dict(part.walk()) for part in gpu.all("mig_device"))
    ]
    return _of_paths(paths, {**facts, "mig_devices": partitions or None})


def _of_paths(paths: Mapping[Path, str], facts: dict[str, Any]) -> Reading:
    for fact, convert, places in _SPLIT_PATHS:
        for place in places:
            if place in paths and facts.get(fact) is None:
                facts[fact] = convert(paths[place])
    facts |= _ecc(paths)
    facts["throttle_reasons"] = _reasons(_below(paths, _REASON_HEADINGS))
    return reading(VENDOR, facts)


_REASON_HEADINGS: Final = frozenset(
    {"clocks_event_reasons", "clocks_throttle_reasons", "Clocks Event Reasons", "Clocks Throttle Reasons"}
)


def _below(paths: Mapping[Path, str], headings: frozenset[str]) -> dict[Path, str]:
    found = {}
    for path, value in paths.items():
        if path[0] in headings:
            rest = tuple(re.sub(r"^clocks_(?:event|throttle)_reason_", "", key) for key in path[1:])
            found[rest] = value
    return found


def _reasons(paths: Mapping[Path, str]) -> list[str] | None:
    """Which clock event reasons are active; None where none is readable."""
    states = {
        ours: next((values.flag(paths[theirs]) for theirs in places if theirs in paths), None)
        for ours, places in _SPLIT_REASONS.items()
    }
    known = {name: state for name, state in states.items() if state is not None}
    return [name for name, state in known.items() if state] if known else None


def _ecc(paths: Mapping[Path, str]) -> dict[str, int | None]:
    """Corrected and uncorrected errors since the driver was loaded: sums, null if any part is not known."""
    volatile = {
        path[2:]: value
        for path, value in paths.items()
        if path[:2] in (("ecc_errors", "volatile"), ("ECC Errors", "Volatile"))
    }
    old = {path: value for path, value in volatile.items() if len(path) == 2}
    if old:  # before Turing: single and double bit, each with a total
        return {
            "ecc_errors": values.integer(old.get(("Double Bit", "Total"), old.get(("double_bit", "total")))),
            "ecc_corrected_errors": values.integer(old.get(("Single Bit", "Total"), old.get(("single_bit", "total")))),
        }
    counts = {path[-1].lower(): values.integer(value) for path, value in volatile.items()}
    return {
        "ecc_errors": _sum({key: count for key, count in counts.items() if "uncorrectable" in key}),
        "ecc_corrected_errors": _sum({key: count for key, count in counts.items() if "uncorrectable" not in key}),
    }


def _sum(counts: Mapping[str, int | None]) -> int | None:
    """The sum over all memories; None unless both kinds are there, for the tool prints SRAM first and DRAM last."""
    known = [count for count in counts.values() if count is not None]
    whole = all(any(key.startswith(kind) for key in counts) for kind in ("sram", "dram"))
    return sum(known) if whole and len(known) == len(counts) else None


def _listed(text: str) -> tuple[Reading, ...]:
    """``-L`` and ``nvlink -s``: a line for each card, and below it its partitions or its links."""
    _, parts = outlines.sections(text, _LISTED)
    devices = []
    for match, below in parts:
        partitions = [
            {"profile": profile, "index": int(index), "uuid": values.identifier(uuid)}
            for profile, index, uuid in _PARTITION.findall(below)
        ]
        speeds = [values.gigabytes_per_second(speed) for _, speed in _NVLINK.findall(below)]
        facts: dict[str, Any] = {
            "index": int(match.group(1)),
            "name": values.name(match.group(2)),
            "uuid": values.identifier(match.group(3)),
            "mig_devices": partitions or None,
        }
        if speeds:
            facts["nvlink_gbps"] = speeds
        devices.append(reading(VENDOR, facts))
    return tuple(devices)
