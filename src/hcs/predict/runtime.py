"""Run time with an interval, for the whole queue on every card type in one call.

For pairings that were measured, the structured process on the time itself and trees beside it, whose say is as much as
cross-validation gives them; for pairings and models that were not, ``far.Far``. How wide the interval is, is settled
for each level of novelty by leaving rows, layouts, pairings and models out of the training data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hcs.predict.far import Far, near, split
from hcs.predict.novelty import KNOWN, LAYOUT, LEVELS, MEASURED, blocks, novelty
from hcs.predict.table import Floats, Index, Mask, Names, Table
from hcs.predict.threads import single_threaded
from hcs.predict.trees import DEFAULT, KINDS, Kind, Trees

COVERAGE = 0.90
_FAR_ROWS = 1300  # enough for pairings and models
_FOLDS, _CLEARLY = 5, 0.98
_REFIT_ROWS, _REFITS = 250, 10
_REPEATS = 4  # as if the expected difference of repeated runs had been seen so often
MIXTURES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
_NINETY = 1.645  # half a 90 % interval of a normal distribution, in standard deviations
_UNSURE = 1.0  # a deviation of a factor of e; what is unsurer is not a distribution any more, but not knowing
_MOST_SAMPLES = 1e9  # more samples in a step than any card could hold is a typing mistake


@dataclass(frozen=True)
class Forecast:
    """Seconds per step (or per unit the target was in) with a 90 % interval; ``fallback`` marks rows with no estimate.

    ``seconds`` belongs to the mean of the rates: of a logarithm with mean m and deviation s that is exp(m - s²/2).
    Where much is known it is the median; where little is, it lies below, because to be wrong by a factor of two upwards
    is an error of 100 %, downwards one of 50 %. All arrays have one entry per asked row.
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
    kind: Kind = DEFAULT
    limit: int = 3200
    compare: bool = False  # whether ``tree_losses`` holds both kinds of trees
    refits: bool = True  # whether the interval of few rows may cost ten more fits
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
        inside, _ = split(rows, training.limit, draw)
        target = np.log(seconds)
        self.slowest = float(target.max()) + 3.0
        self.fastest = float(target.min()) - 3.0
        used = rows.take(inside)
        self.direct = near(used, target[inside], draw)
        exchange = None if training.exchange is None else training.exchange[good][inside]
        self.far = Far(used, seconds[inside], exchange, _FAR_ROWS, draw)
        self.width = dict.fromkeys(LEVELS, 1.0)
        self._trees(rows, target, inside)
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
        deviation = np.where(broken, 0.0, np.minimum(width / _NINETY, _UNSURE))
        return Forecast(np.exp(mean - deviation**2 / 2), np.exp(mean - width), np.exp(mean + width), level, broken)

    def _mixed(self, asked: Table, level: Names) -> tuple[Floats, Floats]:
        mean, spread = self.direct.predict(asked)
        known = (level == KNOWN) | (level == LAYOUT)
        if self.tree_share > 0 and known.any():
            mean[known] += self.tree_share * (self.trees.predict(asked.take(known)) - mean[known])
        if not known.all():
            mean[~known], spread[~known] = self.far.predict(asked.take(~known))
        return mean, spread

    def _trees(self, rows: Table, target: Floats, inside: Index) -> None:
        """Fit trees, and weigh them against the process: both with a fifth of the layouts left out at a time."""
        self.precision = self.direct.precision()
        used, truth = rows.take(inside), target[inside]
        folds = np.unique(used.layout, return_inverse=True)[1] % _FOLDS
        parts = [part for fold in range(_FOLDS) if 0 < len(part := np.flatnonzero(folds == fold)) < len(used)]
        wrong_by = np.zeros(len(used))
        for part, (wrong, _) in zip(parts, self.direct.left_out(parts, self.precision), strict=True):
            wrong_by[part] = wrong
        self.tree_losses: dict[Kind, tuple[float, ...]] = {}
        self._tree_gain = np.zeros(len(used))
        for kind in KINDS if self.training.compare else (self.training.kind,):
            away = np.zeros(len(used))
            for part in parts:
                rest = np.setdiff1d(np.arange(len(used)), part)
                trees = Trees(kind, self.training.seed)
                trees.fit(used.take(rest), truth[rest])
                away[part] = trees.predict(used.take(part)) - (truth - wrong_by)[part]
            losses = tuple(float(np.mean(np.abs(np.expm1(share * away - wrong_by)))) for share in MIXTURES)
            self.tree_losses[kind] = losses
            if kind == self.training.kind:
                self.tree_share = best_share(losses)
                self._tree_gain = away * self.tree_share
        self.trees = Trees(self.training.kind, self.training.seed)
        if self.tree_share > 0:
            self.trees.fit(rows, target)

    def _calibrate(self, used: Table, target: Floats) -> None:
        """Interval width of each level, from what was left out."""
        for level in LEVELS:
            groups = blocks(used, level)
            known = level in (KNOWN, LAYOUT)
            self.width[level] = _NINETY if known else 2.0
            if len(groups) < 3:
                continue
            if level == KNOWN and self.training.refits and len(used) <= _REFIT_ROWS:
                scores = self._refitted(used, target)
            elif known:
                found = self.direct.left_out(groups, self.precision)
                scores = [np.abs(e - self._tree_gain[g]) / s for g, (e, s) in zip(groups, found, strict=True)]
            else:
                scores = [np.abs(e) / s for e, s in self.far.left_out(target, groups)]
            if scores:
                self.width[level] = _quantile(scores, known)

    def _refitted(self, used: Table, target: Floats) -> list[Floats]:
        """Scores of rows left out a tenth at a time, with settings learnt without them: among few, each one counts."""
        fold = np.random.default_rng(self.training.seed).permutation(len(used)) % _REFITS
        scores = []
        for held in range(_REFITS):
            out = np.flatnonzero(fold == held)
            rest = np.flatnonzero(fold != held)
            level = novelty(used.take(out), used.take(rest))
            out = out[(level == KNOWN) | (level == LAYOUT)]
            if len(out) and len(rest):
                part = near(used.take(rest), target[rest], np.random.default_rng(self.training.seed))
                mean, spread = part.predict(used.take(out))
                scores.append(np.abs(target[out] - mean - self._tree_gain[out]) / spread)
        return scores

    def _measured(self, used: Table, target: Floats) -> None:
        """Interval of what was measured exactly so: as certain as repeating it, and as the mean is near it."""
        mean, _ = self._mixed(used, novelty(used, self.measured))
        cells, where, counts = np.unique(_cells(used), return_inverse=True, return_counts=True)
        middle = np.bincount(where, target) / counts
        squares = float(np.sum((target - middle[where]) ** 2)) + _REPEATS * self.training.repeat**2
        again = squares / (len(used) - len(cells) + _REPEATS)
        # A mean of few is unsure itself; what lies between it and the answer is smoothing, right or wrong.
        away = float(np.mean((mean - middle[where]) ** 2))
        self.cells, self.again = cells, _NINETY * float(np.sqrt(again + away))


def best_share(losses: Sequence[float]) -> float:
    """The share of the least error; none, unless the gain is clear: among few rows a small one is chance."""
    best = int(np.argmin(losses))
    return MIXTURES[best] if losses[best] < _CLEARLY * losses[0] else 0.0


def _cells(rows: Table) -> Names:
    """Everything a row asks, as one name."""
    batch = np.array([f"{value:g}" for value in rows.batch], dtype=np.str_)
    return np.char.add(np.char.add(rows.pairing, np.char.add("\x1f", batch)), np.char.add("\x1f", rows.layout))


def _quantile(scores: list[Floats], pooled: bool) -> float:
    """The 90 % conformal quantile; groups count equally where they are what is exchangeable."""
    values = np.concatenate(scores)
    weights = np.ones(len(values)) if pooled else np.concatenate([np.full(len(s), 1 / len(s)) for s in scores])
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    level = min(1.0, COVERAGE * (1 + 1 / len(values)))
    return float(values[order][min(int(np.searchsorted(cumulative, level)), len(values) - 1)])
