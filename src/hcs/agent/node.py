"""The agent as a whole: its parts put together, and the order in which they start.

The socket is served only when the agent knows its pods, its profiles, its ComputeNode and its cards: from then on it
answers from memory.
"""

import asyncio
import datetime
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from lightkube import AsyncClient
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette

from hcs.agent import app
from hcs.agent.admissions import Admissions
from hcs.agent.alarms import Alarms
from hcs.agent.calibration import Calibration, Measurer
from hcs.agent.cards import Cards
from hcs.agent.cdi import CdiSpecs
from hcs.agent.datasources import DataSources
from hcs.agent.delivery import Delivery, Work
from hcs.agent.figures import FigureMetrics
from hcs.agent.foreign import ForeignWatch
from hcs.agent.guests import Guests
from hcs.agent.networks import adapters
from hcs.agent.profiles import SiteProfiles
from hcs.agent.publishing import ABILITIES, Publisher
from hcs.agent.repairs import BOOT_ID, Repairs
from hcs.agent.runtime import INDEX, RuntimeLink
from hcs.deviceplugin.podresources import PodResources
from hcs.inject.profiles import Profile
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.model import names
from hcs.model.allocations import allocation_of
from hcs.model.devices import Device, Quarantine
from hcs.nri.plugin import Plugin
from hcs.nri.runtimes import PLUGIN_EVENTS
from hcs.vendors.base import Asker, Questioner, Vendor
from hcs.vendors.pci import SYSFS

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
Pause = Callable[[float], Awaitable[None]]
Task = Callable[[], Awaitable[None]]


