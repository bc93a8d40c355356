"""What a decision is made from, and what it says.

Both are plain data: the controller fills a snapshot from its store, the simulator from virtual time, and whatever a
decision has to remember (promises, the guide) comes back in the plan and goes into the next snapshot.
"""

from collections.abc import Iterable

import msgspec

from hcs.model.refusals import Refusal
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.network import Network
from hcs.wide.profile import Profile


class Running(msgspec.Struct, frozen=True):
    """A job on its cards. ``until`` is the upper quantile of its end; ``host`` the job whose card it shares."""

    job: Job
    pool: str
    started: Milliseconds
    until: Milliseconds
    host: str | None = None

    def end(self, now: Milliseconds) -> Milliseconds:
        """The end to plan with. A job that overran its interval is given an eighth of its age more each time."""
        return self.until if self.until > now else now + max(1000, (now - self.started) // 8)


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
    wait until it is promised a place.
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

    def profiles(self) -> dict[str, Profile]:
        """Free cards of each pool over time, as the running jobs leave them."""
        made = {pool.name: Profile(self.now, pool.cards) for pool in self.pools}
        for cards, pool, end in self.holdings():
            made[pool].book(cards, self.now, end)
        return made

    def holdings(self) -> list[tuple[int, str, Milliseconds]]:
        """Cards, pool and end of what runs; jobs that share a card count once, until the last of them ends."""
        guests: dict[str, Milliseconds] = {}
        names = {running.job.id for running in self.running}
        for running in self.running:
            if running.host in names:
                assert running.host is not None
                guests[running.host] = max(guests.get(running.host, 0), running.end(self.now))
        return [
            (running.job.cards, running.pool, max(running.end(self.now), guests.get(running.job.id, 0)))
            for running in self.running
            if running.host not in names
        ]

    def ready(self, job: Job, pool: Pool) -> Milliseconds | None:
        """When the job's bytes can be in the pool's cluster; None: never."""
        if self.network is None or not job.inputs:
            return self.now
        return self.network.ready(pool.cluster, job.inputs, self.now)


class Plan(msgspec.Struct, frozen=True):
    """What to do now, what was promised, what is expected, what to fetch meanwhile, and who cannot be served."""

    starts: tuple[Place, ...] = ()
    promises: tuple[Place, ...] = ()
    expected: tuple[Place, ...] = ()
    guide: tuple[Place, ...] = ()
    fetches: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, Refusal], ...] = ()


def fetches(snapshot: Snapshot, places: Iterable[Place]) -> tuple[tuple[str, str], ...]:
    """Jobs that will wait, and the clusters whose stores should get their bytes meanwhile."""
    if snapshot.network is None:
        return ()
    clusters = {pool.name: pool.cluster for pool in snapshot.pools}
    hungry = {job.id for job in snapshot.waiting if job.inputs}
    later = [place for place in places if place.start > snapshot.now and place.job in hungry]
    return tuple((place.job, clusters[place.pool]) for place in later)
