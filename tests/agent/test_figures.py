"""Figures for Prometheus: documented, and absent where unknown."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from tests.agent.test_alarms import TwoCards

from hcs.agent.alarms import Alarms
from hcs.agent.cards import Cards
from hcs.agent.figures import FigureMetrics
from hcs.vendors.base import HealthObservation

DOCUMENT = Path(__file__).parents[2] / "docs/probes.md"


class Measured(TwoCards):
    """One card that says everything, one that says nothing."""

    def read_health(self) -> Sequence[HealthObservation]:
        figures = {
            "utilization_pct": 40,
            "memory_used_mib": 3,
            "temperature_c": 51.5,
            "power_w": None,
            "pcie_width_current": 16,
            "pcie_tx_kbps": 7,
            "pcie_rx_kbps": 8,
            "ecc_errors": 2,
            "pcie_replay": 9,
        }
        return (HealthObservation("gpu", figures=figures), HealthObservation("npu"))


def exposed() -> str:
    cards = Cards([Measured()])

    async def read() -> None:
        await cards.probe()
        await cards.check()

    asyncio.run(read())
    registry = CollectorRegistry()
    registry.register(FigureMetrics(cards, Alarms(cards)))
    return generate_latest(registry).decode()


def test_figures_have_samples_where_they_are_known_and_none_where_not() -> None:
    samples = dict(re.findall(r'^(hcs_card_\w+)\{device="gpu",[^}]*\} (\S+)$', exposed(), re.MULTILINE))
    assert samples == {
        "hcs_card_utilization_percent": "40.0",
        "hcs_card_memory_used_bytes": "3.145728e+06",
        "hcs_card_temperature_celsius": "51.5",
        "hcs_card_pcie_width_lanes": "16.0",
        "hcs_card_pcie_transmit_kilobytes_per_second": "7.0",
        "hcs_card_pcie_receive_kilobytes_per_second": "8.0",
        "hcs_card_ecc_errors_total": "2.0",
        "hcs_card_pcie_replays_total": "9.0",
    }
    assert 'device="npu"' not in exposed()


def test_every_metric_is_documented() -> None:
    table = DOCUMENT.read_text().split("## Metrics\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`(hcs_\w+)`", table))
    names = set(re.findall(r"^# TYPE (\S+) ", exposed(), re.MULTILINE))
    assert documented == names


def test_the_source_of_pcie_errors_is_told() -> None:
    assert 'hcs_agent_pcie_error_source{source="none"} 1.0' in exposed()
