"""What the cards' figures and the agent's ears are, for Prometheus; the table is in ``docs/probes.md``.

Figures change all the time and so have no place in the ComputeNode. One that is unknown has no sample: a missing line
is not a zero.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hcs.agent.alarms import Alarms
from hcs.agent.cards import Cards

GAUGES: Final = (
    ("hcs_card_utilization_percent", "utilization_pct", 1, "How busy the card is."),
    ("hcs_card_memory_used_bytes", "memory_used_mib", 2**20, "Memory in use, by whomever."),
    ("hcs_card_temperature_celsius", "temperature_c", 1, "Temperature of the chip."),
    ("hcs_card_power_watts", "power_w", 1, "Power drawn."),
    ("hcs_card_pcie_width_lanes", "pcie_width_current", 1, "Lanes in use."),
    ("hcs_card_pcie_transmit_kilobytes_per_second", "pcie_tx_kbps", 1, "PCIe throughput from the card."),
    ("hcs_card_pcie_receive_kilobytes_per_second", "pcie_rx_kbps", 1, "PCIe throughput to the card."),
)
"""Name, the figure's key, what it is multiplied by, and what it says."""
COUNTERS: Final = (
    ("hcs_card_ecc_errors", "ecc_errors", "Uncorrected memory errors since the driver was loaded."),
    ("hcs_card_pcie_replays", "pcie_replay", "PCIe replays since the driver was loaded."),
)


class FigureMetrics(Collector):
    """Computed when asked, from what was last read."""

    def __init__(self, cards: Cards, alarms: Alarms) -> None:
        """Take both; nothing is read here."""
        self._cards, self._alarms = cards, alarms

    def collect(self) -> Iterable[Metric]:
        """One family for each figure, and one for each of the agent's ears."""
        yield from self._of_cards()
        sources = GaugeMetricFamily(
            "hcs_agent_pcie_error_source", "1 for the source that PCIe errors are read from.", labels=["source"]
        )
        sources.add_metric([self._alarms.aer.source], 1)
        yield sources
        log = self._alarms.kernel_log
        yield GaugeMetricFamily(
            "hcs_agent_kernel_log_followed", "Whether the kernel's log is followed.", 0 if log.problem else 1
        )
        yield CounterMetricFamily("hcs_agent_kernel_log_overruns", "Times that lines were lost.", log.lost)
        yield CounterMetricFamily("hcs_agent_stray_events", "Faults of no card known here.", self._alarms.strays)

    def _of_cards(self) -> Iterator[Metric]:
        figures = [(device, self._cards.figures.get(device.id, {})) for device in self._cards.devices]
        for name, key, factor, text in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["device", "vendor", "model"])
            for device, known in figures:
                if known.get(key) is not None:
                    gauge.add_metric([device.id, device.vendor, device.model], known[key] * factor)
            yield gauge
        for name, key, text in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["device", "vendor", "model"])
            for device, known in figures:
                if known.get(key) is not None:
                    counter.add_metric([device.id, device.vendor, device.model], known[key])
            yield counter
