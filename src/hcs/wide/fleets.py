"""Where jobs can run: pools of equal cards, each in one cluster."""

import msgspec

from hcs.model.quantities import show_bytes
from hcs.model.refusals import Refusal, RefusedError
from hcs.wide.jobs import Bytes, Job, RunTime


class Pool(msgspec.Struct, frozen=True):
    """Equal cards of one cluster. ``memory`` is what one card can hold in bytes; None: not known.

    ``cpu`` is each card's share of its node's CPU in millicores, None: not looked at; ``busy`` is what others keep busy
    of that.
    """

    cluster: str
    kind: str
    cards: int
    memory: Bytes | None = None
    cpu: int | None = None
    busy: int = 0

    @property
    def name(self) -> str:
        """Cluster and kind; the name of the pool in plans."""
        return f"{self.cluster}/{self.kind}"

    def admits(self, job: Job) -> RunTime | None:
        """How long the job runs here; None where it can never run: wrong kind, too few cards, too little memory."""
        if job.cards > self.cards:
            return None
        if job.memory is not None and self.memory is not None and job.memory > self.memory:
            return None
        return job.times.get(self.kind)


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Read a fleet of one cluster per kind, or with clusters named.

    >>> [pool.name for pool in parse_pools("v100=8,east/k80=24")]
    ['v100/v100', 'east/k80']
    """
    pools: dict[str, Pool] = {}
    for part in text.split(","):
        name, equals, count = part.strip().partition("=")
        if not equals or not name or not count.strip().isdecimal() or not 0 < int(count) <= 1_000_000:
            raise RefusedError(
                Refusal("BadFleet", f"cannot read {part!r} as cards; write it like v100=8 or east/v100=8")
            )
        cluster, slash, kind = name.strip().partition("/")
        if slash and not (cluster and kind):
            raise RefusedError(Refusal("BadFleet", f"{name!r} lacks a cluster or a kind; write it like east/v100=8"))
        pool = Pool(cluster, kind or cluster, int(count))
        if pool.name in pools:
            raise RefusedError(Refusal("BadFleet", f"{name.strip()} is named twice; name each pool once"))
        pools[pool.name] = pool
    return tuple(pools.values())


def why_never(job: Job, pools: tuple[Pool, ...]) -> Refusal | None:
    """Why no pool could ever run the job, even when empty; None when one could."""
    if any(pool.admits(job) for pool in pools):
        return None
    known = [pool for pool in pools if pool.kind in job.times]
    if not known:
        return Refusal(
            "NoRunTime",
            f"job {job.id} has no run time on {', '.join(sorted({pool.kind for pool in pools}))}; "
            "probe it there or add a cluster with another kind of card",
        )
    cards = max(pool.cards for pool in known)
    if job.cards > cards:
        return Refusal(
            "TooManyCards", f"job {job.id} asks for {job.cards} cards; the largest pool it can use has {cards}"
        )
    largest = max((pool.memory for pool in known if pool.cards >= job.cards and pool.memory is not None), default=0)
    needs, most = show_bytes(job.memory or 0), show_bytes(largest)
    told = f"needs {needs} on a card" if needs != most else f"needs more than {needs} on a card"
    return Refusal("TooLittleMemory", f"job {job.id} {told}; the largest it may use has {most}")
