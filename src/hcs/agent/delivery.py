"""Answers a container runtime: what to change in a container before it starts, or why it must not start.

Decides from memory. A pod that neither asks for compute nor carries an allocation is answered at once, unseen. For the
others the agent believes only what it can check: the pod is the one the API server knows under that name and UID (the
informer's copy, or one read where the runtime was faster), the allocation is the router's, and the devices are here,
well, and free.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from prometheus_client import CollectorRegistry, Counter

from hcs.agent.admissions import Admission, Admissions, plain, write_host_files
from hcs.agent.cards import Cards
from hcs.inject.adjustments import EMPTY, Adjustment
from hcs.inject.arbitration import Ledger, admit, allocated
from hcs.inject.injection import ContainerFacts, NodeFacts, candidate_paths, conceal, inject
from hcs.inject.profiles import Profile, Profiles
from hcs.inject.protocol import ContainerCreation, StartingContainer
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.model.allocations import Allocation
from hcs.model.devices import Device, NodeInventory, Quarantine
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError

log = logging.getLogger(__name__)

GONE_SECONDS: Final = 30.0
"""How long a deleted pod still counts when the runtime has not said that its containers are gone."""


class NotNowError(RuntimeError):
    """The agent cannot tell now; the container must not start, and the runtime should ask again."""


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
        clock: Callable[[], float] = time.monotonic,
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
            clock: seconds; only differences count.
        """
        self._node, self._client, self._pods, self._cards = node, client, pods, cards
        self._admissions, self._profiles, self._quarantine = admissions, profiles, quarantine
        self._state, self._interceptor, self._exists, self._clock = state, interceptor, exists, clock
        self._gone_since: dict[str, float] = {}
        self._answers = Counter(
            "hcs_agent_containers", "Containers answered, by what was answered.", ["answer"], registry=registry
        )
        pods.on_change(lambda *_: self.sweep())

    async def create(self, creation: ContainerCreation) -> Adjustment:
        """Say what to change in a container that is about to be created; its files exist when this returns.

        Raises:
            RefusedError: it must not start; the refusal says why.
            NotNowError: the API server or a card's driver must answer first.
        """
        try:
            adjustment = await self._create(creation)
        except RefusedError as error:
            self._answers.labels(error.refusals[0].reason).inc()
            log.warning("container refused: pod=%s container=%s %s", creation.pod.key, creation.container.name, error)
            raise
        self._answers.labels("Adjusted" if adjustment is not EMPTY else "Untouched").inc()
        return adjustment

    def remove(self, pod_uid: str, container: str) -> None:
        """Note that a container is gone for good."""
        admission = self._admissions.get(pod_uid)
        if admission is not None and container in admission.started:
            self._admissions.keep(msgspec.structs.replace(admission, started=admission.started - {container}))
            self.sweep()

    def ledger(self) -> Ledger:
        """What is granted: the admitted pods whose containers may still run."""
        return Ledger({uid: a.allocation for uid, a in self._admissions if not self._finished(a)})

    def sweep(self) -> None:
        """Forget pods that are gone: at once when their containers are too, else after :data:`GONE_SECONDS`."""
        if not self._pods.synced.is_set():
            return
        now = self._clock()
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
            self._admissions.drop(uid)

    async def _create(self, creation: ContainerCreation) -> Adjustment:
        if allocated(creation.pod, self._node) is None:
            return EMPTY
        pod = await self._checked(creation.pod)
        allocation = allocated(pod, self._node)
        if allocation is None:
            return EMPTY
        if isinstance(allocation, Refusal):
            raise RefusedError(allocation)
        if not self._cards.known.is_set():
            raise NotNowError("the node's cards have not been probed yet")
        profiles = self._profiles()
        facts = _facts(pod, creation.container)
        if not allocation.grants(facts.name):
            return conceal(facts, profiles)
        # No await from here on: two containers that start at once are judged one after the other.
        self.sweep()
        devices = self._cards.devices
        refusal = admit(self.ledger(), allocation, NodeInventory(self._node, devices, self._quarantine()))
        if refusal is not None:
            raise RefusedError(refusal)
        profile = profiles.effective(allocation.vendor, allocation.runtime)
        if profile is None:
            raise RefusedError(
                Refusal(
                    "NoRuntimeProfile",
                    f"nothing is known about what a container needs on {allocation.vendor} cards; add a RuntimeProfile",
                )
            )
        adjustment = inject(allocation, profile, facts, self._node_facts(allocation, profile, devices))
        before = self._admissions.get(allocation.pod)
        started = before.started if before is not None else frozenset()
        write_host_files(adjustment.files)
        self._admissions.keep(
            Admission(pod.metadata.namespace or "default", pod.metadata.name, allocation, started | {facts.name})
        )
        log.info(
            "container adjusted: pod=%s container=%s devices=%s",
            pod.key,
            facts.name,
            [grant.device for grant in allocation.grants(facts.name)],
        )
        return adjustment

    async def _checked(self, claimed: Pod) -> Pod:
        """The pod as the API server knows it."""
        namespace, name, uid = claimed.metadata.namespace or "default", claimed.metadata.name, claimed.metadata.uid
        known: Pod | None = self._pods.get(name, namespace)
        if known is None or known.metadata.uid != uid:
            try:
                known = await self._client.get(resources.Pod, name, namespace=namespace)
            except ApiError as error:
                if error.status.code != 404:
                    raise NotNowError(f"the API server does not say what pod {claimed.key} is: {error}") from error
                known = None
            except httpx2.HTTPError as error:
                raise NotNowError(f"the API server does not answer: {error!r}") from error
        if known is None or known.metadata.uid != uid:
            raise RefusedError(Refusal("UnknownPod", f"the API server has no pod {claimed.key} with UID {uid[:64]}"))
        plain(uid)
        return known

    def _node_facts(self, allocation: Allocation, profile: Profile, devices: Iterable[Device]) -> NodeFacts:
        mine = [device for device in devices if device.id in allocation.devices()]
        return NodeFacts(
            name=self._node,
            devices=tuple(mine),
            state=str(self._state),
            interceptor=self._interceptor,
            present=frozenset(path for path in candidate_paths(profile, mine) if self._exists(path)),
            files={device.id: self._cards.files(device) for device in mine},
        )

    def _known(self, admission: Admission) -> resources.Pod | None:
        pod = self._pods.get(admission.name, admission.namespace)
        return pod if pod is not None and pod.metadata.uid == admission.allocation.pod else None

    def _finished(self, admission: Admission) -> bool:
        pod = self._known(admission)
        return pod is not None and pod.finished


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
