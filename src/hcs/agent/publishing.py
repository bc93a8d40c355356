"""Tells the cluster what this node has: the ComputeNode's status, and a Lease as heartbeat.

Level-triggered and quiet: the status is written when it differs from what the server holds, so an idle agent writes
nothing but its heartbeat, and a status that somebody overwrote, or a ComputeNode that somebody deleted, is mended.
"""

import asyncio
import datetime
import logging
from collections import Counter as Count
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from prometheus_client import CollectorRegistry, Counter

from hcs.agent.cards import Cards
from hcs.agent.labels import changes, labels_of
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.model import names
from hcs.model.devices import Abilities, Device, Latency, Nic, RtosHost
from hcs.model.pods import ObjectMeta
from hcs.model.quantities import show_bytes
from hcs.model.refusals import Refusal

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 10.0
LEASE_SECONDS: Final = 40
ABILITIES: Final = Abilities(runtime="hcs-socket/v1", args=True, cdi=False, fail_closed=True)
"""What holds for every runtime that asks over our socket: it applies all of an answer, or does not start."""


class Publisher:
    """Writes this node's ComputeNode and Lease."""

    def __init__(
        self,
        node: str,
        *,
        client: AsyncClient,
        nodes: Informer[resources.ComputeNode],
        cards: Cards,
        now: Callable[[], datetime.datetime],
        registry: CollectorRegistry,
        slow: Callable[[], Mapping[str, str]] = dict,
        abilities: Callable[[], Abilities] = lambda: ABILITIES,
        problem: Callable[[], Refusal | None] = lambda: None,
        rtos: Callable[[], RtosHost | None] = lambda: None,
        nics: Callable[[Sequence[Device]], tuple[Nic, ...]] = lambda _: (),
        latencies: Callable[[tuple[Latency, ...]], tuple[Latency, ...]] = lambda observed: observed,
    ) -> None:
        """Prepare.

        Args:
            node: this node's name.
            client: the connection.
            nodes: an informer on this node's ComputeNode.
            cards: what to publish.
            now: the clock.
            registry: where the metrics live.
            slow: cards that do less than others of their model, and the sentence that says so.
            abilities: what the container runtime can do for us.
            problem: why nothing should be placed on this node, if so.
            rtos: what the node offers RTOS guests.
            nics: finds the RDMA adapters, and which of the cards each is near to.
            latencies: what the distances to data sources should be, given what they are.
        """
        self._slow, self._abilities, self._problem = slow, abilities, problem
        self._rtos, self._nics, self._latencies = rtos, nics, latencies
        self.nics: tuple[Nic, ...] = ()
        """The RDMA adapters, as they were at the last publishing."""
        self._labelled: dict[str, str] | None = None
        self._node, self._client, self._nodes, self._cards, self._now = node, client, nodes, cards, now
        self._latest: resources.ComputeNode | None = None
        self.wake = asyncio.Event()
        self._writes = Counter("hcs_agent_status_writes", "Writes of the ComputeNode's status.", registry=registry)
        nodes.on_change(self._seen)

    def observed(self) -> resources.ComputeNode | None:
        """The ComputeNode as the server holds it, as far as this agent knows."""
        return self._latest

    async def run(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Publish whenever something changes, until cancelled; a refused write is tried again after a second."""
        await self._nodes.synced.wait()
        await self._cards.known.wait()
        while True:
            self.wake.clear()
            try:
                await self.publish()
                await self.label()
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("status not written, trying again: node=%s error=%r", self._node, error)
                await pause(1.0)
                continue
            await self.wake.wait()

    async def publish(self) -> bool:
        """Write the status if the server's differs.

        Returns:
            Whether anything was written.

        Raises:
            ApiError: the server refused.
        """
        observed = self._latest
        if observed is None:
            observed = await self._create()
        self.nics = self._nics(self._cards.devices)
        wanted = self._status(observed.status)
        if observed.status == wanted:
            return False
        versions: dict[str, str | None] = dict.fromkeys(observed.status.driver_versions)
        status: dict[str, Any] = {
            "devices": msgspec.to_builtins(wanted.devices),
            "abilities": _whole(observed.status.abilities, wanted.abilities),
            "conditions": msgspec.to_builtins(wanted.conditions),
            "driverVersions": {**versions, **wanted.driver_versions},
            "summary": summary(wanted.devices),
            # Every field, also one that is at its default again: a merge leaves out nothing by itself.
            "rtos": None if wanted.rtos is None else _every_field(wanted.rtos),
            "nics": msgspec.to_builtins(wanted.nics),
        }
        if wanted.latencies != observed.status.latencies:  # else whoever measured them may be writing just now
            status["latencies"] = msgspec.to_builtins(wanted.latencies)
        self._latest = await self._client.patch(
            resources.ComputeNodeStatus, self._node, {"status": status}, patch_type=PatchType.MERGE
        )
        self._writes.inc()
        log.info("status written: node=%s cards=%d", self._node, len(wanted.devices))
        return True

    async def beat(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Renew the Lease every :data:`HEARTBEAT_SECONDS`, until cancelled."""
        while True:
            try:
                await self.renew()
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("heartbeat not written: node=%s error=%r", self._node, error)
            await pause(HEARTBEAT_SECONDS)

    async def renew(self) -> None:
        """Renew the Lease once, making it where it is missing.

        Raises:
            ApiError: the server refused.
        """
        spec = {
            "holderIdentity": self._node,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": self._now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self._client.patch(
                resources.Lease,
                self._node,
                {"spec": spec},
                namespace=names.NAMESPACE,
                patch_type=PatchType.MERGE,
            )
        except ApiError as error:
            if error.status.code != 404:
                raise
            await self._client.create(
                resources.Lease(
                    apiVersion="coordination.k8s.io/v1",
                    kind="Lease",
                    metadata=ObjectMeta(name=self._node, namespace=names.NAMESPACE),
                    spec=spec,
                )
            )

    async def _create(self) -> resources.ComputeNode:
        fresh = resources.ComputeNode(
            apiVersion=f"{names.GROUP}/{names.VERSION}", kind="ComputeNode", metadata=ObjectMeta(name=self._node)
        )
        try:
            self._latest = await self._client.create(fresh)
        except ApiError as error:
            if error.status.code != 409:
                raise
            self._latest = await self._client.get(resources.ComputeNode, self._node)
        return self._latest

    def _status(self, observed: resources.ComputeNodeState) -> resources.ComputeNodeState:
        return resources.ComputeNodeState(
            devices=self._cards.devices,
            abilities=self._abilities(),
            conditions=self._conditions(observed.conditions),
            driver_versions=dict(self._cards.driver_versions),
            rtos=self._rtos(),
            nics=self.nics,
            latencies=self._latencies(observed.latencies),
            boards=observed.boards,  # the neuroplugin's, which we leave as they are
        )

    def _conditions(self, before: tuple[resources.Condition, ...]) -> tuple[resources.Condition, ...]:
        silent = self._cards.silent
        problems = "; ".join(f"{word}: {text}" for word, text in sorted(silent.items()))
        count = len(self._cards.devices)
        probed = (
            resources.Condition("Probed", "False", "VendorSilent", problems)
            if silent
            else resources.Condition("Probed", "True", "AllVendorsAnswered", f"{count} cards found")
        )
        calibrated = self._calibrated()
        problem = self._problem()
        ready = (
            resources.Condition("Ready", "True", "AgentServing", "the agent answers the container runtime")
            if problem is None
            else resources.Condition("Ready", "False", problem.reason, problem.message)
        )
        stamp = self._now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        since = {(condition.type, condition.status): condition.lastTransitionTime for condition in before}
        return tuple(
            msgspec.structs.replace(c, lastTransitionTime=since.get((c.type, c.status)) or stamp)
            for c in (ready, probed, calibrated, self._healthy())
        )

    def _healthy(self) -> resources.Condition:
        """Whether every card may take work, as far as the agent can tell."""
        sick = [device for device in self._cards.devices if device.verdict != "Healthy"]
        if not sick:
            return resources.Condition("Healthy", "True", "AllCardsHealthy", "no card shows a fault")
        words = "; ".join(f"{d.id}: {d.verdict_reason or d.verdict}" for d in sick[:8])
        more = f" and {len(sick) - 8} more" if len(sick) > 8 else ""
        return resources.Condition(
            "Healthy", "False", "SickCards", f"{len(sick)} of {len(self._cards.devices)}: {words}{more}"
        )

    async def label(self) -> bool:
        """Bring the Node's labels of ours up to date.

        Returns:
            Whether anything was written.

        Raises:
            ApiError: the server refused.
        """
        devices = self._cards.devices
        if self._labelled == labels_of(devices):
            return False
        try:
            node = await self._client.get(resources.Node, self._node)
        except ApiError as error:
            if error.status.code == 404:
                return False  # the kubelet has not come yet; looked for again at the next publishing
            raise
        patch = changes(node.metadata.labels or {}, devices)
        if patch:
            body = {"metadata": {"labels": patch}}
            await self._client.patch(resources.Node, self._node, body, patch_type=PatchType.MERGE)
        self._labelled = labels_of(devices)
        return bool(patch)

    def _calibrated(self) -> resources.Condition:
        """Whether the cards' rates were found on the cards themselves."""
        cards, slow = self._cards.devices, self._slow()
        measured = sum(bool(device.measured_at) for device in cards)
        if slow:
            return resources.Condition("Calibrated", "True", "SlowCards", "; ".join(slow[id] for id in sorted(slow)))
        if measured < len(cards):
            counts = f"{measured} of {len(cards)} cards were measured, the others have their model's rates"
            return resources.Condition("Calibrated", "False", "NotMeasured", counts)
        return resources.Condition("Calibrated", "True", "AllMeasured", f"{measured} cards were measured")

    def _seen(self, kind: str, node: resources.ComputeNode, _: resources.ComputeNode | None) -> None:
        self._latest = None if kind == "DELETED" else node
        self.wake.set()


def _every_field(host: RtosHost) -> dict[str, Any]:
    names = zip(host.__struct_fields__, host.__struct_encode_fields__, strict=True)
    return {encoded: getattr(host, name) for name, encoded in names}


def _whole(before: Abilities, after: Abilities) -> dict[str, Any]:
    """What a merge patch needs to replace the abilities: what is left out would stay as it was."""
    return {**dict.fromkeys(msgspec.to_builtins(before)), **msgspec.to_builtins(after)}


def summary(devices: tuple[Device, ...]) -> dict[str, Any]:
    """The figures ``kubectl get computenodes`` shows."""
    models = Count(device.model for device in devices)
    return {
        "cards": len(devices),
        "healthy": sum(device.verdict == "Healthy" for device in devices),
        "vram": show_bytes(sum(device.vram for device in devices)),
        "models": ", ".join(f"{count}x {model}" for model, count in models.items()),
    }
