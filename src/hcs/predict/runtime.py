"""Run time with an interval, for the whole queue on every card type in one call.

Three opinions are mixed: the structured process on the time itself (best near the data); the same process on the
computation and on the exchange of gradients, added up (best for pairings never measured, because each of the two
carries over in its own way); and trees on what the first leaves over. How much each counts, and how wide the interval
is, is settled for each level of novelty by leaving rows, layouts, pairings and models out of the training data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hcs.predict.exchange import ExchangeTime
from hcs.predict.novelty import KNOWN, LAYOUT, LEVELS, MEASURED, blocks, novelty, probes
from hcs.predict.process import Formula, Process, Settings, learn
from hcs.predict.table import Floats, Index, Mask, Names, Table
from hcs.predict.threads import single_threaded
from hcs.predict.trees import Kind, Trees

COVERAGE = 0.90
_LEARN_ROWS = 350
_PART_ROWS = 1300  # enough for pairings and models, which is what the parts are for
_TREE_ROWS = 1200  # rows beyond the process's limit that the trees also learn from
_REPEATS = 4  # as if the expected difference of repeated runs had been seen so often
_MIXTURES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Half each beyond known pairings: leaving out in closed form flatters the first opinion, whose formula stays where all
# rows put it, so it cannot choose; in refits the mean of the two was steadier than either.
_PART_SHARES = (0.5,)
_MOST_SAMPLES = 1e9  # more samples in a step than any card could hold is a typing mistake


@dataclass(frozen=True)
class Forecast:
    """Seconds per step (or per unit the target was in) with a 90 % interval; ``fallback`` marks rows with no estimate.

    All arrays have one entry per asked row.
    """

    seconds: Floats
    low: Floats
    high: Floats
    novelty: Names
    fallback: Mask


@dataclass(frozen=True)
class Training:
    """What a predictor is made of, and all that its file holds."""

    rows: Table
    seconds: Floats
    exchange: Floats | None = None  # the part spent exchanging gradients, where it was measured
    seed: int = 0
    kind: Kind = "boosted"
    limit: int = 3200
    repeat: float = 0.01  # how much, in logarithms, the same run differs when done again, before any was


class RunTimePredictor:
    """Fitted once off the decision path; ``predict`` only reads."""

    @single_threaded
    def __init__(self, training: Training) -> None:
        """Fit. Rows whose seconds are not finite and positive are left out."""
        good = np.isfinite(training.seconds) & (training.seconds > 0) & np.isfinite(training.rows.batch)
        if not good.any():
            raise ValueError("no row has a finite, positive time; measure at least one run before training")
        self.training = training
        rows, seconds = training.rows.take(good), training.seconds[good]
        self.measured = rows
        draw = np.random.default_rng(training.seed)
        inside, outside = _split(rows, training.limit, draw)
        outside = outside[draw.permutation(len(outside))[:_TREE_ROWS]]
        target = np.log(seconds)
        self.slowest = float(target.max()) + 3.0
        self.fastest = float(target.min()) - 3.0
        used = rows.take(inside)
        self.direct = _fitted(used, target[inside], draw)
        self.parts: _Parts | None = None
        if training.exchange is not None:
            self.parts = _Parts(used, seconds[inside], training.exchange[good][inside], draw)
        self.mixture = dict.fromkeys(LEVELS, 0.0)
        self.width = dict.fromkeys(LEVELS, 1.0)
        self._trees(rows, target, inside, outside)
        self._calibrate(used, target[inside])
        self._measured(used, target[inside])

    @single_threaded
    def predict(self, asked: Table) -> Forecast:
        """One forecast per row. Anything not finite is replaced by the training median, wide, and marked."""
        level = novelty(asked, self.measured)
        absurd = ~((asked.batch >= 0) & (asked.batch <= _MOST_SAMPLES) & (asked.cards >= 1))
        sane = replace(asked, batch=np.where(absurd, 1.0, asked.batch), cards=np.where(absurd, 1.0, asked.cards))
        mean, spread = self._mixed(sane, level)
        width = np.array([self.width[str(name)] for name in level]) * spread
        again = np.isin(_cells(sane), self.cells)
        width = np.where(again, np.minimum(width, self.again), width)
        level = np.where(again, MEASURED, level)
        broken = absurd | ~(np.isfinite(mean) & np.isfinite(width))
        middle = (self.slowest + self.fastest) / 2
        mean = np.clip(np.where(broken, middle, mean), self.fastest, self.slowest)
        width = np.where(broken, (self.slowest - self.fastest) / 2, np.minimum(width, 5.0))
        return Forecast(np.exp(mean), np.exp(mean - width), np.exp(mean + width), level, broken)

    def _mixed(self, asked: Table, level: Names) -> tuple[Floats, Floats]:
        mean, spread = self.direct.predict(asked)
        near = (level == KNOWN) | (level == LAYOUT)
        if self.tree_share > 0 and near.any():
            rows = asked.take(near)
            mean[near] += self.tree_share * self.trees.predict(rows, mean[near])
        if self.parts is not None and not near.all():
            share = np.array([self.mixture[str(name)] for name in level])
            other, other_spread = self.parts.predict(asked)
            mean = np.where(near, mean, (1 - share) * mean + share * other)
            spread = np.where(near, spread, (1 - share) * spread + share * other_spread)
        return mean, spread

    def _trees(self, rows: Table, target: Floats, inside: Index, outside: Index) -> None:
        """Trees on errors of rows the process had not seen: those beyond its limit, or each left out in turn."""
        self.precision = self.direct.precision()
        used = rows.take(inside)
        error = np.zeros(len(inside))
        groups = blocks(used, LAYOUT)
        for block, (wrong, _) in zip(groups, self.direct.left_out(groups, self.precision), strict=True):
            error[block] = wrong
        learnt, wrong_by = used, error
        if len(outside):
            mean, _ = self.direct.predict(rows.take(outside))
            learnt, wrong_by = used.joined(rows.take(outside)), np.concatenate([error, target[outside] - mean])
        truth = np.concatenate([target[inside], target[outside]]) if len(outside) else target[inside]
        opinion = truth - wrong_by
        folds = np.unique(learnt.layout, return_inverse=True)[1] % 5
        out = np.zeros(len(learnt))
        for fold in range(5):
            held = folds == fold
            if held.any() and not held.all():
                trees = Trees(self.training.kind, self.training.seed)
                trees.fit(learnt.take(~held), opinion[~held], wrong_by[~held])
                out[held] = trees.predict(learnt.take(held), opinion[held])
        losses = [float(np.mean(np.abs(np.expm1(share * out - wrong_by)))) for share in _MIXTURES]
        self.tree_losses = dict(zip(_MIXTURES, losses, strict=True))
        self.tree_share = _MIXTURES[int(np.argmin(losses))]
        self.trees = Trees(self.training.kind, self.training.seed)
        if self.tree_share > 0:
            self.trees.fit(learnt, opinion, wrong_by)
        self._tree_gain = out[: len(inside)] * self.tree_share

    def _calibrate(self, used: Table, target: Floats) -> None:
        """Mixture and interval width of each level, from what was left out."""
        for level in LEVELS:
            groups = blocks(used, level)
            if len(groups) < 3:
                self.width[level] = 1.645 if level in (KNOWN, LAYOUT) else 2.0
                self.mixture[level] = 0.5
                continue
            direct = self.direct.left_out(groups, self.precision)
            share = 0.0
            if self.parts is not None and level not in (KNOWN, LAYOUT):
                parts, kept = self.parts.left_out(target, groups)
                direct = [(d[k], s[k]) for (d, s), k in zip(direct, kept, strict=True) if k.any()]
                losses = []
                for candidate in _PART_SHARES:
                    errors = [
                        np.mean(np.abs(np.expm1(-((1 - candidate) * d + candidate * p))))
                        for (d, _), (p, _) in zip(direct, parts, strict=True)
                    ]
                    losses.append(float(np.mean(errors)))
                share = _PART_SHARES[int(np.argmin(losses))]
                direct = [
                    ((1 - share) * d + share * p, (1 - share) * s + share * q)
                    for (d, s), (p, q) in zip(direct, parts, strict=True)
                ]
            self.mixture[level] = share
            gain = self._tree_gain if level in (KNOWN, LAYOUT) else np.zeros(len(used))
            near = level in (KNOWN, LAYOUT)
            corrected = (
                [e - gain[g] for g, (e, _) in zip(groups, direct, strict=True)] if near else [e for e, _ in direct]
            )
            scores = [np.abs(e) / s for e, (_, s) in zip(corrected, direct, strict=True)]
            self.width[level] = _quantile(scores, near)

    def _measured(self, used: Table, target: Floats) -> None:
        """Interval of what was measured exactly so: as certain as repeating it, and as the mean is near it."""
        mean, _ = self._mixed(used, novelty(used, self.measured))
        cells, where, counts = np.unique(_cells(used), return_inverse=True, return_counts=True)
        middle = np.bincount(where, target) / counts
        squares = float(np.sum((target - middle[where]) ** 2)) + _REPEATS * self.training.repeat**2
        again = squares / (len(used) - len(cells) + _REPEATS)
        # A mean of few is unsure itself; what lies between it and the answer is smoothing, right or wrong.
        away = float(np.mean((mean - middle[where]) ** 2))
        self.cells, self.again = cells, 1.645 * float(np.sqrt(again + away))


class _Parts:
    """Computation and exchange as two processes whose times add up."""

    def __init__(self, table: Table, times: Floats, exchanges: Floats, draw: np.random.Generator) -> None:
        self.kept = _thinned(table, _PART_ROWS, draw)
        rows, seconds, exchange = table.take(self.kept), times[self.kept], exchanges[self.kept]
        sync = np.where(np.isfinite(exchange), np.clip(exchange, 1e-5 * seconds, 0.98 * seconds), 1e-4 * seconds)
        several = rows.cards > 1
        # On one card too, where it was measured: that tells how many gradients the model has.
        told = several | (np.isfinite(exchange) & (exchange > 0))
        self.several = np.flatnonzero(told)
        self.compute = _fitted(rows, np.log(seconds - sync), draw)
        self.exchange: Process | None = None
        if several.sum() >= 10:
            known = rows.take(self.several)
            self.exchange = _fitted(known, np.log(sync[self.several]), draw, ExchangeTime(known))
        self.log_sync = np.log(sync)
        self.many = several
        # Where each row of the table is among the rows kept, and where each of those is among those of several cards.
        self.place = np.full(len(table), -1)
        self.place[self.kept] = np.arange(len(self.kept))
        self.place_several = np.full(len(rows), -1)
        self.place_several[self.several] = np.arange(len(self.several))

    def predict(self, asked: Table) -> tuple[Floats, Floats]:
        mean, spread = self.compute.predict(asked)
        if self.exchange is None:
            return mean, spread
        return _added(mean, spread, *self.exchange.predict(asked), asked.cards > 1)

    def left_out(self, target: Floats, groups: Sequence[Index]) -> tuple[list[tuple[Floats, Floats]], list[Mask]]:
        """Errors and spreads of the sum for each group that has rows here, and for every group which rows those are."""
        masks = [self.place[group] >= 0 for group in groups]
        blocks_here = [self.place[group][mask] for group, mask in zip(groups, masks, strict=True) if mask.any()]
        answers = []
        precision = self.exchange.precision() if self.exchange is not None else None
        for block, (wrong, spread) in zip(blocks_here, self.compute.left_out(blocks_here), strict=True):
            mean = self.compute.target[block] - wrong
            several = self.place_several[block]
            inside = several >= 0
            other, other_spread = np.full(len(block), -40.0), np.zeros(len(block))
            if self.exchange is not None and inside.any():
                [(miss, sd)] = self.exchange.left_out([several[inside]], precision)
                other[inside], other_spread[inside] = self.log_sync[block][inside] - miss, sd
            inside = inside & self.many[block]
            total, sd = _added(mean, spread, other, other_spread, inside)
            answers.append((target[self.kept][block] - total, sd))
        return answers, masks


def _cells(rows: Table) -> Names:
    """Everything a row asks, as one name."""
    batch = np.array([f"{value:g}" for value in rows.batch])
    return np.char.add(np.char.add(rows.pairing, np.char.add("\x1f", batch)), np.char.add("\x1f", rows.layout))


def _thinned(rows: Table, limit: int, draw: np.random.Generator) -> Index:
    """At most about ``limit`` rows, every pairing's first probes among them."""
    every = np.arange(len(rows), dtype=np.intp)
    first = [probes(rows, every[rows.pairing == name], 2) for name in np.unique(rows.pairing)]
    return np.unique(np.concatenate([_split(rows, limit, draw)[0], *first]))


