"""Leads gangs from their gates to their nodes: plans, reserves, opens, holds at the barrier, and clears up.

Every step is decided on :mod:`hcs.router.gangs` without a pause in the code; only patches and evictions are waited for.
A bind that comes to the barrier keeps kube-scheduler's CPU and memory for its pod while it waits, so when the last one
has come, everything that any member needs is held.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from prometheus_client import Counter

from hcs.kube import resources
from hcs.kube.informer import ChangeKind
from hcs.kube.writes import evict
from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.gangs import PodGroup, read_membership
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import read_request
from hcs.placement.gangs import check_plan
from hcs.router.decisions import Chosen, Refused
from hcs.router.desk import Desk
from hcs.router.gangplanning import GangPlanner
from hcs.router.gangs import AVOID_SECONDS, BARRIER_SECONDS, GangBook, Standing, is_held
from hcs.router.offers import without_gate
from hcs.router.preemption import Candidate
from hcs.router.spikes import told
from hcs.router.waiting import LATE_SECONDS

log = logging.getLogger(__name__)

REPLAN_SECONDS: Final = 1.0
"""The least time between two attempts at a plan that found no place."""
EVICT_AGAIN_SECONDS: Final = 5.0


class Conductor:
    """The gangs of one router."""

    def __init__(
        self,
        client: AsyncClient,
        desk: Desk,
        *,
        now: Callable[[], float],
        stir: Callable[[], None],
        count: Counter,
        hold_seconds: float,
        barrier_seconds: float = BARRIER_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            desk: the router.
            now: seconds on a clock that only goes forward.
            stir: has :meth:`tend` called soon.
            count: gangs by what became of them.
            hold_seconds: how long a plan holds its devices until all binds have come.
            barrier_seconds: how long the first bind waits for the last.
        """
        self._client, self._desk, self._now, self._stir = client, desk, now, stir
        self._count, self._hold_seconds, self._barrier_seconds = count, hold_seconds, barrier_seconds
        self.book = GangBook()
        self.planner = GangPlanner(desk, self.book)
        self._waits: dict[str, asyncio.Future[str]] = {}
        self._unseen: dict[str, float] = {}
        self._evict_at: dict[str, float] = {}

    def leads(self, pod: Pod) -> bool:
        """Whether a pod is a member of a gang, by the book or, before it is in there, by its own words."""
        if pod.spec.schedulerName != names.SCHEDULER:
            return False
        if self.book.of(pod.metadata.uid) is not None:
            return True
        try:
            return read_membership(pod) is not None and read_request(pod) is not None
        except RefusedError:
            return False

    def pod_changed(self, kind: ChangeKind, pod: Pod, *, ours: bool) -> None:
        """A pod of the cluster changed."""
        uid = pod.metadata.uid
        gang = self.book.pod_changed(kind, pod, ours=ours)
        if gang is None:
            return
        if uid in self._unseen:
            del self._unseen[uid]
            gang.refused.add(uid)
        if gang.phase == "binding" and uid in gang.left:
            if uid not in gang.members:
                self.concluded(uid, bound=False)
            elif pod.spec.nodeName:
                self.concluded(uid, bound=True)
        elif gang.phase == "planned" and uid not in gang.members and uid in gang.allocations:
            self._drop(gang, f"member {pod.metadata.name} is gone", result="stale")
        if gang.dirty or gang.restarting:
            self._stir()

    def group_changed(self, kind: ChangeKind, group: PodGroup) -> None:
        """A PodGroup object changed."""
        self.book.group_changed(kind, group)
        self._stir()

    def group_refused(self, key: str, why: str) -> None:
        """A PodGroup object cannot be read; the empty string: it can, or is gone."""
        self.book.group_refused(key, why)
        self._stir()

    def decide(self, pod: Pod, nodes: Sequence[str]) -> Chosen | Refused:
        """Lead a member to its planned node, or have it wait for the others."""
        uid = pod.metadata.uid
        gang = self.book.of(uid)
        allocation = gang.allocations.get(uid) if gang is not None else None
        if gang is not None and allocation is not None:
            if allocation.node in nodes:
                return Chosen(allocation, _why(gang, allocation))
            gang.avoided[uid, allocation.node] = self._now() + AVOID_SECONDS
            if gang.phase == "planned":
                self._drop(gang, f"{allocation.node} is closed to {pod.metadata.name}", result="closed", contends=True)
        if gang is not None:
            gang.refused.add(uid)
        else:
            self._unseen[uid] = self._now()
        why = Refusal("GangWaiting", "waits until every member of its gang has a place at the same time")
        return Refused(str(why), dict.fromkeys(nodes, why))

    async def arrive(self, pod: Pod, node: str) -> Chosen | str:
        """A member's bind has come: wait for the others; returns its devices, or why nothing can be bound."""
        uid = pod.metadata.uid
        gang = self.book.of(uid)
        allocation = gang.allocations.get(uid) if gang is not None else None
        if gang is None or gang.plan is None or allocation is None or allocation.node != node:
            return f"no plan of its gang has the pod on {node} any more"
        chosen = Chosen(allocation, _why(gang, allocation))
        if gang.phase == "binding":
            return chosen
        gang.arrived.add(uid)
        waits = self._waits[uid] = asyncio.get_running_loop().create_future()
        if all(member.pod in gang.arrived for member in gang.plan.members):
            self._go(gang)
        else:
            self._hold(gang, self._barrier_seconds + 5.0)
        try:
            async with asyncio.timeout(self._barrier_seconds):
                error = await waits
        except TimeoutError:
            error = f"not all members of the gang reached their bind within {self._barrier_seconds:g} s"
            if gang.phase == "planned":
                self._drop(gang, error, result="timeout", contends=True)
        finally:
            if self._waits.get(uid) is waits:
                del self._waits[uid]
        return error or chosen

    def concluded(self, uid: str, *, bound: bool) -> None:
        """A member's Binding is written, or will not be."""
        gang = self.book.of(uid)
        if gang is None:
            gang = next((one for one in self.book if uid in one.left), None)
        if gang is None or gang.phase != "binding" or uid not in gang.left:
            return
        gang.left.discard(uid)
        (gang.bound if bound else gang.failed).add(uid)
        if bound and uid in gang.members and not gang.members[uid].spec.nodeName:
            gang.started.add(uid)
        if gang.left:
            return
        started, failed = set(gang.bound), set(gang.failed)
        if failed:
            log.warning("gang failed to start: gang=%s bound=%d failed=%d", gang.key, len(started), len(failed))
            gang.restarting |= started
            self._count.labels("restarted" if started else "failed").inc()
            gang.fail(self._now(), contends=False)
        else:
            log.info("gang started: gang=%s members=%d", gang.key, len(started))
            self._count.labels("started").inc()
            gang.forget_plan()
            gang.failures, gang.contends, gang.told = 0, False, ""
        self._stir()

    def candidates(self) -> list[Candidate]:
        """Complete gangs without a plan, for which others might be evicted."""
        return [self._candidate(gang) for gang in self.book if gang.told and self._complete(gang)]

    def nominated(self) -> list[Candidate]:
        """Complete gangs without a plan all of whose members were nominated for a node."""
        return [
            self._candidate(gang)
            for gang in self.book
            if self._complete(gang) and all(pod.status.nominatedNodeName for pod in gang.pending)
        ]

    def _complete(self, gang: Standing) -> bool:
        return gang.phase == "waiting" and bool(gang.pending) and not gang.missing(self.book.group(gang))

    def _candidate(self, gang: Standing) -> Candidate:
        return Candidate(gang.key, tuple(gang.pending), gang)

    async def tend(self) -> float | None:
        """Plan what can be planned, open gates, clear up; returns when to be called again, None: after a change."""
        times: list[float] = []
        late = self._now() - LATE_SECONDS
        self._unseen = {uid: since for uid, since in self._unseen.items() if since > late}
        for gang in list(self.book):
            now = self._now()
            gang.avoided = {key: until for key, until in gang.avoided.items() if until > now}
            if gang.phase == "planned" and now >= gang.until:
                self._drop(gang, "not all members came in time", result="expired", contends=True)
            if gang.restarting:
                await self._clear(gang)
                times.append(now + EVICT_AGAIN_SECONDS)
            if gang.phase == "waiting" and gang.pending and gang.dirty and not gang.restarting:
                if now < gang.not_before:
                    times.append(gang.not_before)
                else:
                    self._plan(gang)
                    await asyncio.sleep(0)
                    if gang.phase == "waiting" and gang.dirty:
                        times.append(gang.not_before)
            if gang.phase == "planned":
                await self._open(gang)
                times.append(gang.until)
        return min(times, default=None)

    def _plan(self, gang: Standing) -> None:
        gang.dirty = False
        group = self.book.group(gang)
        now = self._now()
        if gang.missing(group):
            if gang.key in self.book.refused:
                self._say(gang, self.book.refused[gang.key])
            return
        if not self.book.may_plan(gang):
            gang.dirty, gang.not_before = True, now + REPLAN_SECONDS
            return
        answer = self.planner.find(gang)
        if isinstance(answer, str):
            gang.not_before = now + REPLAN_SECONDS
            self._say(gang, answer)
            return
        gang.plan, gang.allocations, gang.phase, gang.told = answer.plan, answer.allocations, "planned", ""
        self._hold(gang, self._hold_seconds)
        self._count.labels("planned").inc()
        plan = answer.plan
        log.info("gang planned: gang=%s members=%d spread=%s", gang.key, len(plan.members), plan.spread)

    def _say(self, gang: Standing, why: str) -> None:
        """Tell those who wait why, once."""
        if gang.told != why:
            gang.told = why
            log.info("gang refused: gang=%s why=%s", gang.key, why)
            for pod in gang.pending:
                self._desk.tell(pod, "FailedPlacement", f"gang {gang.membership.name}: {why}", warning=True)

    def _hold(self, gang: Standing, seconds: float) -> None:
        """Promise every member its devices, all until the same moment."""
        assert gang.plan is not None
        gang.until = max(gang.until if gang.phase == "planned" else 0.0, self._now() + seconds)
        for uid, allocation in gang.allocations.items():
            pod = gang.members.get(uid)
            if pod is not None:
                self._desk.hold(pod, allocation, _why(gang, allocation), gang.until - self._now())

    def _go(self, gang: Standing) -> None:
        """All have come: one last look, then nothing holds them any more."""
        assert gang.plan is not None
        allocations = tuple(gang.allocations.values())
        stale = check_plan(self._desk.snapshot_without({one.pod for one in allocations}), gang.plan)
        silent = self._desk.view.silent
        stale = stale or next((silent[one.node] for one in allocations if one.node in silent), None)
        if stale is not None:
            self._drop(gang, f"the gang's plan does not hold any more: {stale.message}", result="stale")
            return
        gang.phase = "binding"
        gang.left, gang.bound, gang.failed = {one.pod for one in allocations}, set(), set()
        for allocation in allocations:
            self._desk.commit(gang.members[allocation.pod], allocation, _why(gang, allocation))
            waits = self._waits.get(allocation.pod)
            if waits is not None and not waits.done():
                waits.set_result("")

    def _drop(self, gang: Standing, why: str, *, result: str, contends: bool = False) -> None:
        """The plan came to nothing: nobody is bound, everything is free again."""
        log.info("gang plan dropped: gang=%s why=%s", gang.key, why)
        self._count.labels(result).inc()
        arrived = set(gang.arrived)
        if result == "stale":
            uids = gang.forget_plan()
        else:
            uids = gang.fail(self._now(), contends=contends)
        self._desk.release(uids)
        for uid in arrived:
            waits = self._waits.get(uid)
            if waits is not None and not waits.done():
                waits.set_result(why)
        gang.refused |= {uid for uid in uids if uid in gang.members}
        self._stir()

    async def _open(self, gang: Standing) -> None:
        """Open the gates of all planned members at once, and wake those that came through and were refused."""
        assert gang.plan is not None
        pods = [gang.members[m.pod] for m in gang.plan.members if m.pod in gang.members]
        shut = [pod for pod in pods if is_held(pod)]
        await asyncio.gather(*(self._open_one(pod) for pod in shut))
        for pod in pods:
            if pod.metadata.uid in gang.refused and not is_held(pod):
                gang.refused.discard(pod.metadata.uid)
                await self._desk.wake(pod)

    async def _open_one(self, pod: Pod) -> None:
        body = {"metadata": {"uid": pod.metadata.uid}, "spec": without_gate(names.GANG_GATE)}
        try:
            await self._client.patch(
                resources.Pod,
                pod.metadata.name,
                body,
                namespace=pod.metadata.namespace,
                patch_type=PatchType.STRATEGIC,
            )
        except (ApiError, httpx2.HTTPError) as error:
            log.info("gate not opened: pod=%s error=%r", pod.key, error)

    async def _clear(self, gang: Standing) -> None:
        """Members started without the others: have them made anew, where somebody makes them."""
        for uid in sorted(gang.restarting):
            pod = gang.members.get(uid)
            if pod is None:
                gang.restarting.discard(uid)
                self._evict_at.pop(uid, None)
                continue
            if pod.controller is None:
                message = (
                    f"gang {gang.membership.name} did not start as a whole; this pod has no controller that would "
                    "replace it, so it keeps its cards: delete it, or create the missing members again"
                )
                self._desk.tell(pod, "GangIncomplete", message, warning=True)
                gang.restarting.discard(uid)
                continue
            if self._evict_at.get(uid, 0.0) > self._now():
                continue
            self._evict_at[uid] = self._now() + EVICT_AGAIN_SECONDS
            message = f"gang {gang.membership.name} did not start as a whole; it is started again"
            try:
                result = await evict(self._client, pod)
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("member not evicted: pod=%s error=%r", pod.key, error)
                continue
            self._desk.tell(pod, "GangRestarted", message, warning=True)
            if result != "blocked":
                gang.restarting.discard(uid)
                self._evict_at.pop(uid, None)
        gang.dirty = True


def _why(gang: Standing, allocation: Allocation) -> str:
    """Why a member goes where it does, in one sentence."""
    reason = gang.plan.reason if gang.plan is not None else ""
    return (reason or f"placed with gang {gang.membership.name}") + told(allocation)
