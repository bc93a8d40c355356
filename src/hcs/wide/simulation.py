"""Virtual time around the planner: arrivals, ends, transfers, sharing, failures, and times that were predicted wrong.

The same policies decide here and in the controller. What a job really takes is kept apart from what the planner is
told. Cards are counted at every start: a policy that books one twice ends the run with an error.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil

import msgspec

from hcs.model.refusals import Refusal
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.network import Network
from hcs.wide.patience import FairLine
from hcs.wide.snapshot import Place, Plan, Running, Snapshot

Decide = Callable[[Snapshot], Plan]
Actual = Mapping[str, Mapping[str, Milliseconds]]
"""Of each job, what it really takes alone on each kind."""


class Outcome(msgspec.Struct, frozen=True):
    """One job that ended. ``started`` is when it last took its cards."""

    job: str
    pool: str
    arrival: Milliseconds
    started: Milliseconds
    ended: Milliseconds

    @property
    def wait(self) -> Milliseconds:
        """From arrival to its cards."""
        return self.started - self.arrival

    @property
    def completion(self) -> Milliseconds:
        """From arrival to its end."""
        return self.ended - self.arrival


class Report(msgspec.Struct, frozen=True):
    """What happened. ``broken`` counts promises that were not kept; ``deadlocks`` heads that were given up."""

    outcomes: tuple[Outcome, ...]
    refused: tuple[tuple[str, Refusal], ...] = ()
    unfinished: tuple[str, ...] = ()
    out_of_memory: int = 0
    deadlocks: int = 0
    failures: int = 0
    broken: int = 0
    decisions: int = 0
    bytes_moved: int = 0
    placed: tuple[Place, ...] = ()


class Chances(msgspec.Struct, frozen=True):
    """Which attempts fail, after which part of the run in per mille: job and attempt to part."""

    failing: dict[str, tuple[int, ...]] = {}
    """A job's attempt n fails after ``failing[job][n]`` per mille; attempts past the end succeed."""


class _Live:
    """A running job: work left at full rate, and the rate."""

    def __init__(self, running: Running, work: Milliseconds, begins: Milliseconds, fails: int | None) -> None:
        self.running, self.left, self.since, self.rate = running, work * 1000, begins, 1000
        self.fails = fails

    def end(self) -> Milliseconds:
        """When it ends at the present rate."""
        return self.since + ceil(self.left / self.rate)

    def pace(self, now: Milliseconds, rate: int) -> None:
        """Go on at another rate."""
        if now > self.since:
            self.left -= (now - self.since) * self.rate
            self.since = now
        self.rate = rate


