"""The simple policies, in the same frame as ours: to compare with, and to fall back on.

``fifo`` takes any free kind and doubles up on cards without looking at memory; its out-of-memory failures and its stuck
head are what one gets, and are counted. ``fifo-exclusive`` takes the fastest free kind, one job a card.
``binpack`` and ``spread`` are what a grid does by default: whoever fits starts, on the fullest or the emptiest pool.
``easy`` reserves for the head alone. ``sjf`` and ``ljf`` plan the whole queue, shortest or longest first.
"""

from collections.abc import Callable

from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job
from hcs.wide.listing import Board, listed
from hcs.wide.snapshot import Place, Plan, Snapshot, fetches

Decide = Callable[[Snapshot], Plan]


def shortest(job: Job) -> int:
    """Milliseconds on the job's best kind of card."""
    return min(run.expected for run in job.times.values())


def in_turn(snapshot: Snapshot) -> list[Job]:
    """The queue by priority and arrival, failed jobs behind those that failed less often."""
    return sorted(snapshot.waiting, key=lambda job: (snapshot.attempts.get(job.id, 0), -job.priority, job.arrival))


def _starting(snapshot: Snapshot, places: list[Place]) -> tuple[Place, ...]:
    return tuple(place for place in places if place.start <= snapshot.now)


def fifo(snapshot: Snapshot) -> Plan:
    """Strictly in order, on any kind; shares cards blindly; a job that failed stays at the head."""
    free, blind = Free(snapshot), snapshot.sharing is not None
    alone = {running.job.id: running for running in snapshot.running if running.job.cards == 1 and not running.host}
    for running in snapshot.running:
        alone.pop(running.host or "", None)
    starts: list[Place] = []
    for job in sorted(snapshot.waiting, key=lambda job: (-job.priority, job.arrival)):
        kinds = [pool for pool in snapshot.pools if pool.kind in job.times and pool.cards >= job.cards]
        roomy = [pool for pool in kinds if free.cards[pool.name] >= job.cards]
        if roomy:
            # Any kind will do: the choice is spread evenly, and the same for the same queue.
            pool = roomy[(snapshot.now + len(starts) * 7919 + snapshot.attempts.get(job.id, 0)) % len(roomy)]
            starts.append(free.take(job, pool))
            continue
        hosts = [
            running
            for running in alone.values()
            if job.cards == 1 and (job.memory is not None or blind) and running.pool in {pool.name for pool in kinds}
        ]
        if not hosts:
            break
        host = min(hosts, key=lambda running: (running.started, running.job.id))
        del alone[host.job.id]
        run = job.times[next(pool.kind for pool in kinds if pool.name == host.pool)]
        starts.append(Place(job.id, host.pool, snapshot.now, snapshot.now + run.upper, host.job.id))
    return Plan(starts=tuple(starts))


class Free:
    """Cards free now, counted down as jobs start."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.cards = {pool.name: pool.cards for pool in snapshot.pools}
        for cards, pool, _ in snapshot.holdings():
            if pool in self.cards:
                self.cards[pool] -= cards

    def fitting(self, job: Job, snapshot: Snapshot) -> list[Pool]:
        """Pools that admit the job, have the cards free and can have its bytes; the cards wait for those."""
        return [
            pool
            for pool in snapshot.pools
            if pool.admits(job) and self.cards[pool.name] >= job.cards and snapshot.ready(job, pool) is not None
        ]

    def take(self, job: Job, pool: Pool) -> Place:
        """Start the job there."""
        self.cards[pool.name] -= job.cards
        return Place(job.id, pool.name, self.now, self.now + job.times[pool.kind].upper)


def fifo_exclusive(snapshot: Snapshot) -> Plan:
    """Strictly in order, on the fastest kind that is free; nobody passes the head."""
    free, starts = Free(snapshot), []
    for job in in_turn(snapshot):
        pools = free.fitting(job, snapshot)
        if not pools:
            break
        starts.append(free.take(job, min(pools, key=lambda pool: job.times[pool.kind].expected)))
    return Plan(starts=tuple(starts))


def binpack(snapshot: Snapshot) -> Plan:
    """Whoever fits, where the fewest cards are left."""
    return _grid(snapshot, lambda left, pool: (left, pool.name))


def spread(snapshot: Snapshot) -> Plan:
    """Whoever fits, where the largest part of the pool is free."""
    return _grid(snapshot, lambda left, pool: (-left / pool.cards, pool.name))


def _grid(snapshot: Snapshot, key: Callable[[int, Pool], tuple[float, str]]) -> Plan:
    free, starts = Free(snapshot), []
    for job in in_turn(snapshot):
        pools = free.fitting(job, snapshot)
        if pools:
            starts.append(free.take(job, min(pools, key=lambda pool: key(free.cards[pool.name], pool))))
    return Plan(starts=tuple(starts))


def easy(snapshot: Snapshot) -> Plan:
    """In order; the first that must wait holds a reservation, others start now if they do not move it."""
    board, starts, head = Board(snapshot), [], None
    for job in in_turn(snapshot):
        place = board.best(job)
        if place is None:
            continue
        if place.start <= snapshot.now:
            board.book(job, place)
            starts.append(place)
        elif head is None:
            head = place
            board.book(job, place)
    ahead = fetches(snapshot, () if head is None else (head,))
    return Plan(starts=tuple(starts), expected=() if head is None else (head,), fetches=ahead)


def shortest_first(snapshot: Snapshot) -> Plan:
    """The whole queue, shortest first."""
    return _sorted(snapshot, 1)


def longest_first(snapshot: Snapshot) -> Plan:
    """The whole queue, longest first."""
    return _sorted(snapshot, -1)


def _sorted(snapshot: Snapshot, sign: int) -> Plan:
    able = [job for job in in_turn(snapshot) if job.times]
    jobs = sorted(able, key=lambda job: (snapshot.attempts.get(job.id, 0), -job.priority, sign * shortest(job)))
    places = listed(Board(snapshot), jobs)
    return Plan(starts=_starting(snapshot, places), expected=tuple(places), fetches=fetches(snapshot, places))


BASELINES: dict[str, Decide] = {
    "fifo": fifo,
    "fifo-exclusive": fifo_exclusive,
    "binpack": binpack,
    "spread": spread,
    "easy": easy,
    "sjf": shortest_first,
    "ljf": longest_first,
}
"""By the name the benchmark knows."""
