"""The healer's loop: look at every card, let the state machine decide, then write, evict and tell.

Level-triggered: each round starts from what the API server holds, so a healer that was restarted, or whose write was
lost, does in the next round what is still missing. A pod is evicted only after the quarantine that names its owner and
its resume point is stored: the replacement may be bound the moment the old pod is gone.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from prometheus_client import CollectorRegistry, Counter, Gauge

from hcs.healer.resume import resume_point
from hcs.health.budget import EvictionBudget
from hcs.health.cards import CardState, Instruction, Observation, step
from hcs.health.quarantine import HEALER, wanted_entries
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.kube.writes import EventRecorder, evict, reference
from hcs.model import names
from hcs.model.allocations import allocation_of
from hcs.model.devices import Device, EvictedOwner
from hcs.model.pods import Pod

log = logging.getLogger(__name__)
Card = tuple[str, str]
"""Node name and device id."""


class Healer:
    """Holds where each card stands; everything else is read from the informers."""

    def __init__(
        self,
        client: AsyncClient,
        nodes: Informer[resources.ComputeNode],
        pods: Informer[resources.Pod],
        *,
        now: Callable[[], datetime.datetime],
        probation: float,
        budget: EvictionBudget,
        registry: CollectorRegistry,
    ) -> None:
        """Prepare.

        Args:
            client: the connection.
            nodes: all ComputeNodes.
            pods: all pods.
            now: the clock.
            probation: seconds a failed card must be healthy before it serves again.
            budget: how many pods may be evicted in a while.
            registry: where the metrics live.
        """
        self._client, self._nodes, self._pods, self._now = client, nodes, pods, now
        self._probation, self._budget = probation, budget
        self._recorder = EventRecorder(client, "healer")
        self._cards: dict[Card, CardState] = {}
        self._leaving: dict[Card, dict[str, Pod]] = {}
        self._told: set[str] = set()
        self.wake = asyncio.Event()
        self._evictions = Counter(
            "hcs_healer_evictions", "Pods evicted from failed cards.", ["result"], registry=registry
        )
        self._quarantined = Gauge("hcs_healer_quarantined_cards", "Cards out of service.", registry=registry)
        nodes.on_change(lambda *_: self.wake.set())
        pods.on_change(lambda *_: self.wake.set())

    async def run(self, pause: float = 1.0) -> None:
        """Reconcile on every change, and at least every ``pause`` seconds, until cancelled."""
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        while True:
            self.wake.clear()
            try:
                await self.reconcile()
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("round not finished: error=%r", error)
            try:
                await asyncio.wait_for(self.wake.wait(), pause)
            except TimeoutError:
                continue

    async def reconcile(self) -> None:
        """Bring every card one step on.

        Raises:
            ApiError: the server refused a write; the next round tries again.
        """
        for node in self._nodes.values():
            await self._heal(node)
        self._quarantined.set(
            sum(state.phase in ("Quarantined", "Drained", "Recovering") for state in self._cards.values())
        )

    async def _heal(self, node: resources.ComputeNode) -> None:
        moment = self._now()
        instructions: list[tuple[Device, Instruction]] = []
        for device in node.status.devices:
            card = (node.metadata.name, device.id)
            state = self._cards.get(card) or self._initial(node, device, moment.timestamp())
            seen = Observation(
                device.verdict,
                device.verdict_reason,
                device.verdict_message,
                len(self._holders(card)),
                max(moment.timestamp(), state.since),
            )
            self._cards[card], orders = step(state, seen, probation=self._probation)
            instructions += [(device, order) for order in orders]
        evicted = {device.id: await self._owners(node, device) for device in node.status.devices}
        if not await self._write(node, evicted, moment):
            self.wake.set()
            return
        for device, order in instructions:
            if order.action == "tell":
                await self._tell(node, device, order, moment)
            elif order.action == "evict":
                await self._evict(node, device, order, moment)

    def _initial(self, node: resources.ComputeNode, device: Device, now: float) -> CardState:
        ours = any(entry.by == HEALER and entry.device == device.id for entry in node.spec.quarantine)
        return CardState("Quarantined" if ours else "Serving", now, ("restored",) if ours else ())

    def _holders(self, card: Card) -> list[resources.Pod]:
        """Unfinished pods that hold the card."""
        node, device = card
        found = []
        for pod in self._pods.values():
            if pod.spec.nodeName == node and not pod.finished:
                allocation = allocation_of(pod)
                if allocation is not None and device in allocation.devices():
                    found.append(pod)
        return found

    async def _owners(self, node: resources.ComputeNode, device: Device) -> tuple[EvictedOwner, ...]:
        """Who must be told where to resume: owners of pods that lost this card and have no replacement yet."""
        card = (node.metadata.name, device.id)
        entry = next((e for e in node.spec.quarantine if e.device == device.id and e.by == HEALER), None)
        leaving = self._leaving.setdefault(card, {})
        if self._cards[card].phase == "Quarantined" and device.verdict == "Failed":
            leaving |= {pod.metadata.uid: pod for pod in self._holders(card) if pod.controller is not None}
        known = {owner.pod: owner for owner in (entry.evicted if entry else ())}
        for pod in leaving.values():
            if pod.controller is not None:
                known[pod.metadata.name] = EvictedOwner(
                    owner_uid=pod.controller.uid,
                    namespace=pod.metadata.namespace or "default",
                    pod=pod.metadata.name,
                    vendor=device.vendor,
                    resume_from=await resume_point(pod),
                )
        replaced = {name for name, owner in known.items() if self._replaced(owner, leaving)}
        for uid in [uid for uid, pod in leaving.items() if pod.metadata.name in replaced]:
            del leaving[uid]
        return tuple(known[name] for name in sorted(known) if name not in replaced)

    def _replaced(self, owner: EvictedOwner, leaving: dict[str, Pod]) -> bool:
        """Whether another pod of the same owner is bound and was told to resume."""
        if self._pods.get(owner.pod, owner.namespace) is not None:
            return False
        return any(
            pod.controller is not None
            and pod.controller.uid == owner.owner_uid
            and pod.metadata.uid not in leaving
            and allocation_of(pod) is not None
            and (not owner.resume_from or names.RESUME in pod.annotations)
            for pod in self._pods.values()
        )

    async def _write(
        self, node: resources.ComputeNode, evicted: dict[str, tuple[EvictedOwner, ...]], moment: datetime.datetime
    ) -> bool:
        """Store the quarantine if it differs; False when somebody else wrote in between."""
        states = {device: state for (name, device), state in self._cards.items() if name == node.metadata.name}
        stamp = moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        wanted = wanted_entries(node.spec.quarantine, node.status.devices, states, evicted, stamp)
        if wanted == node.spec.quarantine:
            return True
        body = {
            "metadata": {"resourceVersion": node.metadata.resourceVersion},
            "spec": {"quarantine": msgspec.to_builtins(wanted)},
        }
        try:
            await self._client.patch(resources.ComputeNode, node.metadata.name, body, patch_type=PatchType.MERGE)
        except ApiError as error:
            if error.status.code in (404, 409):
                return False
            raise
        log.info("quarantine written: node=%s devices=%s", node.metadata.name, [entry.device for entry in wanted])
        return True

    async def _evict(
        self, node: resources.ComputeNode, device: Device, order: Instruction, moment: datetime.datetime
    ) -> None:
        for pod in self._holders((node.metadata.name, device.id)):
            if pod.metadata.deletionTimestamp:
                continue
            if pod.controller is None:
                await self._tell_pod(
                    pod,
                    "NotEvicted",
                    f"{order.message}; the pod has no controller that would replace it, so it is left for its owner "
                    "to delete and create again",
                    moment,
                )
                continue
            if not self._budget.allows(moment.timestamp()):
                message = f"{order.message}; the eviction budget is spent, the pod is moved later"
                await self._tell_pod(pod, "EvictionDelayed", message, moment)
                continue
            result = await evict(self._client, pod)
            self._evictions.labels(result).inc()
            if result == "evicted":
                self._budget = self._budget.spend(moment.timestamp())
                await self._tell_pod(
                    pod, "Evicted", f"{order.message}; evicted from {device.model} {device.id}", moment
                )
            elif result == "blocked":
                await self._tell_pod(
                    pod, "EvictionBlocked", f"{order.message}; a disruption budget forbids the eviction for now", moment
                )

    async def _tell(
        self, node: resources.ComputeNode, device: Device, order: Instruction, moment: datetime.datetime
    ) -> None:
        about = resources.ObjectReference(
            apiVersion=f"{names.GROUP}/{names.VERSION}",
            kind="ComputeNode",
            name=node.metadata.name,
            uid=node.metadata.uid,
        )
        log.info(
            "card: node=%s device=%s reason=%s message=%s", node.metadata.name, device.id, order.reason, order.message
        )
        message = f"{device.model} {device.id}: {order.message}"
        warning = order.reason in ("CardQuarantined", "CardSubHealthy", "CardFailedAgain")
        await self._recorder.tell(about, reason=order.reason, message=message, now=moment, warning=warning)

    async def _tell_pod(self, pod: Pod, reason: str, message: str, moment: datetime.datetime) -> None:
        key = f"{pod.metadata.uid}/{reason}/{message}"
        if key in self._told:
            return
        if len(self._told) > 4096:
            self._told.clear()
        self._told.add(key)
        log.info("pod: pod=%s reason=%s message=%s", pod.key, reason, message)
        await self._recorder.tell(reference(pod), reason=reason, message=message, now=moment, warning=True)