class Simulation:
    """One run. ``limit`` is how often a job may fail; ``launch`` what an attempt costs that runs out of memory."""

    def __init__(
        self,
        jobs: Sequence[Job],
        pools: tuple[Pool, ...],
        actual: Actual | None = None,
        *,
        network: Network | None = None,
        chances: Chances | None = None,
        closed: bool = False,
        patience: Milliseconds | None = None,
        limit: int = 3,
        launch: Milliseconds = 60_000,
    ) -> None:
        self._coming = sorted(jobs, key=lambda job: (job.arrival, job.id))[::-1]
        self._jobs = {job.id: job for job in jobs}
        self._pools, self._kinds = pools, {pool.name: pool for pool in pools}
        self._actual = actual or {job.id: {kind: run.expected for kind, run in job.times.items()} for job in jobs}
        self._network, self._chances, self._closed = network, chances or Chances(), closed
        self._patience, self._limit, self._launch = patience, limit, launch
        self._line = FairLine(pools, self._coming[-1].arrival if self._coming else 0)
        self._waiting: dict[str, Job] = {}
        self._live: dict[str, _Live] = {}
        self._attempts: dict[str, int] = {}
        self._promises: tuple[Place, ...] = ()
        self._guide: tuple[Place, ...] = ()
        self._refused: dict[str, Refusal] = {}
        self._outcomes: list[Outcome] = []
        self._placed: list[Place] = []
        self._counts = {"out_of_memory": 0, "deadlocks": 0, "failures": 0, "broken": 0, "decisions": 0}
        self._arrivals: set[Milliseconds] = set()

    def run(self, decide: Decide) -> Report:
        """Until nothing is left to happen."""
        while (now := self._next()) is not None:
            self._advance(now)
            while self._waiting and self._decide(decide, now):
                pass
        return Report(
            outcomes=tuple(self._outcomes),
            refused=tuple(self._refused.items()),
            unfinished=tuple(sorted(self._waiting)),
            bytes_moved=self._network.moved if self._network else 0,
            placed=tuple(self._placed),
            **self._counts,
        )

    def snapshot(self, now: Milliseconds) -> Snapshot:
        """What a policy sees."""
        return Snapshot(
            now=now,
            pools=self._pools,
            waiting=tuple(self._waiting.values()),
            running=tuple(live.running for live in self._live.values()),
            promises=self._promises,
            guide=self._guide,
            attempts={job: count for job, count in self._attempts.items() if job in self._waiting},
            closed=self._closed and not self._coming,
            patience=self._line.patience if self._patience is None else self._patience,
            network=self._network,
        )

    def _next(self) -> Milliseconds | None:
        """The next moment at which something happens."""
        moments = [live.end() for live in self._live.values()]
        if self._coming:
            moments.append(self._coming[-1].arrival)
        moments += self._arrivals
        if moments and self._waiting and not self._closed:
            patience = self._line.patience if self._patience is None else self._patience
            last = max((live.since for live in self._live.values()), default=0)
            held = {place.job for place in self._promises}
            ages = [job.arrival + patience for job in self._waiting.values() if job.id not in held]
            moments += [age for age in ages if age > max(last, self._now)]
        moments += [place.start for place in self._promises if place.start > self._now] if moments else []
        return min(moments, default=None)

    _now: Milliseconds = -1

    def _advance(self, now: Milliseconds) -> None:
        """Ends and arrivals of this moment."""
        self._now = now
        self._arrivals = {moment for moment in self._arrivals if moment > now}
        for live in [live for live in self._live.values() if live.end() <= now]:
            self._end(live, now)
        while self._coming and self._coming[-1].arrival <= now:
            job = self._coming.pop()
            self._line.join(job)
            self._waiting[job.id] = job

    def _end(self, live: _Live, now: Milliseconds) -> None:
        running = live.running
        del self._live[running.job.id]
        for other in self._live.values():
            if running.job.id == other.running.host or running.host == other.running.job.id:
                other.pace(now, 1000)
                other.running = msgspec.structs.replace(other.running, host=None)
        if live.fails is not None:
            self._counts["failures"] += 1
            self._again(running.job)
            return
        arrival = running.job.arrival
        self._outcomes.append(Outcome(running.job.id, running.pool, arrival, running.started, now))

    def _again(self, job: Job) -> None:
        """Back into the queue, or out of it when it failed too often."""
        self._attempts[job.id] = self._attempts.get(job.id, 0) + 1
        if self._attempts[job.id] >= self._limit:
            message = f"job {job.id} failed {self._limit} times; look at its log and submit it anew"
            self._refused[job.id] = Refusal("TooManyFailures", message)
            return
        self._waiting[job.id] = job

    def _decide(self, decide: Decide, now: Milliseconds) -> bool:
        """Ask once and act; True when the answer left the queue changed in a way that asks for another."""
        plan = decide(self.snapshot(now))
        self._counts["decisions"] += 1
        for job, refusal in plan.refused:
            if self._waiting.pop(job, None) is not None:
                self._refused[job] = refusal
        made = {place.job: place for place in plan.promises}
        started = {place.job for place in plan.starts}
        for before in self._promises:
            after = made.get(before.job)
            late = after is not None and after.start > before.start
            lost = after is None and before.job not in started and before.job in self._waiting
            self._counts["broken"] += late or lost
        self._promises, self._guide = plan.promises, plan.guide
        if self._network is not None:
            for job, cluster in plan.fetches:
                for transfer in self._network.fetch(cluster, self._jobs[job].inputs, now) or ():
                    self._arrivals.add(transfer.arrives)
        for place in plan.starts:
            self._start(place, now)
        return False

    def _start(self, place: Place, now: Milliseconds) -> None:
        job, pool = self._waiting.pop(place.job), self._kinds[place.pool]
        self._placed.append(place)
        host = self._live.get(place.host or "")
        needed = [job.memory, host.running.job.memory] if host is not None else [job.memory]
        sizes = [size for size in needed if size is not None]
        run = self._actual[job.id][pool.kind]
        begins = now
        if self._network is not None and job.inputs:
            self._network.fetch(pool.cluster, job.inputs, now)
            begins = max(self._network.present(pool.cluster, blob.digest, now) for blob in job.inputs)
        fails = self._chances.failing.get(job.id, ())
        attempt = self._attempts.get(job.id, 0)
        part = fails[attempt] if attempt < len(fails) else None
        if pool.memory is not None and sum(sizes) > pool.memory:
            self._counts["out_of_memory"] += 1
            self._counts["deadlocks"] += attempt + 1 >= self._limit
            run, part = self._launch, 1000
        upper = job.times[pool.kind].upper + begins - now
        running = Running(job, place.pool, now, max(place.end, now + upper), place.host)
        work = run if part is None else max(1, run * part // 1000)
        live = _Live(running, work, begins, part)
        self._live[job.id] = live
        if host is not None:
            rate = min(1000, 1_000_000 // (job.load + host.running.job.load))
            for each in (live, host):
                each.pace(now, rate)
                each.running = msgspec.structs.replace(each.running, until=max(each.running.until, each.end()))
        used = sum(
            live.running.job.cards
            for live in self._live.values()
            if live.running.pool == place.pool and live.running.host not in self._live
        )
        if used > pool.cards:
            raise AssertionError(f"{used} of {pool.cards} cards of {pool.name} are taken at {now}")