def _added(mean: Floats, spread: Floats, other: Floats, other_spread: Floats, both: Mask) -> tuple[Floats, Floats]:
    total = np.where(both, np.logaddexp(mean, other), mean)
    share = np.where(both, np.exp(mean - total), 1.0)
    return total, np.sqrt((share * spread) ** 2 + ((1 - share) * other_spread) ** 2)


def _fitted(rows: Table, target: Floats, draw: np.random.Generator, formula: Formula | None = None) -> Process:
    some, _ = _split(rows, _LEARN_ROWS, draw)
    settings = Settings.first()
    if len(some) >= 20:
        settings = learn(rows.take(some), target[some], steps=30, formula=formula)
    return Process(rows, target, settings, formula=formula)


def _split(rows: Table, limit: int, draw: np.random.Generator) -> tuple[Index, Index]:
    """At most ``limit`` rows, small pairings and probes always whole, and the rest."""
    if len(rows) <= limit:
        return np.arange(len(rows), dtype=np.intp), np.zeros(0, dtype=np.intp)
    pairings, where, counts = np.unique(rows.pairing, return_inverse=True, return_counts=True)
    weight = np.where(counts[where] <= max(3, limit // (4 * len(pairings))), 1e6, 1.0)
    # Weighted draw without replacement: the largest u^(1/w) (Efraimidis and Spirakis, 2006).
    key = np.log(draw.random(len(rows))) / weight
    order = np.argsort(-key)
    return np.sort(order[:limit]), np.sort(order[limit:])


def _quantile(scores: list[Floats], pooled: bool) -> float:
    """The 90 % conformal quantile; groups count equally where they are what is exchangeable."""
    values = np.concatenate(scores)
    weights = np.ones(len(values)) if pooled else np.concatenate([np.full(len(s), 1 / len(s)) for s in scores])
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    level = min(1.0, COVERAGE * (1 + 1 / len(values)))
    return float(values[order][min(int(np.searchsorted(cumulative, level)), len(values) - 1)])
