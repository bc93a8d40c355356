"""Two of our jobs on one card: which may, and what each is told when a partner comes or goes.

A job may share where its memory is known (it is dispatched with that as its quota, so neither can take the other's) and
nobody asked for the whole card. The rates are the predictor's. When a guest joins, the host's end is believed to come
later; when either ends, the other goes on at full rate. Which card it is, the cluster's router decides; that
nobody else comes there, their sharing group says. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from hcs.cpn.ledger import shift
from hcs.predict.jobs import Rate
from hcs.wide.entries import Entry, Placement
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.sharing import Rates, Sharing, joined, parted
from hcs.wide.snapshot import Running


class Slows(Protocol):
    """What is asked of a predictor."""

    def slowdown(self, a: str, b: str) -> Rate:
        """The normalised rate of model ``a`` beside model ``b``."""
        ...


class Pairs:
    """Rates of models beside each other, asked once for each pair."""

    def __init__(self, predictor: Slows | None) -> None:
        self._predictor = predictor
        self._known: dict[tuple[str, str], int] = {}

    def sharing(
        self, waiting: Iterable[Job], hosts: Iterable[Job], pools: Sequence[Pool], threshold: float
    ) -> Sharing | None:
        """The table for one decision: pairs that gain something; None: nobody may share.

        ``threshold`` is the share of a node's CPU that a guest may bring it to.
        """
        if self._predictor is None:
            return None
        guests = {job.profile for job in waiting if job.profile}
        # A job that waits may be a host once it runs.
        held = {job.profile for job in hosts if job.profile} | guests
        rates = {}
        for guest in guests:
            for host in held:
                pair = Rates(self._rate(guest, host), self._rate(host, guest))
                if pair.guest + pair.host > 1000:
                    rates.update({(pool.kind, guest, host): pair for pool in pools})
        return Sharing(rates, cpu=round(1000 * threshold)) if rates else None

    def _rate(self, model: str, partner: str) -> int:
        key = (model, partner)
        if key not in self._known:
            assert self._predictor is not None
            self._known[key] = max(1, min(1000, round(1000 * self._predictor.slowdown(model, partner).rate)))
        return self._known[key]


def has_partner(profile: str, kind: str, sharing: Sharing | None) -> bool:
    """Whether any pair in the table has this profile on this kind."""
    return sharing is not None and any(kind == where and profile in names for where, *names in sharing.rates)


def welcomed(
    host: Entry, runs: Running, guest: Job, pool: Pool, sharing: Sharing, now: Milliseconds, lag: Milliseconds
) -> Placement | None:
    """The host's placement once the guest is there; None where they may not share after all."""
    rates = sharing.beside(guest, runs.job, pool)
    if rates is None or host.placement is None:
        return None
    _, after = joined(runs, guest, pool, rates, now)
    return msgspec.structs.replace(
        host.placement, upper=after.until - shift(host.placement, lag), beside=guest.id, rate=rates.host
    )


def partings(
    placed: Mapping[str, Entry], gone: Callable[[str], Entry | None], now: Milliseconds, lag: Milliseconds
) -> list[tuple[Entry, Placement]]:
    """Jobs whose partner is gone, and their placements from now on.

    Args:
        placed: what holds cards, by id.
        gone: an entry that does not, as it was left.
        now: milliseconds since 1970.
        lag: what plans allow for starts that come late and ends that are seen late.
    """
    made = []
    for entry in placed.values():
        held = entry.placement
        if held is None or not held.beside or held.beside in placed or (held.host is None and held.rate == 1000):
            continue
        partner = gone(held.beside)
        believed = now
        if partner is not None and (left := partner.placement) is not None:
            believed = left.upper + shift(left, lag)
        started, alone = held.started or held.decided, Job(entry.id, 1, {})
        survivor = Running(alone, "", started, held.upper + shift(held, lag), held.host, held.rate)
        until = parted(survivor, Running(alone, "", started, believed), now, lag).until
        made.append((entry, msgspec.structs.replace(held, upper=until - shift(held, lag), host=None, rate=1000)))
    return made
