"""What a decision is made from, and what it says.

Both are plain data: the controller fills a snapshot from its store, the simulator from virtual time, and whatever a
decision has to remember (promises, the guide) comes back in the plan and goes into the next snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from hcs.model.refusals import Refusal
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds, RunTime
from hcs.wide.network import Network
from hcs.wide.profile import Profile

if TYPE_CHECKING:
    from hcs.wide.sharing import Sharing


class Running(msgspec.Struct, frozen=True):
    """A job on its cards. ``until`` is the upper quantile of its end; ``host`` the job whose card it shares.

    ``rate`` is what sharing is believed to leave it, per mille.
    """

    job: Job
    pool: str
    started: Milliseconds
    until: Milliseconds
    host: str | None = None
    rate: int = 1000

    def end(self, now: Milliseconds, lag: Milliseconds = 0) -> Milliseconds:
        """The end to plan with, seen ``lag`` late. What overran its interval gets an eighth of its age more."""
        return self.until + lag if self.until + lag > now else now + max(1000, (now - self.started) // 8)

    def expected(self, now: Milliseconds, run: RunTime) -> Milliseconds:
        """The end to expect, given that it has not come yet; ``run`` is the job's time on its kind of card."""
        return now + run.left(now - (self.until - run.upper))


class Place(msgspec.Struct, frozen=True):
    """Where and when a job is meant to run; ``end`` is the upper quantile."""

    job: str
    pool: str
    start: Milliseconds
    end: Milliseconds
    host: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Queue and fleet at one moment.

    ``waiting`` is in order of arrival; jobs to be tried behind others have their attempts in ``attempts``.
    ``promises`` are reservations that must not move back; ``guide`` is the place of each job in the last improved plan.
    ``closed``: no more jobs are expected, so what counts is when the last one ends. ``patience`` is how long a job may
    wait until it is promised a place. ``sharing`` says who may be a guest on whose card; None: nobody.

    ``away`` are pools that are known but cannot be reached: jobs that only they can run wait for them. Jobs that run
    there stay in ``running``. ``lag`` is how much later than it happens an end may be seen; cards are booked for that
    long past it.
    """

    now: Milliseconds
    pools: tuple[Pool, ...]
    waiting: tuple[Job, ...]
    running: tuple[Running, ...] = ()
    promises: tuple[Place, ...] = ()
    guide: tuple[Place, ...] = ()
    attempts: dict[str, int] = {}
    closed: bool = False
    patience: Milliseconds = 0
    network: Network | None = None
    sharing: Sharing | None = None
    away: tuple[Pool, ...] = ()
    lag: Milliseconds = 0

    def profiles(self, upper: bool = True) -> dict[str, Profile]:
        """Free cards of each pool over time, as the running jobs leave them, by their upper or their expected ends."""
        made = {pool.name: Profile(self.now, pool.cards) for pool in self.pools}
        for cards, pool, end in self.holdings(upper):
            if pool in made:
                made[pool].book(cards, self.now, end)
        return made

    def holdings(self, upper: bool = True) -> list[tuple[int, str, Milliseconds]]:
        """Cards, pool and end of what runs; jobs that share a card count once, until the last of them ends."""
        kinds = {pool.name: pool.kind for pool in self.pools}

        def end(running: Running) -> Milliseconds:
            run = running.job.times.get(kinds.get(running.pool, ""))
            if upper or run is None:
                return running.end(self.now, self.lag)
            return running.expected(self.now, run)

        guests: dict[str, Milliseconds] = {}
        names = {running.job.id for running in self.running}
        for running in self.running:
            if running.host in names:
                assert running.host is not None
                guests[running.host] = max(guests.get(running.host, 0), end(running))
        return [
            (running.job.cards, running.pool, max(end(running), guests.get(running.job.id, 0)))
            for running in self.running
            if running.host not in names
        ]

    def ready(self, job: Job, pool: Pool) -> Milliseconds | None:
        """When the job's bytes can be in the pool's cluster; None: never."""
        if self.network is None or not job.inputs:
            return self.now
        return self.network.ready(pool.cluster, job.inputs, self.now)


class Plan(msgspec.Struct, frozen=True):
    """What to do now, what was promised, what is expected, what to fetch meanwhile, and who cannot be served.

    ``slowed`` are the hosts of guests that start now, as they are believed to go on.
    """

    starts: tuple[Place, ...] = ()
    promises: tuple[Place, ...] = ()
    expected: tuple[Place, ...] = ()
    guide: tuple[Place, ...] = ()
    fetches: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, Refusal], ...] = ()
    slowed: tuple[Running, ...] = ()


def fetches(snapshot: Snapshot, places: Iterable[Place]) -> tuple[tuple[str, str], ...]:
    """Jobs that will wait, and the clusters whose stores should get their bytes meanwhile."""
    if snapshot.network is None:
        return ()
    clusters = {pool.name: pool.cluster for pool in snapshot.pools}
    hungry = {job.id for job in snapshot.waiting if job.inputs}
    later = [place for place in places if place.start > snapshot.now and place.job in hungry]
    return tuple((place.job, clusters[place.pool]) for place in later)
