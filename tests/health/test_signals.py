"""What a card's figures say, and what they must not be taken to say."""

from typing import Any

import pytest
from tests.vendors.test_samples import CASES, PROBES, present

from hcs.health.faults import worst
from hcs.health.signals import SIGNALS, assess, counted
from hcs.vendors.parsing.tools import parse


def said(vendor: str, now: dict[str, Any], before: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    return [(fault.verdict, fault.reason) for fault in assess(vendor, now, before)]


@pytest.mark.parametrize(
    ("vendor", "figures", "expected"),
    [
        pytest.param("ascend", {"health": "OK"}, [], id="ok"),
        pytest.param("ascend", {"health": "Warning"}, [("SubHealthy", "HealthWarning")], id="warning"),
        pytest.param(
            "ascend",
            {"health": "Alarm", "error_codes": ["A4025021", "8C084E00", "8C03A000"]},
            [("Failed", "RestartNpu")],
            id="the-gravest-code-says-it-better-than-the-word",
        ),
        pytest.param(
            "ascend",
            {"health": "Alarm", "error_codes": ["A4025021"]},
            [("Failed", "HealthAlarm")],
            id="a-harmless-code-does-not-explain-an-alarm",
        ),
        pytest.param("ascend", {"health": "UNKNOWN"}, [("Unknown", "HealthUnknown")], id="unknown"),
        pytest.param("metax", {"health": "Not Available"}, [("Failed", "NotAvailable")], id="not-available"),
        pytest.param("enflame", {"health": "False"}, [("Failed", "NotHealthy")], id="false"),
        pytest.param("amd", {"sensors_readable": False}, [("Failed", "SensorsUnreadable")], id="lost-after-boot"),
        pytest.param("nvidia", {"row_remap_pending": True}, [("SubHealthy", "RowRemapPending")], id="pending-remap"),
        pytest.param(
            "nvidia", {"row_remap_failed": True, "row_remap_pending": True}, [("Failed", "RowRemapFailed")], id="failed"
        ),
        pytest.param("nvidia", {"recovery_action": "Reset"}, [("Failed", "ResetWanted")], id="reset-wanted"),
        pytest.param("nvidia", {"recovery_action": "Dance"}, [("SubHealthy", "RecoveryWanted")], id="new-action"),
        pytest.param("nvidia", {"throttle_reasons": ["idle", "application_clocks"]}, [], id="idle-is-no-slowdown"),
        pytest.param("nvidia", {"throttle_reasons": ["hw_power_brake"]}, [("SubHealthy", "PowerBrake")], id="brake"),
        pytest.param("nvidia", {"throttle_reasons": ["hw_slowdown"]}, [("SubHealthy", "HardwareSlowdown")], id="hw"),
        pytest.param(
            "nvidia",
            {"throttle_reasons": ["sw_power_cap"], "utilization_pct": 99},
            [("Healthy", "PowerCapped")],
            id="a-card-at-its-limit-does-its-work",
        ),
        pytest.param(
            "nvidia",
            {"pcie_width_current": 8, "pcie_width_max": 16, "utilization_pct": 90},
            [("SubHealthy", "PcieWidth")],
            id="narrow-under-load",
        ),
        pytest.param(
            "nvidia",
            {"pcie_width_current": 8, "pcie_width_max": 16, "utilization_pct": 0},
            [("Healthy", "PcieWidth")],
            id="narrow-at-rest-is-noted",
        ),
        pytest.param(
            "nvidia",
            {"pcie_width_current": 8, "pcie_width_max": 16, "utilization_pct": None},
            [("Healthy", "PcieWidth")],
            id="under-mig-nobody-knows-the-load",
        ),
        pytest.param(
            "nvidia",
            {"pcie_gen_current": 1, "pcie_gen_max": 4, "utilization_pct": 95},
            [("Healthy", "PcieGeneration")],
            id="a-slow-generation-is-noted",
        ),
        pytest.param("nvidia", {"nvlink_gbps": [25, None, 25]}, [("SubHealthy", "NvlinkDown")], id="one-link-down"),
        pytest.param("nvidia", {"nvlink_gbps": [None, None]}, [], id="no-link-in-use"),
        pytest.param(
            "mthreads",
            {"memory_used_mib": 44302, "memory_total_mib": 32768},
            [("SubHealthy", "MemoryMismatch")],
            id="more-used-than-there-is",
        ),
        pytest.param("hygon", {"power_w": 8.0, "power_cap_w": 600.0, "utilization_pct": 0}, [], id="little-power-idle"),
        pytest.param("nvidia", {"ecc_errors": 4}, [("Healthy", "EccSeen")], id="old-errors-are-noted"),
        pytest.param("nvidia", {}, [], id="nothing-known-nothing-said"),
    ],
)
def test_a_reading_says_what_it_says(vendor: str, figures: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert said(vendor, figures) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param({"ecc_errors": 4}, {"ecc_errors": 5}, [("SubHealthy", "UncorrectedEcc")], id="new-errors"),
        pytest.param({"ecc_errors": 4}, {"ecc_errors": 1}, [("Healthy", "EccSeen")], id="the-driver-was-loaded-anew"),
        pytest.param({"ecc_errors": None}, {"ecc_errors": 9}, [("Healthy", "EccSeen")], id="unknown-before"),
        pytest.param({"pcie_replay": 7}, {"pcie_replay": 106}, [], id="a-few-replays"),
        pytest.param({"pcie_replay": 7}, {"pcie_replay": 107}, [("SubHealthy", "PcieReplays")], id="many-replays"),
    ],
)
def test_counters_count_when_they_grow(
    before: dict[str, Any], now: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert said("nvidia", now, before) == expected


def test_a_slowdown_by_the_driver_counts_when_it_lasts_under_load() -> None:
    hot: dict[str, Any] = {"throttle_reasons": ["sw_thermal"], "utilization_pct": 95}
    cool: dict[str, Any] = {"throttle_reasons": [], "utilization_pct": 95}
    before: dict[str, Any] | None = None
    seen = []
    for reading in (hot, hot, cool, hot, hot, hot, {**hot, "utilization_pct": 0}):
        now = counted(reading, before)
        seen.append(said("nvidia", now, before))
        before = now
    sustained = [("SubHealthy", "ThermalSlowdown")]
    assert seen == [[], [], [], [], [], sustained, []]


STATES = {
    "efsmi/q/1x-S60_1.4.3.4.txt": {0: "Healthy"},
    "mthreads-gmi/table/1x-S4000_used-over-total_1.12.2.txt": {0: "SubHealthy"},
    "mx-smi/list/unavailable.txt": {1: "Failed"},
    "npu-smi/health/alarm_3-codes_23.0.7.txt": {0: "Failed"},
    "npu-smi/info/8x-910A_2-warning_24.1.RC2.txt": {3: "SubHealthy", 7: "SubHealthy"},
    "rocm-smi/table/2x-lost_crash.txt": {0: "Failed", 1: "Failed"},
}
"""The cards that the samples' descriptions call sick; all others must be found healthy, whatever they print."""


@present
def test_no_false_alarm_and_no_missed_one_on_any_recorded_sample() -> None:
    found: dict[str, dict[int, str]] = {}
    for case in CASES:
        tool, name, expected = (case.values[0], case.values[1], case.values[2])
        assert isinstance(expected, dict)
        report = parse(str(tool), (PROBES / str(tool) / str(name)).read_bytes(), expected.get("command", ""))
        verdicts = [worst(assess(device["vendor"], device)).verdict for device in report.devices]
        sick = {at: verdict for at, verdict in enumerate(verdicts) if verdict != "Healthy"}
        if sick:
            found[f"{tool}/{name}"] = dict(sick)
    assert found == {name: states for name, states in STATES.items() if set(states.values()) != {"Healthy"}}


def test_every_signal_has_a_name_of_its_own() -> None:
    assert len({signal.name for signal in SIGNALS}) == len(SIGNALS)
