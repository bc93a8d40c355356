"""The RTOS guests of this node: what the ComputeNode and the metrics say of them.

Read from what the OCI runtime has recorded, from the hypervisor's tool where there is one, and from micad's directory;
the daemon itself is not asked, for it serves one request at a time and the relays need it more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hcs.mica.figures import GuestFigures, figures_of, host_figures
from hcs.mica.records import Records
from hcs.mica.settings import client_of, host_of
from hcs.model.devices import RtosHost
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import Host

log = logging.getLogger(__name__)

SECONDS: Final = 2.0
ROOTS: Final = (Path("/run/hcs-rtos"), Path("/run/containerd/runc/k8s.io"))
MIB: Final = 1 << 20


class Guests(Collector):
    """Looks at the guests every :data:`SECONDS`, and is their metrics."""

    def __init__(
        self,
        config: Config,
        roots: Sequence[Path],
        *,
        aside: Callable[[Callable[[], None]], Awaitable[None]] = asyncio.to_thread,
    ) -> None:
        """Prepare; nothing is read.

        Args:
            config: the node's configuration of guests.
            roots: where the OCI runtime keeps its records.
            aside: runs what takes time beside the event loop.
        """
        self._config, self._roots, self._aside = config, [Records(root) for root in roots], aside
        self.changed: Callable[[], None] = lambda: None
        """Called when what is to be published has changed."""
        self._host: Host | None = None
        self.published: RtosHost | None = None
        self._figures: list[GuestFigures] = []

    def look(self) -> None:
        """Read everything once. It may take as long as the hypervisor's tool does: not for the event loop."""
        mica = client_of(self._config)
        if self._host is None or not (self._host.pcpus and self._host.total_memory_mb):
            self._host = host_of(self._config)
        records = [record for root in self._roots for record in root.all()]
        self._figures = figures_of(records, self._config)
        self.published = host_figures(self._host, self._config, self._figures, ready=mica.is_up())

    async def watch(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Look again and again, until cancelled."""
        while True:
            before = self.published
            try:
                await self._aside(self.look)
            except OSError as error:
                log.warning("guests cannot be read: %s", error)
            if self.published != before:
                self.changed()
            await pause(SECONDS)

    def collect(self) -> Iterable[Metric]:
        """The metrics, from the last look."""
        host = self.published
        if host is not None:
            yield _gauge("hcs_rtos_micad_up", "Whether micad is there.", host.ready)
            yield _gauge("hcs_rtos_pcpus", "Physical CPUs of the host; 0 where not known.", host.pcpus)
            yield _gauge("hcs_rtos_memory_bytes", "Memory of the host.", host.total_memory_mb * MIB)
            yield _gauge("hcs_rtos_memory_free_bytes", "Memory that no guest has.", host.free_memory_mb * MIB)
            yield _gauge(
                "hcs_rtos_capacity_free_cpus", "pCPUs that no guest's capacity claims.", host.free_capacity / 100
            )
        yield from guest_metrics(self._figures)


def guest_metrics(figures: Sequence[GuestFigures]) -> Iterable[Metric]:
    """The metrics of each guest."""
    state = GaugeMetricFamily("hcs_rtos_guest", "One for each guest, with its status.", labels=["guest", "status"])
    gauges: list[tuple[str, str, Callable[[GuestFigures], float]]] = [
        ("weight", "Weight among the guests.", lambda g: g.weight),
        ("capacity_cpus", "Most pCPUs it may use; 0 for no bound.", lambda g: g.capacity / 100),
        ("vcpus", "vCPUs it sees.", lambda g: g.vcpus),
        ("memory_bytes", "Memory it has.", lambda g: g.memory_mb * MIB),
        ("memory_threshold_bytes", "Most memory it may ever get.", lambda g: g.threshold_mb * MIB),
    ]
    used = CounterMetricFamily("hcs_rtos_guest_cpu_seconds", "CPU time it has used.", labels=["guest"])
    for one in figures:
        state.add_metric([one.name, one.status], 1)
        if one.cpu_seconds is not None:
            used.add_metric([one.name], one.cpu_seconds)
    yield state
    for name, help, value in gauges:
        family = GaugeMetricFamily(f"hcs_rtos_guest_{name}", help, labels=["guest"])
        for one in figures:
            family.add_metric([one.name], value(one))
        yield family
    yield used


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, value=float(value))
