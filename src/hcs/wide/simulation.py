"""Virtual time around the planner: arrivals, ends, transfers, sharing, failures, outages, and wrong predictions.

The same policies decide here and in the controller. What is really so is kept apart from what the planner is told.
Cards are counted at every start: a policy that books one twice ends the run with an error.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from hcs.model.refusals import Refusal
from hcs.wide.chances import Chances
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.network import Network
from hcs.wide.outcomes import Outcome, Report
from hcs.wide.patience import FairLine
from hcs.wide.sharing import Rates, Sharing, joined, parted
from hcs.wide.snapshot import Place, Plan, Running, Snapshot

Decide = Callable[[Snapshot], Plan]
Actual = Mapping[str, Mapping[str, Milliseconds]]
"""Of each job, what it really takes alone on each kind."""


class _Live:
    """A running job: what is believed of it, the work that is left at full rate, and its true rate."""

    def __init__(self, running: Running, work: Milliseconds, begins: Milliseconds, fails: int | None) -> None:
        self.running, self.left, self.since, self.rate = running, work * 1000, begins, 1000
        self.fails = fails
        self.done: Milliseconds | None = None

    def end(self) -> Milliseconds:
        """When it ends at the present rate."""
        return self.since + max(0, ceil(self.left / self.rate))

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
        sharing: Sharing | None = None,
        lag: Milliseconds = 0,
    ) -> None:
        """``sharing`` and ``lag`` are what the planner is told; ``chances`` has what is really so."""
        self._coming = sorted(jobs, key=lambda job: (job.arrival, job.id))[::-1]
        self._jobs = {job.id: job for job in jobs}
        self._pools, self._kinds = pools, {pool.name: pool for pool in pools}
        self._actual = actual or {job.id: {kind: run.expected for kind, run in job.times.items()} for job in jobs}
        self._network, self._chances, self._closed = network, chances or Chances(), closed
        self._patience, self._limit, self._launch = patience, limit, launch
        self._sharing, self._lag = sharing, lag
        self._line = FairLine(pools, self._coming[-1].arrival if self._coming else 0)
        self._waiting: dict[str, Job] = {}
        self._live: dict[str, _Live] = {}
        self._attempts: dict[str, int] = {}
        self._promises: tuple[Place, ...] = ()
        self._guide: tuple[Place, ...] = ()
        self._refused: dict[str, Refusal] = {}
        self._outcomes: list[Outcome] = []
        self._placed: list[Place] = []
        names = ("out_of_memory", "deadlocks", "failures", "broken", "displaced", "lost", "shared", "decisions")
        self._counts = dict.fromkeys(names, 0)
        self._now: Milliseconds = -1
        # Moments at which something else changes: bytes arrive, a pool vanishes or comes back.
        self._moments = {moment for outage in self._chances.outages for moment in (outage.begins, outage.ends)}

    def run(self, decide: Decide) -> Report:
        """Until nothing is left to happen."""
        while (now := self._next()) is not None:
            self._advance(now)
            if self._waiting:
                self._decide(decide, now)
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
        away = {pool.name for pool in self._pools if self._chances.away(pool.name, now)}
        return Snapshot(
            now=now,
            pools=tuple(pool for pool in self._pools if pool.name not in away),
            waiting=tuple(self._waiting.values()),
            running=tuple(live.running for live in self._live.values()),
            promises=self._promises,
            guide=self._guide,
            attempts={job: count for job, count in self._attempts.items() if job in self._waiting},
            closed=self._closed and not self._coming,
            patience=self._line.patience if self._patience is None else self._patience,
            network=self._network,
            sharing=self._sharing,
            away=tuple(pool for pool in self._pools if pool.name in away),
            lag=self._lag,
        )

    def _seen(self, live: _Live) -> Milliseconds:
        """When the planner learns of the end."""
        job = live.running.job.id
        seen = live.end() if live.done is None else live.done
        seen += self._chances.late.get(job, 0)
        outage = self._chances.away(live.running.pool, seen)
        return seen if outage is None else outage.ends

    def _next(self) -> Milliseconds | None:
        """The next moment at which something happens."""
        moments = [self._seen(live) for live in self._live.values()]
        moments += [live.end() for live in self._live.values() if live.done is None]
        if self._coming:
            moments.append(self._coming[-1].arrival)
        if self._live or self._coming or self._waiting:
            moments += self._moments
        if moments and self._waiting and not self._closed:
            patience = self._line.patience if self._patience is None else self._patience
            held = {place.job for place in self._promises}
            ages = [job.arrival + patience for job in self._waiting.values() if job.id not in held]
            moments += [age for age in ages if age > self._now]
        moments += [place.start for place in self._promises if place.start > self._now] if moments else []
        return min(moments, default=None)

    def _advance(self, now: Milliseconds) -> None:
        """Ends, arrivals and outages of this moment."""
        self._now = now
        self._moments = {moment for moment in self._moments if moment > now}
        for live in [live for live in self._live.values() if live.done is None and live.end() <= now]:
            self._finish(live)
        for live in [live for live in self._live.values() if live.done is not None and self._seen(live) <= now]:
            self._end(live, now)
        for outage in self._chances.outages:
            if outage.kills and outage.begins == now:
                for live in [live for live in self._live.values() if live.running.pool == outage.pool]:
                    if live.done is None:
                        self._lose(live)
        while self._coming and self._coming[-1].arrival <= now:
            job = self._coming.pop()
            self._line.join(job)
            self._waiting[job.id] = job

    def _partners(self, live: _Live) -> list[_Live]:
        """Who shares the card with the job."""
        one = live.running
        return [
            other
            for other in self._live.values()
            if one.job.id == other.running.host or one.host == other.running.job.id
        ]

    def _finish(self, live: _Live) -> None:
        """It is over in truth: its partner runs at full rate from now on, whoever knows."""
        live.done = live.end()
        for other in self._partners(live):
            if other.done is None:
                other.pace(live.done, 1000)

    def _end(self, live: _Live, now: Milliseconds) -> None:
        """The planner learns of the end."""
        running = live.running
        for other in self._partners(live):
            other.running = parted(other.running, running, now, self._lag)
        del self._live[running.job.id]
        if live.fails is not None:
            self._counts["failures"] += 1
            self._again(running.job)
            return
        assert live.done is not None
        self._outcomes.append(
            Outcome(running.job.id, running.pool, running.job.arrival, running.started, live.done, running.host)
        )

    def _lose(self, live: _Live) -> None:
        """Its pool went down under it: nobody's fault, so it is not held against the job."""
        del self._live[live.running.job.id]
        self._counts["lost"] += 1
        self._waiting[live.running.job.id] = live.running.job

    def _again(self, job: Job) -> None:
        """Back into the queue, or out of it when it failed too often."""
        self._attempts[job.id] = self._attempts.get(job.id, 0) + 1
        if self._attempts[job.id] >= self._limit:
            message = f"job {job.id} failed {self._limit} times; look at its log and submit it anew"
            self._refused[job.id] = Refusal("TooManyFailures", message)
            return
        self._waiting[job.id] = job

    def _decide(self, decide: Decide, now: Milliseconds) -> None:
        """Ask once and act."""
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
            missing = after is None and before.job not in started and before.job in self._waiting
            if late or missing:
                self._counts["displaced" if self._chances.away(before.pool, now) else "broken"] += 1
        self._promises, self._guide = plan.promises, plan.guide
        if self._network is not None:
            for job, cluster in plan.fetches:
                for transfer in self._network.fetch(cluster, self._jobs[job].inputs, now) or ():
                    self._moments.add(transfer.arrives)
        for place in plan.starts:
            self._start(place, now)

    def _start(self, place: Place, now: Milliseconds) -> None:
        job, pool = self._waiting.pop(place.job), self._kinds[place.pool]
        if self._chances.away(pool.name, now):
            raise AssertionError(f"{job.id} is started in {pool.name}, which is out of reach at {now}")
        self._placed.append(place)
        begins = now
        if self._network is not None and job.inputs:
            self._network.fetch(pool.cluster, job.inputs, now)
            begins = max(self._network.present(pool.cluster, blob.digest, now) for blob in job.inputs)
        host = self._live.get(place.host or "")
        rates = None if host is None else self._rates(job, host.running.job, pool)
        work, fails = self._actual[job.id][pool.kind], self._failing(job)
        if self._overfull(job, host, pool, rates):
            self._counts["out_of_memory"] += 1
            self._counts["deadlocks"] += self._attempts.get(job.id, 0) + 1 >= self._limit
            work, fails, rates = self._launch, 1000, Rates(1000, 1000)
        elif fails is not None:
            work = max(1, work * fails // 1000)
        until = max(place.end, now + job.times[pool.kind].upper + begins - now)
        live = _Live(Running(job, place.pool, now, until, place.host), work, begins, fails)
        self._live[job.id] = live
        if host is not None and rates is not None:
            self._counts["shared"] += 1
            self._join(live, host, pool, rates, begins)
        self._check(pool, now)

    def _failing(self, job: Job) -> int | None:
        parts, attempt = self._chances.failing.get(job.id, ()), self._attempts.get(job.id, 0)
        return parts[attempt] if attempt < len(parts) else None

    def _rates(self, guest: Job, host: Job, pool: Pool) -> Rates:
        """How fast both really run: what the card leaves them, and what the CPU does."""
        rates = self._chances.rates(pool.kind, guest, host)
        wanted = pool.busy + sum(self._chances.cpu.get(job.id, job.cpu) for job in (guest, host))
        if pool.cpu is None or wanted <= pool.cpu or not min(rates.guest, rates.host):
            return rates
        return Rates(max(1, rates.guest * pool.cpu // wanted), max(1, rates.host * pool.cpu // wanted))

    @staticmethod
    def _overfull(job: Job, host: _Live | None, pool: Pool, rates: Rates | None) -> bool:
        needed = [job.memory] if host is None else [job.memory, host.running.job.memory]
        known = sum(size for size in needed if size is not None)
        short = pool.memory is not None and known > pool.memory
        return short or (rates is not None and min(rates.guest, rates.host) == 0)

    def _join(self, guest: _Live, host: _Live, pool: Pool, rates: Rates, begins: Milliseconds) -> None:
        """The truth gets its rates, and the planner its belief: what its table says, or the truth where it has none."""
        if host.done is None:
            guest.pace(begins, rates.guest)
            host.pace(begins, rates.host)
        job, now = guest.running.job, guest.running.started
        believed = None if self._sharing is None else self._sharing.beside(job, host.running.job, pool)
        if believed is not None and self._sharing is not None:
            believed = self._sharing.lower(believed)
        guest.running, host.running = joined(host.running, job, pool, believed or rates, now, begins)

    def _check(self, pool: Pool, now: Milliseconds) -> None:
        """Nobody may take a card that is taken, nor be the third on one."""
        here = [live.running for live in self._live.values() if live.running.pool == pool.name]
        used = sum(running.job.cards for running in here if running.host not in self._live)
        hosts = [running.host for running in here if running.host in self._live]
        if used > pool.cards or len(set(hosts)) < len(hosts):
            raise AssertionError(f"{used} of {pool.cards} cards of {pool.name} are taken at {now}, shared by {hosts}")
