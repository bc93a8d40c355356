"""Evicts pods of lower priority for those of higher priority that have no place, and keeps the place free for them.

kube-scheduler's own preemption never starts for want of devices: in its dry run the pod fits already. So the router
chooses by :mod:`hcs.placement.preemption`, over cards and CPU and memory at once, promises the devices to the preemptor
before the first victim goes, nominates the node, and evicts through the API, where disruption budgets have the last
word. Nobody else can take what is promised; when the last victim is gone, kube-scheduler wakes the pod and asks about
its nominated node first.

The promise is bounded: by the victims' own grace and a minute. If a budget forbids the first eviction, nobody has died
and the promise goes at once.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from prometheus_client import Counter

from hcs.kube import resources
from hcs.kube.writes import evict
from hcs.model.allocations import Allocation
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.placement.gangs import Gang, GangPlan
from hcs.placement.preemption import (
    GangVictims,
    Preemptor,
    VictimPlan,
    choose_gang_victims,
    choose_victims,
    correct_victims,
)
from hcs.router.desk import Desk
from hcs.router.machines import amounts_of

log = logging.getLogger(__name__)

SLACK_SECONDS: Final = 60.0
"""How long after the victims' grace the place is kept."""
AGAIN_SECONDS: Final = 5.0
"""The least time between two looks for victims for the same pod, and between two attempts at a blocked eviction."""
BATCH: Final = 4
_GRACE: Final = 30


class Preempting(msgspec.Struct):
    """One preemption under way: for these pods, at the cost of those that are left to evict (UIDs)."""

    allocations: dict[str, Allocation]
    victims: set[str]
    left: set[str]
    until: float
    reason: str
    node: str = ""
    evicted: int = 0
    next_try: float = 0.0


class Candidate(msgspec.Struct, frozen=True):
    """Pods without a place that might evict others: one on its own, or what is missing of a gang.

    ``gang`` makes what is to be placed of it, which costs a look at every node; None where nothing can be.
    """

    key: str
    pods: tuple[Pod, ...]
    gang: Callable[[], Gang | None] | None = None

    @property
    def priority(self) -> int:
        """The lowest of its pods': whoever is evicted must be below each of them."""
        return min(pod.spec.priority or 0 for pod in self.pods)

    @property
    def policy(self) -> str:
        """``Never`` where one of them says so."""
        return "Never" if any(pod.spec.preemptionPolicy == "Never" for pod in self.pods) else "PreemptLowerPriority"


class Waiters(Protocol):
    """Who waits for a place."""

    def candidates(self) -> list[Candidate]:
        """Those that were refused for want of devices and may evict others."""


