"""Two jobs on one card: who may, how much slower each gets, and when each then ends.

The table is data: somebody measured or predicted it. Memory is the hard line, rate the soft one, and host CPU the
third: a pair is admitted only where it is in the table, its peaks fit the card together, and both leave the node's CPU
below the threshold. Only jobs of one card share, and never more than two: that is what was measured.
"""

import msgspec

from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.snapshot import Running


class Rates(msgspec.Struct, frozen=True):
    """Rates of a guest and its host beside each other, per mille of each alone. Zero: the pair does not run."""

    guest: int
    host: int


class Sharing(msgspec.Struct, frozen=True):
    """Which pairs are believed to run together, by kind of card and the profiles of guest and host.

    ``vouched``: the pairs named here are known to fit even where peaks are not, so jobs of unknown memory may share.
    ``cpu`` is the share of a node's CPU, per mille, that a guest may bring it to. ``error`` is by how much, per mille
    of itself, a rate may come out lower: upper ends are reckoned with that.
    """

    rates: dict[tuple[str, str, str], Rates] = {}
    vouched: bool = False
    cpu: int = 900
    error: int = 100

    def lower(self, rates: Rates) -> Rates:
        """The rates that upper ends are reckoned with."""
        left = 1000 - self.error
        return Rates(max(1, rates.guest * left // 1000), max(1, rates.host * left // 1000))

    def beside(self, guest: Job, host: Job, pool: Pool) -> Rates | None:
        """The rates of the pair on the pool's cards; None where the guest is not admitted."""
        if guest.cards != 1 or host.cards != 1:
            return None
        rates = self.rates.get((pool.kind, guest.profile, host.profile))
        if rates is None or min(rates.guest, rates.host) < 1:
            return None
        if guest.memory is None or host.memory is None or pool.memory is None:
            if not self.vouched:
                return None
        elif guest.memory + host.memory > pool.memory:
            return None
        if pool.cpu is not None and (guest.cpu + host.cpu + pool.busy) * 1000 > self.cpu * pool.cpu:
            return None
        return rates


def symmetric(pairs: dict[tuple[str, str, str], Rates]) -> dict[tuple[str, str, str], Rates]:
    """Each pair also the other way round: either of the two may be the guest."""
    turned = {(kind, b, a): Rates(rates.host, rates.guest) for (kind, a, b), rates in pairs.items()}
    return turned | pairs


def together(
    first: Milliseconds, first_rate: int, second: Milliseconds, second_rate: int
) -> tuple[Milliseconds, Milliseconds]:
    """When each of two works ends that begin together; what is left runs at full rate once the other has ended."""
    one, two = -(-first * 1000 // first_rate), -(-second * 1000 // second_rate)
    if one <= two:
        return one, one + second - one * second_rate // 1000
    return two + first - two * first_rate // 1000, two


def joined(
    host: Running, guest: Job, pool: Pool, rates: Rates, now: Milliseconds, ready: Milliseconds | None = None
) -> tuple[Running, Running]:
    """Guest and host as they are believed to run from now on; the guest begins when its bytes are there."""
    begins = max(now, ready or now)
    own, left = guest.times[pool.kind].upper, max(1, host.end(now) - begins)
    guest_takes, host_takes = together(own, rates.guest, left, rates.host)
    return (
        Running(guest, host.pool, now, begins + guest_takes, host.job.id, rates.guest),
        msgspec.structs.replace(host, until=begins + host_takes, rate=rates.host),
    )


def parted(survivor: Running, partner: Running, now: Milliseconds, lag: Milliseconds = 0) -> Running:
    """The survivor when its partner has ended, as is seen ``now``: from now on at full rate.

    An end seen up to ``lag`` after the partner's upper one had come by then; it must not delay the survivor, on whose
    end promises rest. One seen later was later than believed.
    """
    turn, ended = min(partner.until, survivor.until), now
    if partner.until < now <= partner.until + lag:
        ended = partner.until
    until = survivor.until - (turn - ended) + (turn - ended) * survivor.rate // 1000
    return msgspec.structs.replace(survivor, until=until, rate=1000, host=None)
