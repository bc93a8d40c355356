"""How much is free: what the clusters show, less what we sent, counted once.

A cluster's view says which cards are usable and which others took; our own Jobs are not in it, they are in the queue,
from the moment a place is written down. So a Job that was sent a second ago is counted although no metric can have seen
it, and one that a metric has seen is not counted twice. Figures of the host come from metrics and are as old as they
say: what we sent since then is added. Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hcs.cpn.views import ClusterView, PoolView
from hcs.wide.entries import Entry, Placement
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Bytes, Job, Milliseconds, RunTime
from hcs.wide.snapshot import Running

BLACKOUT: Final[Milliseconds] = 60_000
"""For so long at least nothing is started on a cluster that is out of reach, or too busy; what is promised there for
later stays so."""
RATED: Final[Milliseconds] = 60_000
"""Over how long the use of a CPU is measured: of a job that began within, the figure shows a part only."""


def kind_at(cluster: str, kind: str) -> str:
    """A kind in plans: each cluster's cards are one of their own, so that a job may be kept from a single cluster.

    >>> kind_at("east", "A100-SXM4-80GB")
    'east/A100-SXM4-80GB'
    """
    return f"{cluster}/{kind}"


def pool_at(cluster: str, kind: str) -> Pool:
    """A pool without cards; its name is the one that plans use."""
    return Pool(cluster, kind_at(cluster, kind), 0)


def kind_of(pool: Pool) -> str:
    """The card model of a pool."""
    return pool.kind.removeprefix(f"{pool.cluster}/")


def pools_of(views: Sequence[ClusterView], placed: Sequence[Entry], now: Milliseconds) -> tuple[Pool, ...]:
    """All pools. One never has fewer cards than our own Jobs hold there: cards may fail under a Job."""
    held = cards_held(placed)
    found: dict[tuple[str, str], PoolView | None] = {
        (view.name, pool.kind): pool for view in views for pool in view.pools
    }
    for key in held:
        found.setdefault(key, None)
    made = []
    for (cluster, kind), pool in sorted(found.items()):
        free = max(0, pool.usable - pool.taken) if pool is not None else 0
        cards = max(free, held.get((cluster, kind), 0))
        if pool is None:
            made.append(Pool(cluster, kind_at(cluster, kind), cards))
            continue
        ours = [entry for entry in placed if (at := entry.placement) and (at.cluster, at.kind) == (cluster, kind)]
        busy = 0 if pool.cpu is None else busy_beside(pool, pool.cpu, ours, now)
        made.append(Pool(cluster, kind_at(cluster, kind), cards, pool.memory, pool.cpu, busy))
    return tuple(made)


def busy_beside(pool: PoolView, share: int, ours: Sequence[Entry], now: Milliseconds) -> int:
    """Millicores that others keep busy of a card's ``share`` of its node's CPU.

    It is what their pods ask for, or what was measured beyond what our jobs of then ask for, whichever is more: theirs
    may take more than they asked, and ours count with what they ask. So all together are never taken for less than was
    measured. Who asks for more than the share of its own cards takes from the others'.
    """
    cards = max(1, pool.usable)
    together: dict[str, int] = {}
    entries = {entry.id for entry in ours}
    for entry in ours:
        host = entry.placement.host if entry.placement is not None else None
        key = host if host in entries else entry.id
        own = share * entry.submission.cards if key == entry.id else 0
        together[key] = together.get(key, 0) + _cpu(entry) - own
    beyond = sum(max(0, more) for more in together.values())
    theirs = pool.cpu_asked
    if pool.cpu_busy is not None:
        measured = now - pool.cpu_busy.age - RATED
        seen = sum(_cpu(entry) for entry in ours if (at := entry.placement) and (at.started or at.decided) <= measured)
        theirs = max(theirs, (round(pool.cpu_busy.value * share * cards) - seen) // cards)
    return theirs + -(-beyond // cards)


def _cpu(entry: Entry) -> int:
    """Millicores that all its pods ask for."""
    return entry.submission.cpu * entry.submission.pods


def cards_held(placed: Iterable[Entry]) -> dict[tuple[str, str], int]:
    """Cards our Jobs hold, by cluster and kind; who shares a card with a host that is still there adds none."""
    held: dict[tuple[str, str], int] = {}
    entries = {entry.id: entry for entry in placed}
    for entry in entries.values():
        placement = entry.placement
        if placement is None or placement.host in entries:
            continue
        key = (placement.cluster, placement.kind)
        held[key] = held.get(key, 0) + entry.submission.cards
    return held


def shift(placement: Placement, lag: Milliseconds) -> Milliseconds:
    """By how much a placement's end moves because it was started late; the lag that is planned with covers a little."""
    return max(0, (placement.started or placement.decided) - placement.decided - lag)


def running_of(placed: Sequence[Entry], job: Callable[[Entry], Job], lag: Milliseconds) -> list[Running]:
    """What holds cards, as the planner wants it: also what is still on its way there, or being cancelled."""
    made = []
    for entry in placed:
        placement = entry.placement
        if placement is None:
            continue
        name = pool_at(placement.cluster, placement.kind).name
        started = placement.started or placement.decided
        until = placement.upper + shift(placement, lag)
        made.append(Running(job(entry), name, started, until, placement.host, placement.rate))
    return made


def closed_pools(
    views: Sequence[ClusterView], pools: Sequence[Pool], placed: Sequence[Entry], now: Milliseconds, threshold: float
) -> tuple[list[Running], dict[str, tuple[str, str]]]:
    """Cards on which nothing may start now, as if something ran there for a while, and why, by cluster."""
    why: dict[str, tuple[str, str]] = {}
    for view in views:
        if not view.reachable:
            said = view.message.removeprefix(f"cluster {view.name} ") or "no answer"
            why[view.name] = "ClusterUnreachable", f"cluster {view.name} is out of reach: {said}"
        elif view.cpu_busy is not None and view.cpu_busy.value > threshold:
            busy = f"{view.cpu_busy.value:.0%} of its CPUs were busy {view.cpu_busy.age // 1000} s ago"
            why[view.name] = "CpuBusy", f"cluster {view.name} takes nothing more: {busy}, the limit is {threshold:.0%}"
    named = {view.name for view in views}
    held = cards_held(placed)
    silent = {view.name: max(0, now - view.seen) for view in views if not view.reachable}
    blocked = []
    for pool in pools:
        if pool.cluster not in named:
            why.setdefault(pool.cluster, ("ClusterUnknown", f"cluster {pool.cluster} is not connected"))
        free = pool.cards - held.get((pool.cluster, kind_of(pool)), 0)
        if pool.cluster in why and free > 0:
            # Who has been silent for long is expected to be so for as long again.
            lasts = max(BLACKOUT, silent.get(pool.cluster, 0))
            shut = Job(f"~{pool.name}", free, {pool.kind: RunTime.exactly(lasts)})
            blocked.append(Running(shut, pool.name, now, now + lasts))
    return blocked, why


def host_memory_left(view: ClusterView, placed: Iterable[Entry], now: Milliseconds) -> Bytes | None:
    """Free host memory of a cluster, less what we sent since that was measured; None where nobody measures."""
    if view.host_free is None:
        return None
    measured = now - view.host_free.age
    unseen = sum(
        entry.submission.host_memory * entry.submission.pods
        for entry in placed
        if entry.placement is not None
        and entry.placement.cluster == view.name
        and (entry.placement.started or entry.placement.decided) >= measured
    )
    return max(0, int(view.host_free.value) - unseen)
