"""What will happen in a run and nobody is told: failures, outages, ends seen late, and how sharing really is."""

from collections.abc import Mapping

import msgspec

from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.sharing import Rates


class Outage(msgspec.Struct, frozen=True):
    """A pool out of reach from ``begins`` until ``ends``. ``kills``: what runs there is lost; else it goes unseen."""

    pool: str
    begins: Milliseconds
    ends: Milliseconds
    kills: bool = False

    def __post_init__(self) -> None:
        if self.ends <= self.begins:
            raise ValueError(f"an outage of {self.pool} must end after {self.begins}, not at {self.ends}")


class Chances(msgspec.Struct, frozen=True):
    """A job's attempt n fails after ``failing[job][n]`` per mille of its run; attempts past the end succeed.

    ``late`` says how much later than it happens a job's end is seen. ``pairs`` are the true rates beside each other, as
    in :class:`hcs.wide.sharing.Sharing`, a rate of zero runs out of memory; pairs that are not named get the rate their
    loads leave. ``cpu`` is the CPU that jobs really keep busy, in millicores, where it is not what was told.
    """

    failing: Mapping[str, tuple[int, ...]] = {}
    outages: tuple[Outage, ...] = ()
    late: Mapping[str, Milliseconds] = {}
    pairs: Mapping[tuple[str, str, str], Rates] | None = None
    cpu: Mapping[str, int] = {}

    def away(self, pool: str, now: Milliseconds) -> Outage | None:
        """The outage of the pool at a moment, the one that ends last."""
        found = [outage for outage in self.outages if outage.pool == pool and outage.begins <= now < outage.ends]
        return max(found, key=lambda outage: outage.ends, default=None)

    def rates(self, kind: str, guest: Job, host: Job) -> Rates:
        """How fast the two really run on one card; zero: they do not fit."""
        told = None if self.pairs is None else self.pairs.get((kind, guest.profile, host.profile))
        if told is not None:
            return told
        fair = min(1000, 1_000_000 // (guest.load + host.load))
        return Rates(fair, fair)
