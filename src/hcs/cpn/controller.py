"""The controller: one loop that decides, steps that carry out, and a broom for what nobody claims.

It decides when something happened (a job came, a job ended, a cluster changed), not when a minute is over. What it
decided is on disk before anything is done about it, and everything it knows besides can be read again from the store
and the clusters, so it may be killed at any moment and started again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hcs.cpn import deciding
from hcs.cpn.broom import Broom
from hcs.cpn.carrying import Bytes, Carrier
from hcs.cpn.dispatch import Dispatcher
from hcs.cpn.elapsed import elapsed
from hcs.cpn.endings import Messages
from hcs.cpn.fairness import Fairness
from hcs.cpn.forecasts import Forecasts
from hcs.cpn.learning import Learner
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.orphans import Graces
from hcs.cpn.pairs import Pairs, partings
from hcs.cpn.prepull import Expected, Prepuller
from hcs.cpn.prepull import Settings as Prefetching
from hcs.cpn.promises import Promises
from hcs.cpn.service import Expectation, Why
from hcs.cpn.shortages import Shortages
from hcs.cpn.stations import Clusters, Stations
from hcs.cpn.stepping import Stepper
from hcs.cpn.views import ClusterView
from hcs.model.refusals import Refusal
from hcs.store.database import Change
from hcs.store.errors import StaleEntryError, StoreError
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.lifecycle import PLACED
from hcs.wide.planner import Planner
from hcs.wide.snapshot import Plan, Snapshot

log = logging.getLogger(__name__)

MEMORY: Final = "plan"
"""Under this name the store keeps promises, guide and patience."""
_GATHERED: Final = 0.4
"""Seconds that changes are gathered at most: what a decision takes is gathered before the next, so that many changes in
a row leave time for other work, and the decision after an end still begins within a second."""
_DAY: Final[Milliseconds] = 86_400_000
_AFTER_TROUBLE: Final = 1.0
"""Seconds until a decision is tried again that could not be made."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times in seconds.

    ``cpu_threshold``: busy share of a cluster's CPUs above which nothing is started there, and to which a guest may
    bring that of a card. ``sharing``: jobs whose memory is known may share a card. ``closed``: no more jobs are
    expected, so the last end counts. ``gather``: how long changes are gathered before a decision, at least.
    ``at_least``: a decision is made so often anyway. ``keep_ended_days``: how long jobs stay in the queue after their
    end, in days; 0: for ever.
    ``lag``: how much later than it happens an end may be seen; cards are booked for that long past it.
    ``first_look``: for how long a start waits until all clusters have shown what runs there.
    """

    cpu_threshold: float = 0.9
    sharing: bool = True
    closed: bool = False
    gather: float = 0.02
    lag: float = 2.0
    first_look: float = 15.0
    at_least: float = 30.0
    sweep: float = 15.0
    keep_ended_days: Annotated[float, msgspec.Meta(ge=0)] = 0
    dispatching: Dispatching = Dispatching()
    graces: Graces = Graces()
    prefetch: Prefetching = Prefetching()


async def at_once(work: Callable[[], Any]) -> Any:
    """Do something here and now; the alternative to a thread where time is virtual."""
    return work()


class Controller:
    """See the module. Also what the HTTP server asks (:class:`hcs.cpn.service.Service`)."""

    def __init__(
        self,
        store: QueueStore,
        clusters: Clusters,
        *,
        forecasts: Forecasts,
        learner: Learner,
        messages: Messages,
        now: Callable[[], Milliseconds],
        planner: Callable[[Snapshot], Plan] | None = None,
        data: Bytes | None = None,
        may_act: Callable[[], bool] = lambda: True,
        offload: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        registry: CollectorRegistry | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Prepare; nothing is done before :meth:`run`.

        Args:
            store: the queue; this process is its writer.
            clusters: the live clusters.
            forecasts: the predictor.
            learner: takes what ended runs taught.
            messages: how frameworks say that memory ran out.
            now: milliseconds since 1970.
            planner: decides from a snapshot; None takes ours.
            data: brings bytes; None: there are no stores, and jobs with inputs start without them.
            may_act: whether this process is the one that acts now.
            offload: where long computations are done.
            registry: where the metrics live.
            settings: limits.
        """
        self.store, self._clusters, self._forecasts, self.learner = store, clusters, forecasts, learner
        self.registry = registry or CollectorRegistry()
        self.now, self._data, self._may_act, self._offload = now, data, may_act, offload
        self._plan = planner or Planner().decide
        self.settings = settings or Settings()
        self._wake = asyncio.Event()
        # The three know each other: stations wake steps, steps ask for stations.
        self._stations = Stations(store, clusters, lambda id: self.stepper.wake(id))
        self.dispatcher = Dispatcher(
            store,
            self._stations.get,
            messages=messages,
            now=now,
            may_act=may_act,
            learned=learner.take,
            card_memory=self._card_memory,
            gone=self._stations.gone,
            clusters=self._stations.names,
            settings=self.settings.dispatching,
        )
        self.stepper = Stepper(self.dispatcher.step)
        kept = store.kept(MEMORY)
        self._memory = msgspec.json.decode(kept, type=deciding.Memory) if kept else deciding.Memory()
        self._broom = Broom(store, self.settings.graces, now=now, may_act=may_act)
        self._prepuller = Prepuller(
            lambda: list(self._stations),
            store.queue_id,
            waits=self._waits,
            now=now,
            may_act=may_act,
            settings=self.settings.prefetch,
        )
        self._pairs: tuple[int, Pairs] | None = None
        self._fairness = Fairness()
        self._expected: dict[str, Expectation] = {}
        self._last: tuple[deciding.Question, deciding.Situation] | None = None
        self._measure = Histogram(
            "hcs_cpn_decision_seconds",
            "How long a decision took.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
            registry=self.registry,
        )
        self._promises = Promises(self.registry)
        self._starts = Counter("hcs_cpn_starts", "Placements written down.", registry=self.registry)
        self._shortages = Shortages(self.dispatcher.refused)
        self._carrier = Carrier(
            store,
            data,
            views=self.views,
            now=now,
            started=self._starts.inc,
            shortages=self._shortages,
            again=self._wake.set,
        )
        self._trouble: Refusal | None = None
        """Why the last decision was not made; None: it was."""
        self._stuck = Gauge("hcs_cpn_stuck_jobs", "Jobs without a step for too long.", registry=self.registry)
        store.on_change(self._changed)

    # What happens

    async def run(self) -> None:
        """Serve until cancelled."""
        self._wake_placed()
        self._wake.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.stepper.run())
                group.create_task(self._decide_often())
                group.create_task(self._sweep_often())
                group.create_task(self._prepuller.run())
                group.create_task(self.learner.run(self._taught))
        finally:
            await self._stations.close()

    def wake(self) -> None:
        """Decide soon."""
        self._wake.set()

    def _changed(self, change: Change) -> None:
        """Of the store: what is on its way gets its next step, and everything else a decision."""
        if change.entry is None:
            self._stations.read()
            self._wake_placed()
        elif change.entry.state in PLACED:
            self.stepper.wake(change.entry.id)
            return  # cards were taken, none became free
        self._wake.set()

    def _wake_placed(self) -> None:
        for entry in self.store.entries(PLACED):
            self.stepper.wake(entry.id)

    def _taught(self) -> None:
        self._wake.set()

    def _card_memory(self, cluster: str, kind: str) -> int | None:
        return next(
            (pool.memory for view in self.views() if view.name == cluster for pool in view.pools if pool.kind == kind),
            None,
        )

    # Deciding

    async def _look_first(self) -> None:
        """Before anything is started: what of ours runs already, where that can be seen within a while.

        A queue that was put back from a copy knows nothing of Jobs that were sent since; deciding first would send them
        a second time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.first_look):
                while not self._stations.synced:
                    self._stations.meet()
                    await asyncio.sleep(0.1)
        await self._broom.sweep(self._stations)

    async def _decide_often(self) -> None:
        clock, took = asyncio.get_running_loop().time, 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._until_next()):  # wait_for of Python 3.11 may swallow a cancellation
                    await self._wake.wait()
            await asyncio.sleep(max(self.settings.gather, min(took, _GATHERED)))
            self._wake.clear()
            began = clock()
            try:
                await self._act()
                took, self._trouble = clock() - began, None
                continue
            except StoreError as error:
                log.warning("decision not written down, trying again: %s", error)
                self._trouble = error.refusal
            except Exception as error:
                # What runs is followed to its end meanwhile.
                log.exception("no decision could be made, trying again")
                message = f"deciding failed ({type(error).__name__}); the controller's log says where"
                self._trouble = Refusal("DecisionFailed", message)
            await asyncio.sleep(_AFTER_TROUBLE)
            self._wake.set()

    async def _act(self) -> None:
        self._stations.meet()
        if not self._may_act():
            self._stations.looked = False
            return
        if not self._stations.looked:
            await self._look_first()
            self._stations.looked = True
            self._wake_placed()
        await self.decide()

    def _until_next(self) -> float:
        """Seconds until a decision is due although nothing happened: a promise begins, a patience or a pause ends."""
        now = self.now()
        moments = [place.start for place in self._memory.promises] + list(self.dispatcher.refused.values())
        held = {place.job for place in self._memory.promises}
        if self._last is not None:
            jobs = self._last[0].jobs.values()
            moments += [job.arrival + self._memory.patience for job in jobs if job.id not in held]
        soonest = min((moment for moment in moments if moment > now), default=None)
        if soonest is None:
            return self.settings.at_least
        return min(self.settings.at_least, (soonest - now) / 1000)

    async def decide(self) -> None:
        """Make one decision and write it down."""
        began = time.perf_counter()
        situation = self._situation()
        if not situation.queued:
            self._expected, self._last = {}, (deciding.ask(situation), situation)
            self._remember(deciding.Memory(patience=0))
            self._prepuller.want(())
            return
        question = deciding.ask(situation)
        patience = max(self._memory.patience, self._fairness.patience(question, self._forecasts.revision))
        snapshot = msgspec.structs.replace(question.snapshot, patience=patience)
        question = msgspec.structs.replace(question, snapshot=snapshot)
        plan: Plan = await self._offload(lambda: self._plan(question.snapshot))
        self._promises.judge(plan, question, situation, self._last[0] if self._last else None, elapsed())
        self._expected = deciding.expectations(plan, question, situation)
        self._last = question, situation
        self._carrier.carry_out(plan, question, situation, self._remember)
        self._prepuller.want(self._expected_later(situation))
        self._measure.observe(time.perf_counter() - began)

    def _expected_later(self, situation: deciding.Situation) -> list[Expected]:
        """Jobs that wait on, the soonest first, and where they are expected."""
        found = [
            (expected.start, entry.turn, Expected(entry, expected.cluster, expected.kind))
            for entry in situation.queued
            if (expected := self._expected.get(entry.id)) is not None and expected.start is not None
        ]
        found.sort(key=lambda one: one[:2])
        return [one for _, _, one in found if self._waits(one.entry)]

    def _waits(self, entry: Entry) -> bool:
        now = self.store.get(entry.id)
        return now is not None and now.state == "Queued"

    def _situation(self) -> deciding.Situation:
        now = self.now()
        self._shortages.expire(now)
        views = tuple(self.views())
        queued = tuple(self.store.entries(["Queued"]))
        self._part(now)
        placed = tuple(self.store.entries(PLACED))
        if self._pairs is None or self._pairs[0] != self._forecasts.revision:
            self._pairs = self._forecasts.revision, Pairs(self._forecasts.slowdowns())
        kinds = {pool.kind for view in views for pool in view.pools}
        kinds |= {entry.placement.kind for entry in placed if entry.placement is not None}
        return deciding.Situation(
            now=now,
            views=views,
            queued=queued,
            placed=placed,
            forecasts=self._forecasts.of((*queued, *placed), kinds),
            memory=self._memory,
            network=self._data.network(now) if self._data is not None else None,
            refused=self.dispatcher.refused,
            threshold=self.settings.cpu_threshold,
            sharing=self.settings.sharing,
            pairs=self._pairs[1],
            closed=self.settings.closed,
            lag=round(self.settings.lag * 1000),
            gone=self._stations.all_gone(),
        )

    def _part(self, now: Milliseconds) -> None:
        """Who shared a card with a job that is gone now goes on alone."""
        placed = {entry.id: entry for entry in self.store.entries(PLACED)}
        for entry, placement in partings(placed, self.store.get, now, round(self.settings.lag * 1000)):
            with contextlib.suppress(StaleEntryError):
                self.store.amend(entry, now=entry.changed, placement=placement)

    def _remember(self, memory: deciding.Memory) -> None:
        if memory != self._memory:
            self.store.keep(MEMORY, msgspec.json.encode(memory))
            self._memory = memory

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(self.settings.sweep)
            try:
                if self._may_act():
                    await self._broom.sweep(self._stations)
                self._watch_over()
                self._forget_old()
            except Exception:
                log.exception("what nobody claims could not be looked after, trying again")

    def _forget_old(self) -> None:
        days = self.settings.keep_ended_days
        # Its Job must be gone from its cluster by then, or nobody would claim that.
        keep = max(round(days * _DAY), 2 * self.settings.graces.finished)
        if days and (gone := self.store.forget(self.now() - keep)):
            log.info("jobs that ended long ago are not kept any more: jobs=%d days=%g", gone, days)

    def _watch_over(self) -> None:
        """Tell of entries that have not moved for longer than a step may take."""
        limit, now = self.settings.dispatching.step_limit * 1000, self.now()
        stuck = [
            entry for entry in self.store.entries(["Placing", "Created", "Cancelling"]) if now - entry.changed > limit
        ]
        self._stuck.set(len(stuck))
        for entry in stuck:
            reason, message = self.dispatcher.notes.get(entry.id, ("NoStep", "no reason is known; looking again"))
            log.warning("job makes no progress: job=%s state=%s reason=%s %s", entry.id, entry.state, reason, message)
            self.stepper.wake(entry.id)

    # What the server asks

    def ready(self) -> Refusal | None:
        """Why decisions cannot be made now; None when they can."""
        if not self._may_act():
            return Refusal("NotLeading", "another controller holds the lease of this queue, or it could not be renewed")
        return self._trouble

    def views(self) -> Sequence[ClusterView]:
        """What is known of every cluster."""
        return [cluster.view() for cluster in self._clusters.clusters().values()]

    def expectations(self) -> Mapping[str, Expectation]:
        """What the last plan expects, and of jobs that run, what was written down."""
        return self._expected

    def why(self, entry: Entry) -> Why:
        """Why an entry is where it is."""
        note = ": ".join(self.dispatcher.notes.get(entry.id, ())) or self._shortages.note(entry.id)
        if entry.state != "Queued" or self._last is None:
            return Why(note or f"{entry.reason}: {entry.message}")
        return deciding.why(entry, *self._last, self._expected.get(entry.id), note)

    def job_of(self, id: str) -> Job | None:
        """An entry as the last decision saw it."""
        return self._last[0].jobs.get(id) if self._last is not None else None
