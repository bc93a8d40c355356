"""A second opinion on the logarithm of time: a random forest or boosted trees.

Trees see thresholds and combinations the smooth process misses, and cannot extrapolate; so they have a say only where
there is data near by. They learn the time itself, not what the process leaves over: opinions that err apart from each
other are worth averaging, and what was left over had nothing more in it.
"""

from typing import Literal

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from xgboost import XGBRegressor

from hcs.predict.table import Floats, Table

Kind = Literal["forest", "boosted"]
KINDS: tuple[Kind, ...] = ("forest", "boosted")
DEFAULT: Kind = "boosted"
"""The kind that left less error where both were compared; docs/prediction.md has the figures."""


class Trees:
    """Logarithms of time for rows."""

    def __init__(self, kind: Kind, seed: int) -> None:
        """``kind`` chooses the trees, ``seed`` makes them repeatable."""
        self.kind, self.seed = kind, seed

    def fit(self, rows: Table, target: Floats) -> None:
        """Learn the logarithms ``target``."""
        self.models = np.unique(rows.model)
        self.card_names = np.unique(rows.card)
        self.campaigns = np.unique(rows.campaign)
        features = self._features(rows)
        if self.kind == "forest":
            self.regressor = RandomForestRegressor(
                120, min_samples_leaf=3, max_features=0.5, random_state=self.seed, n_jobs=1
            )
        else:
            self.regressor = XGBRegressor(
                n_estimators=200,
                max_depth=5,
                learning_rate=0.06,
                subsample=0.8,
                colsample_bytree=0.7,
                min_child_weight=4,
                reg_lambda=3.0,
                random_state=self.seed,
                n_jobs=1,
            )
        self.regressor.fit(features, target)

    def predict(self, rows: Table) -> Floats:
        """The logarithm of each row's time."""
        return np.asarray(self.regressor.predict(self._features(rows)), dtype=np.float64)

    def _features(self, rows: Table) -> Floats:
        size = [
            np.log1p(rows.batch),
            np.log(rows.cards),
            np.log(rows.nodes),
            np.log(rows.largest),
            np.log(rows.smallest),
        ]
        names = [
            (column == name).astype(np.float64)
            for column, known in (
                (rows.model, self.models),
                (rows.card, self.card_names),
                (rows.campaign, self.campaigns),
            )
            for name in known
        ]
        return np.column_stack(size + names)
