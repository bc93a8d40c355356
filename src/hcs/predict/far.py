"""The opinion on pairings and models never measured: computation and exchange of gradients, each in its own process.

Where the exchange was measured, the two are predicted apart and their times added, because each carries over in its
own way; otherwise one process takes the whole. Deviations and lengths stay where they start: marginal likelihood fits
them to what repeats inside a pairing, of which there is much, and makes worse what is said about a pairing, of which
there are few. In refits that left whole pairings and models out, the fixed ones were nearer on every table tried.
"""

from collections.abc import Sequence

import numpy as np

from hcs.predict.exchange import ExchangeTime
from hcs.predict.novelty import probes
from hcs.predict.process import Process, Settings, learn
from hcs.predict.table import Floats, Index, Mask, Table

_LEARN_ROWS = 350
_FEWEST_EXCHANGES = 10


class Far:
    """Both processes, or one."""

    def __init__(
        self, table: Table, times: Floats, exchanges: Floats | None, limit: int, draw: np.random.Generator
    ) -> None:
        """Condition on about ``limit`` rows at most; ``exchanges`` are parts of ``times``, NaN where not measured."""
        self.kept = thinned(table, limit, draw)
        rows, seconds = table.take(self.kept), times[self.kept]
        # Where each row of the table is among the rows kept.
        self.place = np.full(len(table), -1)
        self.place[self.kept] = np.arange(len(self.kept))
        self.exchange: Process | None = None
        self.many = rows.cards > 1
        sync = np.zeros(len(rows))
        if exchanges is not None:
            exchange = exchanges[self.kept]
            known = np.isfinite(exchange) & (exchange > 0)
            # On one card too, where it was measured: that tells how many gradients the model has.
            told = (self.many & np.isfinite(exchange)) | known
            if (told & self.many).sum() >= _FEWEST_EXCHANGES:
                sync = np.where(told, np.clip(np.nan_to_num(exchange), 1e-5 * seconds, 0.98 * seconds), 0.0)
                self.told = np.flatnonzero(told)
                self.log_sync = np.log(sync[told])
                few = rows.take(self.told)
                self.exchange = Process(few, self.log_sync, Settings.first(), formula=ExchangeTime(few))
                self.place_told = np.full(len(rows), -1)
                self.place_told[self.told] = np.arange(len(self.told))
        self.compute = Process(rows, np.log(seconds - sync), Settings.first())

    def predict(self, asked: Table) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the logarithm of seconds."""
        mean, spread = self.compute.predict(asked)
        if self.exchange is None:
            return mean, spread
        return _added(mean, spread, *self.exchange.predict(asked), asked.cards > 1)

    def left_out(self, target: Floats, groups: Sequence[Index]) -> list[tuple[Floats, Floats]]:
        """Errors and spreads of each group's rows that are here, had the group not been; groups without any are left.

        ``target`` is of the table.
        """
        here = [self.place[group][self.place[group] >= 0] for group in groups]
        here = [block for block in here if len(block)]
        answers = []
        precision = self.exchange.precision() if self.exchange is not None else None
        for block, (wrong, spread) in zip(here, self.compute.left_out(here), strict=True):
            mean = self.compute.target[block] - wrong
            if self.exchange is not None:
                at = self.place_told[block]
                inside = at >= 0
                other, other_spread = np.full(len(block), -40.0), np.zeros(len(block))
                if inside.any():
                    [(miss, sd)] = self.exchange.left_out([at[inside]], precision)
                    other[inside], other_spread[inside] = self.log_sync[at[inside]] - miss, sd
                mean, spread = _added(mean, spread, other, other_spread, inside & self.many[block])
            answers.append((target[self.kept][block] - mean, spread))
        return answers


def near(rows: Table, target: Floats, draw: np.random.Generator) -> Process:
    """The process for pairings that were measured: its settings are learnt, where there is enough to learn from."""
    some, _ = split(rows, _LEARN_ROWS, draw)
    settings = learn(rows.take(some), target[some], steps=30) if len(some) >= 20 else Settings.first()
    return Process(rows, target, settings)


def thinned(rows: Table, limit: int, draw: np.random.Generator) -> Index:
    """At most about ``limit`` rows, every pairing's first probes among them."""
    every = np.arange(len(rows), dtype=np.intp)
    first = [probes(rows, every[rows.pairing == name], 2) for name in np.unique(rows.pairing)]
    return np.unique(np.concatenate([split(rows, limit, draw)[0], *first]))


def _added(mean: Floats, spread: Floats, other: Floats, other_spread: Floats, both: Mask) -> tuple[Floats, Floats]:
    total = np.where(both, np.logaddexp(mean, other), mean)
    share = np.where(both, np.exp(mean - total), 1.0)
    return total, np.sqrt((share * spread) ** 2 + ((1 - share) * other_spread) ** 2)


def split(rows: Table, limit: int, draw: np.random.Generator) -> tuple[Index, Index]:
    """At most ``limit`` rows, small pairings and probes always whole, and the rest."""
    if len(rows) <= limit:
        return np.arange(len(rows), dtype=np.intp), np.zeros(0, dtype=np.intp)
    pairings, where, counts = np.unique(rows.pairing, return_inverse=True, return_counts=True)
    weight = np.where(counts[where] <= max(3, limit // (4 * len(pairings))), 1e6, 1.0)
    # Weighted draw without replacement: the largest u^(1/w) (Efraimidis and Spirakis, 2006).
    key = np.log(draw.random(len(rows))) / weight
    order = np.argsort(-key)
    return np.sort(order[:limit]), np.sort(order[limit:])
