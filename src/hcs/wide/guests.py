"""Jobs that need not wait for a card of their own: the guests of this moment.

A guest pays when both together do more than one job would, and when it gains more than its host loses: its end beside
the host against the end it could expect alone. At least half of its time there the host must be beside it, or a long
job would take a card before its turn. The pair holds the card longer than the host would have, so the cards' profile
with all promises must have room for that until both upper ends: a promise is never delayed.
"""

from collections.abc import Sequence
from math import inf

from hcs.wide.jobs import Job
from hcs.wide.listing import Board
from hcs.wide.sharing import joined, together
from hcs.wide.snapshot import Place, Running, Snapshot

MARGIN = 50
"""Per mille by which the sum of the two rates must exceed one job's: predictions err."""


def guests(
    board: Board, jobs: Sequence[Job], places: Sequence[Place], latest: float = inf, most: float = inf
) -> tuple[list[Place], list[Running]]:
    """Places of the jobs that are to join a running one now, and the hosts as they go on.

    ``board`` has the running jobs and the promises; the guests' cards are booked on it. ``jobs`` are asked in order,
    ``places`` say where those go otherwise. At most ``most`` join, and nobody whose pair would end after ``latest``:
    in a closed queue that would move the last end.
    """
    snapshot = board.snapshot
    now, sharing = snapshot.now, snapshot.sharing
    if sharing is None:
        return [], []
    alone = {place.job: place for place in places}
    pools = {pool.name: pool for pool in snapshot.pools}
    hosts = _hosts(snapshot)
    chosen: list[Place] = []
    slowed: list[Running] = []
    for job in jobs:
        if len(chosen) >= most:
            break
        if job.cards != 1 or not hosts:
            continue
        otherwise = alone.get(job.id)
        if otherwise is not None and otherwise.start <= now:
            continue
        finish = None
        if otherwise is not None:
            run = job.times[pools[otherwise.pool].kind]
            finish = otherwise.end - run.upper + run.expected
        found = []
        for host in hosts.values():
            pool = pools[host.pool]
            takes = pool.admits(job)
            if takes is None:
                continue
            rates = sharing.beside(job, host.job, pool)
            if rates is None or rates.guest + rates.host < 1000 + MARGIN or board.ready(job, pool) != now:
                continue
            left = host.expected(now, host.job.times[pool.kind]) - now
            own, others = together(takes.expected, rates.guest, left, rates.host)
            # A job without a place in the window has one far off: it gains anyway.
            gain = inf if finish is None else finish - now - own - (others - left)
            if gain <= 0 or own > 2 * others:
                continue
            guest, beside = joined(host, job, pool, sharing.lower(rates), now)
            until = max(guest.until, beside.until) + snapshot.lag
            if until <= latest and board.profiles[pool.name].fits(1, host.end(now, snapshot.lag), until):
                found.append((-gain, host.job.id, guest, beside, until))
        if found:
            _, name, guest, beside, until = min(found, key=lambda option: option[:2])
            host = hosts.pop(name)
            board.profiles[host.pool].book(1, host.end(now, snapshot.lag), until)
            chosen.append(Place(job.id, host.pool, now, guest.until, name))
            slowed.append(beside)
    return chosen, slowed


def _hosts(snapshot: Snapshot) -> dict[str, Running]:
    """Running jobs of one card that have it to themselves, within reach and within their interval."""
    taken = {running.host for running in snapshot.running}
    reachable = {pool.name: pool for pool in snapshot.pools}
    return {
        running.job.id: running
        for running in snapshot.running
        if running.job.cards == 1
        and running.host is None
        and running.job.id not in taken
        and running.until > snapshot.now
        and running.pool in reachable
        and reachable[running.pool].kind in running.job.times
    }