class Agent:
    """One node's agent. Run ``tasks``, wait for ``prepared``, then serve ``app``."""

    def __init__(
        self,
        node: str,
        *,
        client: AsyncClient,
        vendors: Sequence[Vendor],
        state: Path,
        interceptor: str,
        poll: float = 0.2,
        probe: float = 60.0,
        rtos: Guests | None = None,
        asker: Callable[[Vendor], Asker] = Questioner,
        exists: Callable[[str], bool] = os.path.exists,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
        clock: Callable[[], float] = time.monotonic,
        pause: Pause = asyncio.sleep,
        measurer: Measurer | None = None,
        sysfs: Path = SYSFS,
        work: Work = asyncio.to_thread,
        nri_socket: Path | None = None,
        guarded: Callable[[], bool] = lambda: False,
        cdi: CdiSpecs | None = None,
        pod_resources: PodResources | None = None,
        data_sources: DataSources | None = None,
        boot_id: Path = BOOT_ID,
    ) -> None:
        """Prepare; nothing is asked, and only the state directory is read.

        Args:
            node: the node's name.
            client: the connection to the API server.
            vendors: where cards come from.
            state: the agent's directory on the host.
            interceptor: host path of the interceptor library; empty where there is none.
            poll: seconds between readings of the cards' health.
            probe: seconds between probes.
            rtos: the RTOS guests, on a node that runs them.
            asker: how a vendor is asked.
            exists: whether the host has a path.
            now: the clock for what is written.
            clock: seconds, for time limits.
            pause: how to wait.
            sysfs: where the kernel shows its devices.
            measurer: measures cards; None leaves all cards at their model's rates.
            work: how to do what waits for a disk.
            nri_socket: the container runtime's, where we are its plugin; None where it asks over our own socket.
            guarded: whether a guard lives beside the runtime.
            cdi: the node's CDI files; None where none are written.
            pod_resources: where the kubelet says what others hold; None where nobody is asked.
            boot_id: where the kernel tells this boot from others.
            data_sources: the named places whose distance is measured; None leaves what others wrote.
        """
        registry = CollectorRegistry()
        self._poll, self._probe, self._pause = poll, probe, pause
        self._pods = Informer(client, resources.Pod, fields={"spec.nodeName": node})
        self._nodes = Informer(client, resources.ComputeNode, namespace=None, fields={"metadata.name": node})
        self._overlays = Informer(client, resources.RuntimeProfile, namespace=None)
        self.guests = rtos
        self.calibration: Calibration | None = None
        if measurer is not None:
            self.calibration = Calibration(
                node,
                client=client,
                measurer=measurer,
                state=state,
                devices=lambda: self.cards.devices,
                drivers=lambda: self.cards.driver_versions,
                granted=self._granted,
                observed=lambda: self.publisher.observed(),
                refined=lambda: self.cards.refined(),
                now=now,
            )
        self.cards = Cards(
            vendors, changed=lambda: self.publisher.wake.set(), asker=asker, refine=self._refined, clock=clock
        )
        self.alarms = Alarms(self.cards)
        self.foreign: ForeignWatch | None = None
        if pod_resources is not None:
            self.foreign = ForeignWatch(pod_resources, lambda: self.cards.devices, self.cards.mark_foreign, clock=clock)
        self.link: RuntimeLink | None = None
        self._cdi, self._work, self._profiles = cdi, work, SiteProfiles(self._overlays)
        self._overlays.on_change(lambda *_: self.cards.refined())
        self.publisher = Publisher(
            node,
            client=client,
            nodes=self._nodes,
            cards=self.cards,
            now=now,
            registry=registry,
            nics=lambda devices: adapters(devices, sysfs),
            slow=lambda: self.calibration.slow if self.calibration else {},
            abilities=lambda: self.link.abilities() if self.link is not None else ABILITIES,
            problem=lambda: self.link.problem() if self.link is not None else None,
            rtos=lambda: rtos.published if rtos is not None else None,
            latencies=data_sources.entries if data_sources is not None else lambda observed: observed,
        )
        self.repairs = Repairs(
            self.cards,
            state,
            observed=self.publisher.observed,
            work=work,
            sysfs=sysfs,
            boot_id=boot_id,
        )
        self.data_sources = data_sources
        if data_sources is not None:
            data_sources.changed = self.publisher.wake.set
            registry.register(data_sources)
        if rtos is not None:
            rtos.changed = self.publisher.wake.set
            registry.register(rtos)
        admissions = Admissions(state)
        admissions.drop_strays()
        self.delivery = Delivery(
            node,
            client=client,
            pods=self._pods,
            cards=self.cards,
            admissions=admissions,
            profiles=self._profiles.current,
            quarantine=self._quarantine,
            state=state,
            interceptor=interceptor,
            registry=registry,
            exists=exists,
            cdi=self._resolvable,
            clock=clock,
            work=work,
            nics=lambda: self.publisher.nics,
        )
        if nri_socket is not None:
            self.link = RuntimeLink(
                self.delivery, client=client, now=now, changed=self.publisher.wake.set, guarded=guarded
            )
            self._plugin = Plugin(
                names.NRI_PLUGIN, INDEX, self.link, events=PLUGIN_EVENTS, socket=nri_socket, pause=pause
            )
        registry.register(_CardMetrics(self))
        registry.register(FigureMetrics(self.cards, self.alarms))
        self.app: Starlette = app.build(self.delivery, registry, self.is_ready)
        log.info("agent prepared: node=%s admitted=%d", node, len(admissions))

    def is_ready(self) -> bool:
        """Whether pods, profiles, ComputeNode and cards are known."""
        informers = (self._pods, self._nodes, self._overlays)
        return self.cards.known.is_set() and all(informer.synced.is_set() for informer in informers)

    async def prepared(self) -> None:
        """Wait until :meth:`is_ready`."""
        for informer in (self._pods, self._nodes, self._overlays):
            await informer.synced.wait()
        await self.cards.known.wait()

    def tasks(self) -> list[Task]:
        """What must run beside the socket, each until cancelled."""
        guests = self.guests
        return [
            self._pods.run,
            self._nodes.run,
            self._overlays.run,
            lambda: self.cards.watch(self._pause, poll=self._poll, probe=self._probe),
            lambda: self.alarms.watch(self._pause),
            lambda: self.repairs.watch(self._pause),
            lambda: self.publisher.run(self._pause),
            lambda: self.publisher.beat(self._pause),
            lambda: self.delivery.run(self._pause),
            self._sweep,
            *([] if guests is None else [functools.partial(guests.watch, self._pause)]),
            *([] if self.data_sources is None else [functools.partial(self.data_sources.watch, self._pause)]),
            self._calibrate,
            *([self._look_around] if self.foreign is not None else []),
            *([self._describe] if self._cdi is not None else []),
            *([self._connect] if self.link is not None else []),
        ]

    def _resolvable(self, profile: Profile) -> frozenset[str]:
        """The CDI names that can be given to the runtime now."""
        runtime = self.link.runtime if self.link is not None else None
        if self._cdi is None or runtime is None or not runtime.cdi:
            return frozenset()
        return self._cdi.names(profile)

    async def _look_around(self) -> None:
        await self.cards.known.wait()
        assert self.foreign is not None
        await self.foreign.watch(self._pause)

    async def _describe(self) -> None:
        """Keep the CDI files as the cards are."""
        await self.prepared()
        while True:
            await self.describe()
            await self._pause(SWEEP_SECONDS)

    async def describe(self) -> None:
        """Bring the CDI files up to date, once. What goes wrong is tried again; containers get lists meanwhile."""
        assert self._cdi is not None
        specs, devices, profiles = self._cdi, self.cards.devices, self._profiles.current()
        try:
            await self._work(lambda: specs.bring(devices, {d.id: self.cards.files(d) for d in devices}, profiles))
        except OSError as error:
            log.warning("CDI files not written, trying again: error=%s", error)

    def _refined(self, device: Device) -> Device:
        """A card with what was measured of it, and whether a container can be held to a share of it here."""
        known = self.calibration.refine(device) if self.calibration is not None else device
        profile = self._profiles.current().effective(device.vendor)
        held = profile is not None and profile.quota == "interceptor"
        if profile is not None and profile.quota == "instance":
            partitioner = self.cards.partitioner(device.id)
            held = partitioner is not None and partitioner.divisible(device)
        return msgspec.structs.replace(known, whole_only=not held)

    def _granted(self, device: str) -> bool:
        """Whether a container here may use the card, or a pod bound here is about to."""
        bound = (allocation_of(pod) for pod in self._pods.values() if not pod.finished)
        return bool(self.delivery.ledger().holders(device)) or any(a and device in a.devices() for a in bound)

    def _quarantine(self) -> tuple[Quarantine, ...]:
        """What takes no new work: what the server holds, and the card that is being measured."""
        observed = self.publisher.observed()
        reserved = self.calibration.reserved if self.calibration else ()
        return (*(observed.spec.quarantine if observed else ()), *reserved)

    async def _calibrate(self) -> None:
        await self.prepared()
        if self.calibration is not None:
            await self.calibration.run(self._pause)

    async def _connect(self) -> None:
        """Be the runtime's plugin, but not before every question can be answered: from then on all pass through us."""
        await self.prepared()
        await self._plugin.run()

    async def _sweep(self) -> None:
        while True:
            await self._pause(SWEEP_SECONDS)
            self.delivery.sweep()
            if self.link is not None:
                self.publisher.wake.set()  # a guard may have come or gone


class _CardMetrics(Collector):
    """Cards by verdict, and bytes granted on each, computed when asked."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[GaugeMetricFamily]:
        labels = ["device", "model", "verdict"]
        cards = GaugeMetricFamily("hcs_agent_card", "One for each card, with its verdict.", labels=labels)
        granted = GaugeMetricFamily("hcs_agent_granted_bytes", "Memory granted on a card.", labels=["device"])
        ledger = self._agent.delivery.ledger()
        for device in self._agent.cards.devices:
            cards.add_metric([device.id, device.model, device.verdict], 1)
            granted.add_metric([device.id], ledger.used(device.id))
        return (cards, granted)
