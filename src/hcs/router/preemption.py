"""Evicts pods of lower priority for those of higher priority that have no place, and keeps the place free for them.

kube-scheduler's own preemption never starts for want of devices: in its dry run the pod fits already. So the router
chooses by :mod:`hcs.placement.preemption`, over cards and CPU and memory at once, promises the devices to the preemptor
before the first victim goes, nominates the node, and evicts through the API, where disruption budgets have the last
word. Nobody else can take what is promised; when the last victim is gone, kube-scheduler wakes the pod and asks about
its nominated node first.

The promise is bounded: by the victims' own grace and a minute. If a budget forbids the first eviction, nobody has died
and the promise goes at once.

A restarted router promises again: the nominations on the pods say who was to go where, and what ends there already says
what will be free.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
from hcs.placement.preemption import Preemptor, choose_victims, correct_victims, place_to_keep
from hcs.router.desk import Desk
from hcs.router.gangplanning import GangPlanner
from hcs.router.gangs import Standing
from hcs.router.machines import amounts_of

log = logging.getLogger(__name__)

SLACK_SECONDS: Final = 60.0
"""How long after the victims' grace the place is kept."""
AGAIN_SECONDS: Final = 5.0
"""The least time between two looks for victims for the same pod, and between two attempts at a blocked eviction."""
BATCH: Final = 4
_GRACE: Final = 30


class Choice(msgspec.Struct, frozen=True):
    """Who is to go (UIDs), and what each pod (UID) gets once they are gone."""

    victims: tuple[str, ...]
    allocations: Mapping[str, Allocation]
    reason: str


class Preempting(msgspec.Struct):
    """One preemption under way: for these pods, at the cost of those that are left to evict (UIDs)."""

    allocations: dict[str, Allocation]
    left: set[str]
    until: float
    nominated: dict[str, str] = {}
    evicted: int = 0
    next_try: float = 0.0


class Candidate(msgspec.Struct, frozen=True):
    """Pods without a place that might evict others: one on its own, or what is missing of a gang.

    ``gang`` is None for a pod on its own.
    """

    key: str
    pods: tuple[Pod, ...]
    gang: Standing | None = None

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

    def nominated(self) -> list[Candidate]:
        """Those that were nominated for nodes, by a router before this one or by kube-scheduler."""


