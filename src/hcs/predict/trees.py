"""Trees on what the analytic part leaves over: a random forest or boosted trees, on logarithms.

Trees see thresholds and combinations the smooth process misses, and cannot extrapolate; so they only correct it where
there is data near by.
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
    """A correction in logarithms for each row, given the analytic opinion."""

    def __init__(self, kind: Kind, seed: int) -> None:
        """``kind`` chooses the trees, ``seed`` makes them repeatable."""
        self.kind, self.seed = kind, seed

    def fit(self, rows: Table, opinion: Floats, error: Floats) -> None:
        """Learn the error of ``opinion``."""
        self.models = np.unique(rows.model)
        self.card_names = np.unique(rows.card)
        self.campaigns = np.unique(rows.campaign)
        features = self._features(rows, opinion)
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
        self.regressor.fit(features, error)

    def predict(self, rows: Table, opinion: Floats) -> Floats:
        """The correction to add to ``opinion``."""
        return np.asarray(self.regressor.predict(self._features(rows, opinion)), dtype=np.float64)

    def _features(self, rows: Table, opinion: Floats) -> Floats:
        size = [
            np.log1p(rows.batch),
            np.log(rows.cards),
            np.log(rows.nodes),
            np.log(rows.largest),
            np.log(rows.smallest),
            opinion,
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