class Preemption:
    """The preemptions of one router."""

    def __init__(
        self, client: AsyncClient, desk: Desk, waiters: Waiters, *, now: Callable[[], float], count: Counter
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            desk: the router.
            waiters: who waits for a place.
            now: seconds on a clock that only goes forward.
            count: preemptions by what became of them.
        """
        self._client, self._desk, self._waiters, self._now, self._count = client, desk, waiters, now, count
        self._under_way: dict[str, Preempting] = {}
        self._of: dict[str, str] = {}
        self._not_before: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def keeps(self, uid: str) -> bool:
        """Whether devices are kept for a pod while its victims end: a refusal meanwhile frees nothing."""
        return uid in self._of

    def placed(self, uid: str) -> None:
        """A pod found a place, or is gone: nothing need be kept for it."""
        key = self._of.pop(uid, None)
        if key is None:
            return
        standing = self._under_way.get(key)
        if standing is not None:
            standing.allocations.pop(uid, None)
            if not standing.allocations:
                del self._under_way[key]

    def correct(self, pod: Pod, proposed: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """What the ``preempt`` verb answers: node → victims' UIDs, for pods that need devices beside CPU and memory.

        Raises:
            RefusedError: the request cannot be read.
        """
        request = self._desk.request_of(pod)
        if request is None:
            return dict(proposed)
        running = self._desk.running(proposed)
        return correct_victims(
            self._desk.snapshot_without({pod.metadata.uid}),
            self._preemptor(pod),
            {node: uids for node, uids in proposed.items() if node not in self._desk.view.silent},
            running,
            budgets=self._desk.budgets(),
            reference_rates=self._desk.rates(),
            bound=self._desk.bound_for(pod, request),
            serves=self._desk.roomy(pod),
        )

    async def tend(self) -> float | None:
        """Go on with what is under way, begin what can help; returns when to be called again, None: after a change."""
        for key, standing in list(self._under_way.items()):
            await self._go_on(key, standing)
        begun = 0
        waiting = self._waiters.candidates()
        known = {candidate.key for candidate in waiting}
        self._not_before = {key: when for key, when in self._not_before.items() if key in known}
        for candidate in sorted(waiting, key=lambda one: (-one.priority, one.key)):
            if begun >= BATCH:
                return self._now()
            if candidate.key in self._under_way or self._not_before.get(candidate.key, 0.0) > self._now():
                continue
            self._not_before[candidate.key] = self._now() + AGAIN_SECONDS
            if candidate.policy == "Never" or not self._desk.anybody_below(candidate.priority):
                continue
            begun += 1
            await self._desk.look_at_checkpoints(candidate.priority)
            chosen = self._choose(candidate)
            await asyncio.sleep(0)
            if isinstance(chosen, Refusal):
                log.debug("nobody evicted: for=%s why=%s", candidate.key, chosen)
                continue
            await self._begin(candidate, chosen)
        times = [standing.next_try for standing in self._under_way.values() if standing.left]
        times += [standing.until for standing in self._under_way.values()]
        times += [when for key, when in self._not_before.items() if key not in self._under_way]
        return min(times, default=None)

    def _choose(self, candidate: Candidate) -> VictimPlan | GangVictims | Refusal:
        desk = self._desk
        uids = {pod.metadata.uid for pod in candidate.pods}
        snapshot = desk.snapshot_without(uids)
        if candidate.gang is not None:
            gang = candidate.gang()
            if gang is None:
                return Refusal("NoOpenNode", "no node is open to every member, whoever is evicted")
            return choose_gang_victims(
                snapshot,
                gang,
                candidate.priority,
                desk.running(desk.view.node_names),
                policy=candidate.policy,
                budgets=desk.budgets(),
                reference_rates=desk.rates(),
            )
        (pod,) = candidate.pods
        try:
            preemptor = self._preemptor(pod)
        except RefusedError as error:
            return error.refusals[0]
        nodes = preemptor.nodes or frozenset()
        return choose_victims(
            snapshot,
            preemptor,
            desk.running(nodes),
            rooms=desk.view.machines.rooms(nodes),
            budgets=desk.budgets(),
            reference_rates=desk.rates(),
            bound=desk.bound_for(pod, preemptor.request),
            serves=desk.roomy(pod),
        )

    def _preemptor(self, pod: Pod) -> Preemptor:
        request = self._desk.request_of(pod)
        if request is None:
            raise RefusedError(Refusal("NotOurs", "the pod asks for nothing of ours"))
        cpu, memory = amounts_of(pod)
        return Preemptor(
            uid=pod.metadata.uid,
            request=request,
            priority=pod.spec.priority or 0,
            policy=pod.spec.preemptionPolicy or "PreemptLowerPriority",
            milli_cpu=cpu,
            memory=memory,
            nodes=frozenset(self._desk.open_nodes(pod)),
        )

    async def _begin(self, candidate: Candidate, chosen: VictimPlan | GangVictims) -> None:
        """Promise first, then nominate, then evict."""
        if isinstance(chosen, VictimPlan):
            (pod,) = candidate.pods
            node, bare = chosen.node, chosen.placement.allocation(pod.metadata.uid)
            gone = [held for uid in chosen.victims if (held := self._desk.view.allocations.get(uid)) is not None]
            allocations = {pod.metadata.uid: self._desk.with_cores(pod, bare, gone) or bare}
        else:
            allocations, node = _of_plan(chosen.plan), ""
        victims = [one for uid in chosen.victims if (one := self._desk.bound_pod(uid)) is not None]
        grace = max((v.spec.terminationGracePeriodSeconds or _GRACE for v in victims), default=_GRACE)
        standing = Preempting(
            allocations=allocations,
            victims=set(chosen.victims),
            left=set(chosen.victims),
            until=self._now() + grace + SLACK_SECONDS,
            reason=chosen.reason,
            node=node,
        )
        self._under_way[candidate.key] = standing
        for pod in candidate.pods:
            allocation = allocations.get(pod.metadata.uid)
            if allocation is not None:
                self._of[pod.metadata.uid] = candidate.key
                self._desk.hold(pod, allocation, chosen.reason, standing.until - self._now())
        log.info("preempting: for=%s node=%s victims=%s", candidate.key, node, sorted(chosen.victims))
        await self._evict(candidate.key, standing, candidate.pods)
        if candidate.key in self._under_way:
            self._count.labels("begun").inc()
            for pod in candidate.pods:
                self._desk.tell(pod, "Preempting", chosen.reason, warning=False)
            if node:
                await self._nominate(candidate.pods[0], node)

    async def _go_on(self, key: str, standing: Preempting) -> None:
        pods = tuple(pod for uid in standing.allocations if (pod := self._desk.view.pod(uid)) is not None)
        gone = {uid for uid in standing.allocations if self._desk.view.pod(uid) is None}
        for uid in gone:
            self.placed(uid)
        if key not in self._under_way:
            return
        if self._now() >= standing.until:
            await self._give_up(key, standing, "the place was not taken in time", "expired")
        elif standing.left and self._now() >= standing.next_try:
            await self._evict(key, standing, pods)

    async def _evict(self, key: str, standing: Preempting, pods: tuple[Pod, ...]) -> None:
        """Evict who is left; the first that a budget protects, while nobody has gone yet, ends it all."""
        standing.next_try = self._now() + AGAIN_SECONDS
        who = ", ".join(sorted(pod.key for pod in pods)[:3])
        for uid in sorted(standing.left):
            victim = self._desk.bound_pod(uid)
            if victim is None or victim.metadata.deletionTimestamp:
                standing.left.discard(uid)
                continue
            try:
                result = await evict(self._client, victim)
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("victim not evicted: pod=%s error=%r", victim.key, error)
                continue
            if result == "blocked":
                if not standing.evicted:
                    await self._give_up(key, standing, f"a disruption budget protects {victim.key}", "blocked")
                    return
                continue
            standing.left.discard(uid)
            standing.evicted += 1
            self._count.labels("evicted").inc()
            self._desk.tell(victim, "Preempted", f"evicted for {who}, which has a higher priority", warning=True)

    async def _give_up(self, key: str, standing: Preempting, why: str, result: str) -> None:
        log.info("preemption given up: for=%s why=%s", key, why)
        self._count.labels(result).inc()
        self._under_way.pop(key, None)
        uids = [uid for uid in standing.allocations if self._of.pop(uid, None) is not None]
        self._desk.release(uids)
        for uid in uids:
            pod = self._desk.view.pod(uid)
            if pod is not None and standing.node and pod.status.nominatedNodeName == standing.node:
                await self._nominate(pod, None)

    async def _nominate(self, pod: Pod, node: str | None) -> None:
        """Have kube-scheduler ask about this node first; it is a hint, and nothing is lost without it."""
        try:
            await self._client.patch(
                resources.PodStatus,
                pod.metadata.name,
                {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}},
                namespace=pod.metadata.namespace,
                patch_type=PatchType.MERGE,
            )
        except (ApiError, httpx2.HTTPError) as error:
            log.info("node not nominated: pod=%s node=%s error=%r", pod.key, node, error)


def _of_plan(plan: GangPlan) -> dict[str, Allocation]:
    return {allocation.pod: allocation for allocation in plan.allocations()}