class Preemption:
    """The preemptions of one router."""

    def __init__(
        self,
        client: AsyncClient,
        desk: Desk,
        waiters: Waiters,
        planner: GangPlanner,
        *,
        now: Callable[[], float],
        count: Counter,
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            desk: the router.
            waiters: who waits for a place.
            planner: of gangs.
            now: seconds on a clock that only goes forward.
            count: preemptions by what became of them.
        """
        self._client, self._desk, self._waiters, self._planner = client, desk, waiters, planner
        self._now, self._count = now, count
        self._under_way: dict[str, Preempting] = {}
        self._of: dict[str, str] = {}
        self._not_before: dict[str, float] = {}
        self._new_until: float | None = None
        self._known: set[str] = set()

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

    @property
    def taken_up(self) -> bool:
        """Whether what a router before this one promised is promised again."""
        return self._new_until is not None

    def take_up(self) -> None:
        """Promise again what a router before this one promised; does so for a minute from the first call.

        Some gangs are complete only when their PodGroups have been read, a little after the pods.
        """
        if self._new_until is None:
            self._new_until = self._now() + SLACK_SECONDS
        if self._now() > self._new_until:
            return
        for candidate in sorted(self._waiters.nominated(), key=_in_turn):
            if candidate.key not in self._known and candidate.key not in self._under_way:
                self._known.add(candidate.key)
                self._take_up(candidate)

    def _take_up(self, candidate: Candidate) -> None:
        allocations = self._kept(candidate)
        if not allocations:
            return
        nodes = {one.node for one in allocations.values()}
        ending = [self._desk.bound_pod(pod.uid) for pod in self._desk.running(nodes) if pod.terminating]
        self._keep(candidate, allocations, [pod for pod in ending if pod is not None], "its place is kept for it")
        log.info("preemption taken up: for=%s nodes=%s", candidate.key, sorted(nodes))

    def _kept(self, candidate: Candidate) -> Mapping[str, Allocation]:
        """What the pods get on the nodes they are nominated for once what ends there is gone; empty: not all fit."""
        desk = self._desk
        if candidate.gang is not None:
            found = self._planner.find_again(candidate.gang)
            return {} if isinstance(found, str) else found.allocations
        (pod,) = candidate.pods
        try:
            preemptor = self._preemptor(pod)
        except RefusedError:
            return {}
        node = pod.status.nominatedNodeName or ""
        running = desk.running([node])
        placement = place_to_keep(
            desk.snapshot_without({pod.metadata.uid}),
            preemptor,
            node,
            running,
            rooms=desk.view.machines.rooms([node]),
            reference_rates=desk.rates(),
            bound=desk.bound_for(pod, preemptor.request),
            serves=desk.roomy(pod),
        )
        if placement is None:
            return {}
        gone = [one.allocation for one in running if one.terminating and one.allocation is not None]
        whole = desk.with_cores(pod, placement.allocation(pod.metadata.uid), gone)
        return {} if whole is None else {pod.metadata.uid: whole}

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
        self.take_up()
        for key, standing in list(self._under_way.items()):
            await self._go_on(key, standing)
        begun = 0
        waiting = self._waiters.candidates()
        known = {candidate.key for candidate in waiting}
        self._not_before = {key: when for key, when in self._not_before.items() if key in known}
        for candidate in sorted(waiting, key=_in_turn):
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

    def _choose(self, candidate: Candidate) -> Choice | Refusal:
        desk = self._desk
        if candidate.gang is not None:
            sacrifice = self._planner.victims(candidate.gang, candidate.priority, candidate.policy)
            if isinstance(sacrifice, Refusal):
                return sacrifice
            victims, reason, found = sacrifice
            return Choice(victims, found.allocations, reason)
        (pod,) = candidate.pods
        try:
            preemptor = self._preemptor(pod)
        except RefusedError as error:
            return error.refusals[0]
        nodes = preemptor.nodes or frozenset()
        chosen = choose_victims(
            desk.snapshot_without({pod.metadata.uid}),
            preemptor,
            desk.running(nodes),
            rooms=desk.view.machines.rooms(nodes),
            budgets=desk.budgets(),
            reference_rates=desk.rates(),
            bound=desk.bound_for(pod, preemptor.request),
            serves=desk.roomy(pod),
        )
        if isinstance(chosen, Refusal):
            return chosen
        bare = chosen.placement.allocation(pod.metadata.uid)
        gone = [held for uid in chosen.victims if (held := desk.view.allocations.get(uid)) is not None]
        return Choice(chosen.victims, {pod.metadata.uid: desk.with_cores(pod, bare, gone) or bare}, chosen.reason)

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

    async def _begin(self, candidate: Candidate, chosen: Choice) -> None:
        """Promise first, then nominate, then evict: whatever a crash cuts short, nobody dies for nobody."""
        victims = [one for uid in chosen.victims if (one := self._desk.bound_pod(uid)) is not None]
        standing = self._keep(candidate, chosen.allocations, victims, chosen.reason)
        standing.left = set(chosen.victims)
        nodes = sorted({one.node for one in chosen.allocations.values()})
        log.info("preempting: for=%s nodes=%s victims=%s", candidate.key, nodes, sorted(chosen.victims))
        placed = [pod for pod in candidate.pods if pod.metadata.uid in chosen.allocations]
        await asyncio.gather(
            *(self._nominate(pod, chosen.allocations[pod.metadata.uid].node, standing) for pod in placed)
        )
        await self._evict(candidate.key, standing, candidate.pods)
        if candidate.key in self._under_way:
            self._count.labels("begun").inc()
            for pod in placed:
                self._desk.tell(pod, "Preempting", chosen.reason, warning=False)

    def _keep(
        self, candidate: Candidate, allocations: Mapping[str, Allocation], ending: Sequence[Pod], reason: str
    ) -> Preempting:
        """Promise devices for as long as these pods take to end, and a minute."""
        grace = max((_grace(pod) for pod in ending), default=_GRACE)
        standing = Preempting(dict(allocations), set(), self._now() + grace + SLACK_SECONDS)
        self._under_way[candidate.key] = standing
        for pod in candidate.pods:
            allocation = allocations.get(pod.metadata.uid)
            if allocation is not None:
                self._of[pod.metadata.uid] = candidate.key
                self._desk.hold(pod, allocation, reason, standing.until - self._now())
        return standing

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
            pod, node = self._desk.view.pod(uid), standing.nominated.get(uid)
            if pod is not None and node and pod.status.nominatedNodeName in (None, "", node):
                await self._nominate(pod, None, standing)

    async def _nominate(self, pod: Pod, node: str | None, standing: Preempting) -> None:
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
        else:
            standing.nominated[pod.metadata.uid] = node or ""


def _in_turn(candidate: Candidate) -> tuple[int, str]:
    return -candidate.priority, candidate.key


def _grace(pod: Pod) -> int:
    seconds = pod.spec.terminationGracePeriodSeconds
    return _GRACE if seconds is None else seconds
