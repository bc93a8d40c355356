"""What a card's figures say about its health, one reading at a time. Pure.

A signal is a :class:`~hcs.health.faults.Fault`; one whose verdict is Healthy is a note: worth telling, no reason to
treat the card differently. What is unknown says nothing: cards under MIG report no load, second dies of a package no
power, and a link that sleeps at a lower generation is at rest. Thresholds are this project's policy.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hcs.health.faults import NO_FAULT, Fault, classify

Reading = Mapping[str, Any]

BUSY_PCT: Final = 20
"""Load in per cent from which a card counts as working, where a narrow link matters."""
REPLAYS: Final = 100
"""Replays between two readings from which the link counts as bad."""
SUSTAINED: Final = 3
"""Readings in a row that make a software slowdown sustained."""

_WORDS: Final[dict[str, dict[str, Fault]]] = {
    "ascend": {
        "ok": NO_FAULT,
        "warning": Fault("SubHealthy", "HealthWarning", "npu-smi says Warning"),
        "alarm": Fault("Failed", "HealthAlarm", "npu-smi says Alarm"),
        "critical": Fault("Failed", "HealthCritical", "npu-smi says Critical"),
        "unknown": Fault("Unknown", "HealthUnknown", "npu-smi does not know the chip's health"),
    },
    "metax": {
        "available": NO_FAULT,
        "not available": Fault("Failed", "NotAvailable", "mx-smi says Not Available"),
    },
    "enflame": {
        "true": NO_FAULT,
        "false": Fault("Failed", "NotHealthy", "efsmi says that the card is not healthy"),
    },
}
_RECOVERY: Final[dict[str, Fault]] = {
    "reset": Fault("Failed", "ResetWanted", "the driver asks for a reset of the card"),
    "gpu reset": Fault("Failed", "ResetWanted", "the driver asks for a reset of the card"),
    "reboot": Fault("Failed", "RebootWanted", "the driver asks for a restart of the machine"),
    "node reboot": Fault("Failed", "RebootWanted", "the driver asks for a restart of the machine"),
    "drain p2p": Fault("SubHealthy", "DrainWanted", "the driver asks to end work over several cards"),
    "drain and reset": Fault("SubHealthy", "DrainWanted", "the driver asks to drain the card, then to reset it"),
}


class Signal(msgspec.Struct, frozen=True):
    """A way in which a card tells that it is unwell: its name in documents, and how it is read off."""

    name: str
    read: Callable[[str, Reading, Reading], Fault | None]


def assess(vendor: str, now: Reading, before: Reading | None = None) -> tuple[Fault, ...]:
    """Every signal in one reading, notes included.

    Args:
        vendor: the vendor word.
        now: what the tool or library says, with the keys of ``docs/probes.md``.
        before: the reading before, for counters that matter only when they grow; None for the first.
    """
    found = (signal.read(vendor, now, before if before is not None else now) for signal in SIGNALS)
    return tuple(fault for fault in found if fault is not None)


def _word(vendor: str, now: Reading, before: Reading) -> Fault | None:
    word = now.get("health")
    if not isinstance(word, str):
        return None
    if _codes(vendor, now, before) is not None:
        return None  # the codes say it better
    fault = _WORDS.get(vendor, {}).get(word.lower())
    return None if fault is NO_FAULT else fault


def _codes(vendor: str, now: Reading, before: Reading) -> Fault | None:
    faults = [classify(vendor, int(code, 16)) for code in now.get("error_codes") or ()]
    bad = [fault for fault in faults if fault.verdict != "Healthy"]
    return max(bad, key=lambda fault: fault.verdict == "Failed", default=None)


def _lost(vendor: str, now: Reading, before: Reading) -> Fault | None:
    if now.get("sensors_readable") is False:
        return Fault("Failed", "SensorsUnreadable", "the tool lists the card and can read none of its sensors")
    return None


def _remap(vendor: str, now: Reading, before: Reading) -> Fault | None:
    if now.get("row_remap_failed"):
        return Fault("Failed", "RowRemapFailed", "a memory row could not be remapped; replace the card")
    if now.get("row_remap_pending"):
        return Fault("SubHealthy", "RowRemapPending", "a remapped memory row takes effect at the next reset")
    if now.get("retired_pages_pending"):
        return Fault("SubHealthy", "PageRetirementPending", "retired memory pages take effect at the next reset")
    return None


def _ecc(vendor: str, now: Reading, before: Reading) -> Fault | None:
    grown = _growth("ecc_errors", now, before)
    if grown:
        return Fault("SubHealthy", "UncorrectedEcc", f"{grown} uncorrected memory errors since the last reading")
    if now.get("ecc_errors"):
        return Fault("Healthy", "EccSeen", f"{now['ecc_errors']} uncorrected memory errors so far")
    return None


def _slowdown(vendor: str, now: Reading, before: Reading) -> Fault | None:
    reasons = frozenset(now.get("throttle_reasons") or ())
    if "hw_power_brake" in reasons:
        return Fault("SubHealthy", "PowerBrake", "the power supply slows the card down")
    if "hw_thermal" in reasons:
        return Fault("SubHealthy", "ThermalSlowdown", "heat slows the card down")
    if "hw_slowdown" in reasons:
        return Fault("SubHealthy", "HardwareSlowdown", "the hardware slows the card down")
    if "sw_thermal" in reasons and _sustained("sw_thermal", now) and _busy(now):
        return Fault("SubHealthy", "ThermalSlowdown", "the driver has slowed the card down for heat for a while")
    if "sw_power_cap" in reasons and _busy(now):
        return Fault("Healthy", "PowerCapped", "the card runs at its power limit")
    return None


def _width(vendor: str, now: Reading, before: Reading) -> Fault | None:
    width, most = now.get("pcie_width_current"), now.get("pcie_width_max")
    if width is None or most is None or width >= most:
        return None
    text = f"the PCIe link has {width} of {most} lanes"
    if _busy(now):
        return Fault("SubHealthy", "PcieWidth", text)
    return Fault("Healthy", "PcieWidth", f"{text} while the card rests")


def _generation(vendor: str, now: Reading, before: Reading) -> Fault | None:
    speed, most = now.get("pcie_gen_current"), now.get("pcie_gen_max")
    if speed is None or most is None or speed >= most:
        return None
    return Fault("Healthy", "PcieGeneration", f"the PCIe link runs at generation {speed} of {most}")


def _replay(vendor: str, now: Reading, before: Reading) -> Fault | None:
    grown = _growth("pcie_replay", now, before)
    if grown >= REPLAYS:
        return Fault("SubHealthy", "PcieReplays", f"{grown} PCIe replays since the last reading")
    return None


def _links(vendor: str, now: Reading, before: Reading) -> Fault | None:
    speeds = now.get("nvlink_gbps") or ()
    down = sum(speed is None for speed in speeds)
    if down and down < len(speeds):
        return Fault("SubHealthy", "NvlinkDown", f"{down} of {len(speeds)} NVLinks are down")
    return None


def _memory(vendor: str, now: Reading, before: Reading) -> Fault | None:
    used, total = now.get("memory_used_mib"), now.get("memory_total_mib")
    if used is not None and total is not None and used > total:
        return Fault("SubHealthy", "MemoryMismatch", f"{used:g} MiB used of {total:g}: the driver sees a part of it")
    return None


def _power(vendor: str, now: Reading, before: Reading) -> Fault | None:
    power, cap, load = now.get("power_w"), now.get("power_cap_w"), now.get("utilization_pct")
    if power is None or cap is None or load is None:
        return None
    if load >= BUSY_PCT and power < cap / 20:
        return Fault("Healthy", "PowerSensorImplausible", f"{power:g} W at {load:g} % load cannot be")
    return None


def _recovery(vendor: str, now: Reading, before: Reading) -> Fault | None:
    if now.get("reset_required"):
        return _RECOVERY["reset"]
    action = now.get("recovery_action")
    if not isinstance(action, str):
        return None
    unknown = Fault("SubHealthy", "RecoveryWanted", f"the driver asks for: {action}")
    return _RECOVERY.get(action.lower(), unknown)


SIGNALS: Final = (
    Signal("health word", _word),
    Signal("fault codes", _codes),
    Signal("lost sensors", _lost),
    Signal("recovery action", _recovery),
    Signal("row remapping", _remap),
    Signal("ECC", _ecc),
    Signal("slowdown", _slowdown),
    Signal("PCIe width", _width),
    Signal("PCIe generation", _generation),
    Signal("PCIe replays", _replay),
    Signal("NVLink", _links),
    Signal("memory", _memory),
    Signal("power sensor", _power),
)
"""All signals, in the order of ``docs/probes.md``."""


def counted(now: Reading, before: Reading | None) -> dict[str, Any]:
    """A reading with how many times in a row each slowdown has been seen, for :func:`assess`."""
    past = (before or {}).get("slowdowns_in_a_row") or {}
    rows = {reason: past.get(reason, 0) + 1 for reason in now.get("throttle_reasons") or ()}
    return {**now, "slowdowns_in_a_row": rows}


def _sustained(reason: str, now: Reading) -> bool:
    return bool((now.get("slowdowns_in_a_row") or {}).get(reason, 0) >= SUSTAINED)


def _busy(now: Reading) -> bool:
    load = now.get("utilization_pct")
    return load is not None and load >= BUSY_PCT


def _growth(counter: str, now: Reading, before: Reading) -> int:
    """How much a counter has grown; 0 where it is unknown or began anew."""
    current, past = now.get(counter), before.get(counter)
    return max(0, current - past) if isinstance(current, int) and isinstance(past, int) else 0
