"""Answers a container runtime: what to change in a container before it starts, or why it must not start.

Decides from memory. A pod that neither asks for compute nor carries an allocation is answered at once, unseen. For the
others the agent believes only what it can check: the pod is the one the API server knows under that name and UID (the
informer's copy, or one read where the runtime was faster), the allocation is the router's, and the devices are here,
well, and free.

What takes a disk (the files behind mounts, a look at the host's drivers) is prepared beforehand where the runtime says
that a pod is coming, and is the same for every start of its containers.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from prometheus_client import CollectorRegistry, Counter

from hcs.agent.admissions import Admission, Admissions, plain, renew_host_files, used, write_host_files
from hcs.agent.cards import Cards
from hcs.inject.adjustments import EMPTY, Adjustment
from hcs.inject.arbitration import Ledger, admit, allocated
from hcs.inject.injection import ContainerFacts, NodeFacts, NodeFiles, candidate_paths, conceal, inject
from hcs.inject.instances import Instance
from hcs.inject.profiles import Profile, Profiles
from hcs.inject.protocol import ContainerCreation, StartingContainer
from hcs.inject.withdrawal import withdrawn
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.model.allocations import Allocation
from hcs.model.devices import Device, Nic, NodeInventory, Quarantine
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.nri.guard import requires_plugin
from hcs.vendors.base import VendorError, Wanted

log = logging.getLogger(__name__)

GONE_SECONDS: Final = 30.0
"""How long a deleted pod still counts when the runtime has not said that its containers are gone."""


Work = Callable[[Callable[[], Any]], Awaitable[Any]]
"""How something that waits for a disk is done: off the event loop, where that matters."""


class NotNowError(RuntimeError):
    """The agent cannot tell now; the container must not start, and the runtime should ask again."""


class _Prepared(msgspec.Struct, frozen=True):
    """What was found out and written for a pod, and for what: it holds as long as none of these has changed."""

    allocation: Allocation
    profile: Profile
    devices: tuple[tuple[str, int], ...]
    present: frozenset[str]
    files: Mapping[str, NodeFiles]
    instances: Mapping[str, Instance] = {}


class Delivery:
    """The node's arbiter and injector."""

    def __init__(
        self,
        node: str,
        *,
        client: AsyncClient,
        pods: Informer[resources.Pod],
        cards: Cards,
        admissions: Admissions,
        profiles: Callable[[], Profiles],
        quarantine: Callable[[], tuple[Quarantine, ...]],
        state: Path,
        interceptor: str,
        registry: CollectorRegistry,
        exists: Callable[[str], bool] = os.path.exists,
        cdi: Callable[[Profile], frozenset[str]] = lambda _: frozenset(),
        clock: Callable[[], float] = time.monotonic,
        work: Work = asyncio.to_thread,
        nics: Callable[[], tuple[Nic, ...]] = tuple,
    ) -> None:
        """Prepare.

        Args:
            node: this node's name.
            client: for pods the informer has not seen yet.
            pods: the pods of this node.
            cards: the cards of this node.
            admissions: what was let start before.
            profiles: the profiles in force.
            quarantine: what takes no new work here.
            state: the directory for the files behind mounts.
            interceptor: host path of the library; empty where there is none.
            registry: where the metrics live.
            exists: whether the host has a path.
            cdi: the CDI names that the runtime can resolve now, as far as they fit a profile.
            clock: seconds; only differences count.
            work: how to do what waits for a disk.
            nics: the RDMA adapters, as they were last seen.
        """
        self._nics = nics
        self._node, self._client, self._pods, self._cards = node, client, pods, cards
        self._admissions, self._profiles, self._quarantine = admissions, profiles, quarantine
        self._state, self._interceptor, self._exists, self._cdi = state, interceptor, exists, cdi
        self._clock, self._work, self._writing = clock, work, asyncio.Lock()
        self._met: dict[str, tuple[Pod, float]] = {}
        self._wake = asyncio.Event()
        self._prepared: dict[str, _Prepared] = {}
        self._preparing: dict[str, asyncio.Task[_Prepared]] = {}
        self._gone_since: dict[str, float] = {}
        self._kept: frozenset[str] | None = None
        self._answers = Counter(
            "hcs_agent_containers", "Containers answered, by what was answered.", ["answer"], registry=registry
        )
        pods.on_change(lambda *_: self.sweep())

    async def create(
        self, creation: ContainerCreation, *, from_memory: bool = False, withdraws: bool = True
    ) -> Adjustment:
        """Say what to change in a container that is about to be created; its files exist when this returns.

        Args:
            creation: the question.
            from_memory: ask nobody, and let the record follow a moment later.
            withdraws: whether the runtime can take variables away.

        Raises:
            RefusedError: it must not start; the refusal says why.
            NotNowError: the API server or a card's driver must answer first.
            OSError: the container's files cannot be written.
        """
        try:
            adjustment = await self._create(creation, from_memory, withdraws)
        except RefusedError as error:
            self._answers.labels(error.refusals[0].reason).inc()
            log.warning("container refused: pod=%s container=%s %s", creation.pod.key, creation.container.name, error)
            raise
        self._answers.labels("Adjusted" if adjustment is not EMPTY else "Untouched").inc()
        return adjustment

    async def expect(self, claimed: Pod) -> None:
        """Do what can be done before a pod's containers are asked about; what is wrong with it shows then.

        Args:
            claimed: the pod as the runtime names it.
        """
        try:
            pod = self.seen(claimed)
            if pod is None:
                pod = await self._read(claimed)
                self._met[pod.metadata.uid] = (pod, self._clock())
            allocation = allocated(pod, self._node)
            if isinstance(allocation, Allocation) and self._cards.known.is_set():
                await self._ready(pod, allocation)
        except (RefusedError, NotNowError, OSError) as error:
            log.info("pod not prepared: pod=%s error=%s", claimed.key, error)

    def remove(self, pod_uid: str, container: str) -> None:
        """Note that a container is gone for good."""
        admission = self._admissions.get(pod_uid)
        if admission is not None and container in admission.started:
            self._admissions.hold(msgspec.structs.replace(admission, started=admission.started - {container}))
            self._wake.set()
            self.sweep()

    def found_running(self, pod: Pod, containers: frozenset[str]) -> None:
        """Note which of a pod's containers exist, as the runtime lists them: the last word on what has started."""
        allocation, admission = allocated(pod, self._node), self._admissions.get(pod.metadata.uid)
        if admission is not None:
            self._admissions.hold(msgspec.structs.replace(admission, started=containers))
        elif isinstance(allocation, Allocation) and containers:
            self._admissions.hold(_admission(pod, allocation, containers))
        self._wake.set()

    async def write(self) -> None:
        """Bring the disk up to what memory says.

        Raises:
            OSError: it cannot be written.
        """
        async with self._writing:
            await self._work(self._admissions.write())

    async def run(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Let the disk follow memory, and the cards' instances, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.write()
                await self.take_back()
            except (OSError, VendorError) as error:
                log.warning("not written or not taken back, trying again: error=%s", error)
                await pause(1.0)
                self._wake.set()

    async def take_back(self) -> None:
        """Have the vendors take back the parts of cards whose pods hold nothing any more.

        Raises:
            VendorError: a driver refuses; what is left is taken back the next time.
        """
        live = self._live()
        if live == self._kept or not self._cards.partitioners or not self._pods.synced.is_set():
            return
        for partitioner in self._cards.partitioners:
            await self._work(lambda keeper=partitioner: keeper.keep(self._live))  # type: ignore[misc]
        self._kept = live

    def managed(self, claimed: Pod) -> bool:
        """Whether a pod's containers may start only with our answer, as far as can be known without asking anybody."""
        pod = self.seen(claimed)
        if pod is not None:
            return allocated(pod, self._node) is not None
        return requires_plugin(claimed.annotations) or allocated(claimed, self._node) is not None

    def ledger(self) -> Ledger:
        """What is granted: the admitted pods whose containers may still run."""
        return Ledger({uid: a.allocation for uid, a in self._admissions if not self._finished(a)})

    def sweep(self) -> None:
        """Forget pods that are gone: at once when their containers are too, else after :data:`GONE_SECONDS`."""
        if not self._pods.synced.is_set():
            return
        if self._cards.partitioners and self._live() != self._kept:
            self._wake.set()
        now = self._clock()
        present = {pod.metadata.uid for pod in self._pods.values()}
        self._met = {uid: met for uid, met in self._met.items() if uid not in present and now - met[1] < GONE_SECONDS}
        for uid in self._prepared.keys() - present - self._met.keys():
            if self._admissions.get(uid) is None:
                self._drop(uid)
        for uid, admission in self._admissions:
            if self._known(admission) is not None:
                self._gone_since.pop(uid, None)
                continue
            since = self._gone_since.setdefault(uid, now)
            if admission.started and now - since < GONE_SECONDS:
                continue
            if admission.started:
                log.warning("pod gone without word of its containers: pod=%s/%s", admission.namespace, admission.name)
            self._gone_since.pop(uid, None)
            self._drop(uid)

    async def _create(self, creation: ContainerCreation, from_memory: bool, withdraws: bool) -> Adjustment:
        pod = self.seen(creation.pod)
        if pod is None:
            if not self.managed(creation.pod):
                return EMPTY
            if from_memory:
                raise NotNowError(f"pod {creation.pod.key} is not known here yet")
            pod = await self._read(creation.pod)
        allocation = allocated(pod, self._node)
        if allocation is None:
            return EMPTY
        if isinstance(allocation, Refusal):
            raise RefusedError(allocation)
        if not self._cards.known.is_set():
            raise NotNowError("the node's cards have not been probed yet")
        facts = _facts(pod, creation.container)
        if not allocation.grants(facts.name):
            concealed = conceal(facts, self._profiles())
            return concealed if withdraws else withdrawn(concealed, self._profiles(), 0)
        # No await from here until it counts: two containers that start at once are judged one after the other.
        self.sweep()
        refusal = admit(self.ledger(), allocation, NodeInventory(self._node, self._cards.devices, self._quarantine()))
        if refusal is not None:
            raise RefusedError(refusal)
        before = self._admissions.get(allocation.pod)
        started = before.started if before is not None else frozenset()
        self._admissions.hold(_admission(pod, allocation, started | {facts.name}))
        try:
            adjustment = await self._adjustment(pod, allocation, facts)
            if not withdraws:
                count = len(allocation.grants(facts.name))
                adjustment = withdrawn(adjustment, self._profiles(), count)
            if from_memory:
                self._wake.set()
            else:
                await self.write()
        except BaseException:
            if facts.name not in started:
                self._take_back(allocation.pod, facts.name)
            raise
        log.info(
            "container adjusted: pod=%s container=%s devices=%s",
            pod.key,
            facts.name,
            [grant.device for grant in allocation.grants(facts.name)],
        )
        return adjustment

    async def _adjustment(self, pod: Pod, allocation: Allocation, facts: ContainerFacts) -> Adjustment:
        prepared = await self._ready(pod, allocation)
        adjustment = inject(allocation, prepared.profile, facts, self._node_facts(prepared))
        if any(file.keep and used(file) for file in adjustment.files):
            await self._work(lambda: renew_host_files(adjustment.files))
        return adjustment

    async def _ready(self, pod: Pod, allocation: Allocation) -> _Prepared:
        """What is prepared for a pod; done now where it is not, once for all who wait for it."""
        profile = self._profiles().effective(allocation.vendor, allocation.runtime)
        if profile is None:
            raise RefusedError(
                Refusal(
                    "NoRuntimeProfile",
                    f"nothing is known about what a container needs on {allocation.vendor} cards; add a RuntimeProfile",
                )
            )
        mine = self._mine(allocation)
        known = self._prepared.get(allocation.pod)
        wanted = (allocation, profile, tuple((device.id, device.index) for device in mine))
        if known is not None and (known.allocation, known.profile, known.devices) == wanted:
            return known
        running = self._preparing.get(allocation.pod)
        if running is None:
            running = asyncio.create_task(self._prepare(pod, *wanted, mine))
            self._preparing[allocation.pod] = running
            running.add_done_callback(lambda _: self._preparing.pop(allocation.pod, None))
        return await asyncio.shield(running)

    async def _prepare(
        self,
        pod: Pod,
        allocation: Allocation,
        profile: Profile,
        identities: tuple[tuple[str, int], ...],
        mine: tuple[Device, ...],
    ) -> _Prepared:
        def prepare() -> _Prepared:
            present = frozenset(path for path in candidate_paths(profile, mine) if self._exists(path))
            files = {device.id: self._cards.files(device) for device in mine}
            instances = self._instances(allocation, profile, mine)
            prepared = _Prepared(allocation, profile, identities, present, files, instances)
            node = self._node_facts(prepared, mine)
            for name in (*allocation.containers, *allocation.reuses):
                write_host_files(inject(allocation, profile, ContainerFacts(name), node).files)
            return prepared

        prepared: _Prepared = await self._work(prepare)
        self._prepared[allocation.pod] = prepared
        return prepared

    def _instances(self, allocation: Allocation, profile: Profile, mine: tuple[Device, ...]) -> dict[str, Instance]:
        """The parts of cards that hold the containers of a pod, made where they are not there yet.

        Raises:
            RefusedError: a card has no room for one.
            NotNowError: the driver of a card fails.
        """
        found: dict[str, Instance] = {}
        if allocation.exclusive or profile.quota in ("", "none"):
            return found
        devices = {device.id: device for device in mine}
        for container, grants in allocation.containers.items():
            partitioner = self._cards.partitioner(grants[0].device) if len(grants) == 1 else None
            device = devices.get(grants[0].device) if grants else None
            if partitioner is None or device is None:
                continue
            if profile.quota == "interceptor" and partitioner.divisible(device):
                continue  # this cluster's choice: our interceptor, and not the vendor's part of a card
            folder = self._state / "containers" / plain(allocation.pod) / plain(container)
            wanted = Wanted(allocation.pod, container, folder, self._live)
            try:
                instance = partitioner.instance(wanted, device, grants[0])
            except VendorError as error:
                raise NotNowError(f"no part of {device.model} {device.index} can be had: {error}") from error
            if instance is not None:
                found[container] = instance
        return found

    def _live(self) -> frozenset[str]:
        """The pods whose containers may run now or soon, as far as anybody here knows."""
        pods = list(self._pods.values())
        uids = {pod.metadata.uid for pod in pods if not pod.finished}
        expected = {*self._prepared.keys(), *self._preparing.keys(), *(uid for uid, _ in self._admissions)}
        return frozenset(uids | expected - {pod.metadata.uid for pod in pods})

    def _take_back(self, uid: str, container: str) -> None:
        """A container will not start after all; nor will the pod, where it was the first."""
        admission = self._admissions.get(uid)
        if admission is not None and admission.started - {container}:
            self._admissions.hold(msgspec.structs.replace(admission, started=admission.started - {container}))
        elif admission is not None:
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._prepared.pop(uid, None)
        self._admissions.drop(uid)
        self._wake.set()

    def _mine(self, allocation: Allocation) -> tuple[Device, ...]:
        return tuple(device for device in self._cards.devices if device.id in allocation.devices())

    def _node_facts(self, prepared: _Prepared, devices: tuple[Device, ...] | None = None) -> NodeFacts:
        return NodeFacts(
            name=self._node,
            devices=self._mine(prepared.allocation) if devices is None else devices,
            state=str(self._state),
            interceptor=self._interceptor,
            present=prepared.present,
            cdi=self._cdi(prepared.profile),
            nics=self._nics(),
            files=prepared.files,
            instances=prepared.instances,
        )

    def seen(self, claimed: Pod) -> Pod | None:
        """The API server's copy of a pod, where it is here already."""
        metadata = claimed.metadata
        known: Pod | None = self._pods.get(metadata.name, metadata.namespace or "default")
        if known is not None and known.metadata.uid == metadata.uid:
            return known
        met = self._met.get(metadata.uid)
        return met[0] if met is not None else None

    async def _read(self, claimed: Pod) -> Pod:
        """The API server's copy of a pod, asked for."""
        namespace, name, uid = claimed.metadata.namespace or "default", claimed.metadata.name, claimed.metadata.uid
        known: Pod | None = None
        try:
            known = await self._client.get(resources.Pod, name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise NotNowError(f"the API server does not say what pod {claimed.key} is: {error}") from error
        except httpx2.HTTPError as error:
            raise NotNowError(f"the API server does not answer: {error!r}") from error
        if known is None or known.metadata.uid != uid:
            raise RefusedError(Refusal("UnknownPod", f"the API server has no pod {claimed.key} with UID {uid[:64]}"))
        plain(uid)
        return known

    def _known(self, admission: Admission) -> resources.Pod | None:
        pod = self._pods.get(admission.name, admission.namespace)
        return pod if pod is not None and pod.metadata.uid == admission.allocation.pod else None

    def _finished(self, admission: Admission) -> bool:
        pod = self._known(admission)
        return pod is not None and pod.finished


def _admission(pod: Pod, allocation: Allocation, started: frozenset[str]) -> Admission:
    return Admission(pod.metadata.namespace or "default", pod.metadata.name, allocation, started)


def _facts(pod: Pod, container: StartingContainer) -> ContainerFacts:
    spec = next((c for c in (*pod.spec.containers, *(pod.spec.initContainers or ())) if c.name == container.name), None)
    if spec is None:
        raise RefusedError(Refusal("UnknownContainer", f"pod {pod.key} has no container {container.name[:80]}"))
    return ContainerFacts(
        name=container.name,
        environment={variable.name: variable.value or "" for variable in container.env},
        args=container.args,
        annotations=pod.annotations,
        mounted=frozenset(mount.mountPath.rstrip("/") for mount in spec.volumeMounts or ()),
    )
