"""Evicts pods from failed cards: under a budget, and no more often than it can help.

A disruption budget may forbid an eviction for hours, and every change in the cluster begins a new round; so each pod is
asked for again only after a pause.
"""

import datetime
from collections.abc import Collection
from typing import Final

import httpx2
from lightkube import ApiError, AsyncClient
from prometheus_client import CollectorRegistry, Counter

from hcs.healer.telling import Teller
from hcs.health.budget import EvictionBudget
from hcs.health.cards import Instruction
from hcs.kube.writes import evict
from hcs.model.devices import Device
from hcs.model.pods import Pod

RETRY_SECONDS: Final = 5.0
"""As long as ``kubectl drain`` waits before it asks again."""


class Evictions:
    """The evictions of one healer."""

    def __init__(
        self, client: AsyncClient, teller: Teller, budget: EvictionBudget, registry: CollectorRegistry
    ) -> None:
        """Prepare.

        Args:
            client: the connection.
            teller: tells about pods.
            budget: how many may be evicted in a while; a healer that starts has spent nothing.
            registry: where the metrics live.
        """
        self._client, self._teller, self._budget = client, teller, budget
        self._again: dict[str, float] = {}
        self._count = Counter("hcs_healer_evictions", "Pods evicted from failed cards.", ["result"], registry=registry)

    async def evict(self, pod: Pod, device: Device, order: Instruction, moment: datetime.datetime) -> None:
        """Have a pod leave its card, if that may be now. A server that refuses is asked again later."""
        uid, now = pod.metadata.uid, moment.timestamp()
        if pod.metadata.deletionTimestamp or now < self._again.get(uid, now):
            return
        if pod.controller is None:
            message = (
                f"{order.message}; the pod has no controller that would replace it, so it is left for its owner to "
                "delete and create again"
            )
            await self._teller.pod(pod, "NotEvicted", message, moment)
            return
        if not self._budget.allows(now):
            message = f"{order.message}; the eviction budget is spent, the pod is moved later"
            await self._teller.pod(pod, "EvictionDelayed", message, moment)
            return
        self._again[uid] = now + RETRY_SECONDS
        try:
            result = await evict(self._client, pod)
        except (ApiError, httpx2.HTTPError) as error:
            self._count.labels("failed").inc()
            await self._teller.pod(pod, "EvictionFailed", f"{order.message}; the server did not evict: {error}", moment)
            return
        self._count.labels(result).inc()
        if result == "evicted":
            self._budget = self._budget.spend(now)
            message = f"{order.message}; evicted from {device.model} {device.id}"
            await self._teller.pod(pod, "Evicted", message, moment)
        elif result == "blocked":
            message = f"{order.message}; a disruption budget forbids the eviction for now"
            await self._teller.pod(pod, "EvictionBlocked", message, moment)

    def forget(self, present: Collection[str]) -> None:
        """Drop what is known of pods that no longer exist."""
        for uid in [uid for uid in self._again if uid not in present]:
            del self._again[uid]
