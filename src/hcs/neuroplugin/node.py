"""One node's neuromorphic plugin, put together: books, kubelet's sockets, service, objects, a look at boards."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from lightkube import AsyncClient
from prometheus_client import CollectorRegistry, Gauge

from hcs.deviceplugin.plugin import DIRECTORY, DevicePlugin
from hcs.deviceplugin.podresources import SOCKET, Holder, PodResources, PodResourcesError
from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.drivers import BoardDriver, DriverError, Limits
from hcs.neuro.service import NeuralService
from hcs.neuro.sites import Site
from hcs.neuroplugin.app import build
from hcs.neuroplugin.books import Books
from hcs.neuroplugin.neuraltasks import NeuralTasks
from hcs.neuroplugin.operator import Call, Operator
from hcs.neuroplugin.plans import Plans, PodPlans
from hcs.neuroplugin.reporting import BoardReport
from hcs.neuroplugin.resources import SpikingResource
from hcs.neuroplugin.settings import FIELDS, Settings

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
"""Between two looks at podresources and at the boards."""

Pause = Callable[[float], Awaitable[None]]


class NeuroNode:
    """Everything on one node."""

    def __init__(
        self,
        drivers: Mapping[str, BoardDriver],
        settings: Settings,
        *,
        directory: Path | None = DIRECTORY,
        pod_resources: Path = SOCKET,
        client: AsyncClient | None = None,
        node: str = "",
        tokens: Mapping[str, str] | None = None,
        first_id: int = 1,
        plans: Plans | None = None,
        pause: Pause = asyncio.sleep,
        call: Call = asyncio.to_thread,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            drivers: board id → driver.
            settings: domain and units.
            directory: the kubelet's plugin directory; None where there is no kubelet.
            pod_resources: the kubelet's podresources socket.
            client: the API server, for ``NeuralTask`` objects, the router's choices and the report of boards; None to
                do without.
            node: this node's name.
            tokens: bearer token → tenant.
            first_id: the first global number.
            plans: what the router chose for pods; None: read with the client, where there is one.
            pause: how to wait.
            call: how a driver's call, which may block, is made.

        Raises:
            RefusedError: the settings make no sense, or a list would be too long for a kubelet.
        """
        settings.check()
        self.service = NeuralService([driver.query() for driver in drivers.values()], first_id=first_id)
        self.books = Books(self.service, settings)
        self._dirty = asyncio.Event()
        self._published: dict[str, frozenset[str]] = {}
        self.operator = Operator(self.service, drivers, changed=self._changed, call=call)
        self._pause = pause
        self.registry = CollectorRegistry()
        self._metrics()
        self.pod_resources = PodResources(pod_resources)
        self.plans = plans or (PodPlans(client, node, settings.domain) if client is not None else None)
        self.report = (
            BoardReport(client, node, self.service.sites, unit=settings.units.cores, pause=pause)
            if client is not None
            else None
        )
        self.plugins = (
            [
                DevicePlugin(
                    SpikingResource(name, self.books, enforce=self.enforce, plans=self.plans, occupied=self._occupied),
                    directory=directory,
                    pod_resources=self.pod_resources,
                    preference=True,
                    pause=pause,
                )
                for name in self.books.names
            ]
            if directory is not None
            else []
        )
        self.objects = NeuralTasks(self.operator, client, node) if client is not None else None
        self.app = build(self.operator, tokens=tokens or {}, registry=self.registry)

    async def publish(self) -> None:
        """Send the kubelet the lists as they are.

        Raises:
            RefusedError: a list is too long.
        """
        for plugin in self.plugins:
            name = plugin.resource.name
            healthy = self.books.healthy(name)
            if self._published.get(name) != healthy:  # a list of 20 000 ids takes a tenth of a second to make
                await plugin.publish(self.books.units(name, healthy))
                self._published[name] = healthy

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """What to keep running."""
        running: list[Callable[[], Awaitable[None]]] = [plugin.run for plugin in self.plugins]
        running += [self._publishing, self._looking]
        if self.report is not None:
            running.append(self.report.run)
        if self.objects is not None:
            running += [self.objects.informer.run, self.objects.run]
        return running

    async def look(self) -> None:
        """Compare with podresources, and ask the boards for faults; once."""
        if self.plugins:
            try:
                holdings = await self.pod_resources.list()
                unknown = self.plans is not None and self.books.unknown(holdings)
                plans = await self.plans.look() if self.plans is not None and unknown else ()
                freed = self.books.reconcile(holdings, plans)
            except PodResourcesError as error:
                log.debug("podresources do not answer: %s", error)
            else:
                for taken in freed:
                    log.info("came free: board=%s amount=%d holder=%s", taken.board, taken.amount, taken.holder)
                    with contextlib.suppress(DriverError):
                        await self.operator.call(self.operator.drivers[taken.board].unload, taken.key)
                if freed:
                    self._changed()
                elif unknown:
                    self._occupied()
        await self.operator.look()

    async def enforce(self, holder: Holder) -> None:
        """Hold a container to what it was given, all its resources together.

        Raises:
            RefusedError: the board does not take the limits; the container must not start.
        """
        try:
            # Both resources of a pod come in calls of their own; the kubelet knows that they belong together.
            for holding in await self.pod_resources.list():
                if holding.holder == holder:
                    for name, ids in holding.ids.items():
                        if name in self.books.names:
                            self.books.identify(name, ids, holder)
        except PodResourcesError as error:
            log.warning("podresources do not answer: %s", error)
        by_board: dict[str, tuple[int, int, list[tuple[str, int]]]] = {}
        for name, taken in self.books.of(holder).items():
            key, ksps, channels = by_board.get(taken.board, (0, 0, []))
            word = self.books.word(name)
            if word == "ksps":
                key, ksps = taken.key, taken.amount
            elif word == "event-routing-streams":
                corridors = self.service.sites[taken.board].ledger.corridors(taken.key)
                channels = [(c.port, c.channel) for c in corridors]
            by_board[taken.board] = (key or taken.key, ksps, channels)
        for board, (key, ksps, channels) in by_board.items():
            driver = self.operator.drivers[board]
            try:
                await self.operator.call(driver.configure, key, Limits(ksps, tuple(channels)))
            except DriverError as error:
                raise RefusedError(Refusal("LimitsNotSet", f"{error}; the container must not run unlimited")) from error
        log.info(
            "limits set: namespace=%s pod=%s container=%s boards=%s",
            holder.namespace, holder.pod, holder.container, ",".join(sorted(by_board)),
        )  # fmt: skip

    def _changed(self) -> None:
        self._dirty.set()
        self._occupied()

    def _occupied(self) -> None:
        if self.report is not None:
            self.report.wake()

    async def _publishing(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self.publish()
            except RefusedError as error:
                log.error("list not published: %s", error)
            if self.objects is not None:
                self.objects.wake()
            await self._pause(0.2)

    async def _looking(self) -> None:
        while True:
            await self.look()
            await self._pause(LOOK_SECONDS)

    def _metrics(self) -> None:
        capacity = Gauge("hcs_neuro_capacity", "What a board offers.", ["board", "metric"], registry=self.registry)
        taken = Gauge("hcs_neuro_taken", "What is taken of it.", ["board", "metric"], registry=self.registry)
        for id, site in self.service.sites.items():
            for field in FIELDS:
                capacity.labels(id, field).set_function(partial(_offered, site, field))
                taken.labels(id, field).set_function(partial(_taken, site, field))


def _offered(site: Site, field: str) -> float:
    return float(getattr(site.capacity, field))


def _taken(site: Site, field: str) -> float:
    return float(getattr(site.capacity, field) - getattr(site.free(), field))
