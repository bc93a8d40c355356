"""What sharing a card costs: a job's rate beside another as a fraction of its rate alone, with an interval.

The fraction depends on how much of the card each job keeps busy, which its step time alone, its batch and its card
tell. Trees carry that well because the answer is bounded and nothing is extrapolated; the forest and the boosted trees
each see a pair from both sides. Targets are logarithms, answers are within (0, 1]: sharing does not speed a job up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from xgboost import XGBRegressor

from hcs.predict.table import Floats, Mask, Names
from hcs.predict.trees import DEFAULT, Kind

COVERAGE = 0.90
_FOLDS = 5
_SLOWEST = 1e-3


@dataclass(frozen=True)
class Pairs:
    """Sides of pairs as columns: a job, its partner, the card, the campaign. ``pair`` numbers the pair of a side.

    ``alone`` and ``partner_alone`` are the seconds of one step alone, NaN where unknown.
    """

    model: Names
    batch: Floats
    alone: Floats
    partner: Names
    partner_batch: Floats
    partner_alone: Floats
    card: Names
    campaign: Names
    pair: np.ndarray

    def __len__(self) -> int:
        return len(self.model)

    def take(self, rows: Mask) -> "Pairs":
        """The sides chosen by a mask."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def pairs(rows: Sequence[Mapping[str, str]]) -> tuple[Pairs, Floats]:
    """Both sides of each row of pair measurements, in order, and their normalised rates (NaN where there is none)."""
    sides = [(row, mine, other) for row in rows for mine, other in (("a", "b"), ("b", "a"))]

    def seconds(row: Mapping[str, str], side: str) -> float:
        rate = float(row.get(f"alone_{side}") or "nan")
        return 1.0 / rate if rate > 0 else float("nan")

    alone = np.array([seconds(row, mine) for row, mine, _ in sides])
    shared = np.array([float(row[f"rate_{mine}"]) if row["ran"] == "1" else float("nan") for row, mine, _ in sides])
    asked = Pairs(
        np.array([row[f"model_{mine}"] for row, mine, _ in sides]),
        np.array([float(row[f"batch_{mine}"]) for row, mine, _ in sides]),
        alone,
        np.array([row[f"model_{other}"] for row, _, other in sides]),
        np.array([float(row[f"batch_{other}"]) for row, _, other in sides]),
        np.array([seconds(row, other) for row, _, other in sides]),
        np.array([row["gpu"] for row, _, _ in sides]),
        np.array([row["set"] for row, _, _ in sides]),
        np.arange(len(rows)).repeat(2),
    )
    return asked, np.minimum(shared * alone, 1.0)


@dataclass(frozen=True)
class PairTraining:
    """What a slowdown predictor is made of."""

    rows: Pairs
    rates: Floats
    seed: int = 0
    kind: Kind = DEFAULT


@dataclass(frozen=True)
class Shared:
    """Normalised rate of each side with a 90 % interval, all within (0, 1]."""

    rate: Floats
    low: Floats
    high: Floats


class SlowdownPredictor:
    """Fitted once; ``predict`` answers any number of pairs in one call."""

    def __init__(self, training: PairTraining) -> None:
        """Fit on the sides that have a finite, positive rate."""
        good = np.isfinite(training.rates) & (training.rates > 0)
        if good.sum() < 2 * _FOLDS:
            raise ValueError(f"{int(good.sum())} sides of pairs with a rate; at least {2 * _FOLDS} are needed")
        rows, target = training.rows.take(good), np.log(np.minimum(training.rates[good], 1.0))
        self.training = training
        names = [*rows.model, *rows.partner]
        self.models, self.cards, self.campaigns = np.unique(names), np.unique(rows.card), np.unique(rows.campaign)
        features = self._features(rows)
        draw = np.random.default_rng(training.seed)
        numbers, where = np.unique(rows.pair, return_inverse=True)
        fold = (draw.permutation(len(numbers)) % _FOLDS)[where]
        out, spread = np.zeros(len(rows)), np.zeros(len(rows))
        for held in range(_FOLDS):
            test = fold == held
            out[test], spread[test] = self._answer(self._fit(features[~test], target[~test]), features[test])
        error = np.abs(np.minimum(out, 0.0) - target)
        self.floor = float(np.median(error))
        score = np.sort(error / (spread + self.floor))
        rank = min(len(score) - 1, int(np.ceil(COVERAGE * (len(score) + 1))) - 1)
        self.width = float(score[rank])
        self.cross_validated_error = float(np.mean(np.abs(np.expm1(np.minimum(out, 0.0) - target))))
        self._fitted = self._fit(features, target)

    def predict(self, asked: Pairs) -> Shared:
        """One answer per side."""
        mean, spread = self._answer(self._fitted, self._features(asked))
        mean = np.clip(mean, np.log(_SLOWEST), 0.0)
        reach = self.width * (spread + self.floor)
        return Shared(
            np.exp(mean),
            np.exp(np.maximum(mean - reach, np.log(_SLOWEST))),
            np.exp(np.minimum(mean + reach, 0.0)),
        )

    def _fit(
        self, features: Floats, target: Floats
    ) -> tuple[ExtraTreesRegressor, RandomForestRegressor | XGBRegressor]:
        seed = self.training.seed
        varied = ExtraTreesRegressor(100, max_features=0.6, min_samples_leaf=2, random_state=seed, n_jobs=1)
        main: RandomForestRegressor | XGBRegressor
        if self.training.kind == "forest":
            main = RandomForestRegressor(200, max_features=0.5, random_state=seed, n_jobs=1)
        else:
            main = XGBRegressor(
                n_estimators=500,
                max_depth=4,
                learning_rate=0.05,
                subsample=0.8,
                colsample_bytree=0.6,
                random_state=seed,
                n_jobs=1,
            )
        return varied.fit(features, target), main.fit(features, target)

    @staticmethod
    def _answer(
        fitted: tuple[ExtraTreesRegressor, RandomForestRegressor | XGBRegressor], features: Floats
    ) -> tuple[Floats, Floats]:
        """The main trees' mean; the disagreement of the varied trees says how hard the row is."""
        varied, main = fitted
        votes = np.stack([tree.predict(features.astype(np.float32)) for tree in varied.estimators_])
        return np.asarray(main.predict(features), dtype=np.float64), votes.std(axis=0)

    def _features(self, rows: Pairs) -> Floats:
        own, other = _filled(rows.alone), _filled(rows.partner_alone)
        size = [
            np.log1p(rows.batch),
            own,
            ~np.isfinite(rows.alone),
            np.log1p(rows.partner_batch),
            other,
            ~np.isfinite(rows.partner_alone),
        ]
        names = [
            column == name
            for column, known in (
                (rows.model, self.models),
                (rows.partner, self.models),
                (rows.card, self.cards),
                (rows.campaign, self.campaigns),
            )
            for name in known
        ]
        return np.column_stack([np.asarray(column, dtype=np.float64) for column in size + names])


def _filled(seconds: Floats) -> Floats:
    known = np.isfinite(seconds) & (seconds > 0)
    return np.log(np.where(known, seconds, 1.0))
