"""Whether two jobs fit on one card together, learnt only from which pairs ran: no bytes needed.

Memory adds up, so the score does too: each job needs ``base + slope × batch`` of its model, nothing shrinks with the
batch, and a card has a capacity. Those are fitted as a logistic regression with non-negative needs, and the score is
the chance of failure. ``limit`` is the largest score at which no failed pair of a cross-validation was admitted, less a
margin, because running out of memory costs a job and not sharing costs a little time. A job of a model that was
never seen in a pair is never admitted on this evidence.

This only judges pairs whose bytes nobody knows. Where peaks are known, bytes decide.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from hcs.predict.table import Floats, Mask, Names

_FOLDS = 5


@dataclass(frozen=True)
class Couples:
    """Pairs of jobs as columns."""

    model_a: Names
    batch_a: Floats
    model_b: Names
    batch_b: Floats
    card: Names

    def __len__(self) -> int:
        return len(self.card)

    def take(self, rows: Mask) -> "Couples":
        """The pairs chosen by a mask."""
        return Couples(self.model_a[rows], self.batch_a[rows], self.model_b[rows], self.batch_b[rows], self.card[rows])


class FitsTogether:
    """Admits pairs that surely fit."""

    def __init__(self, couples: Couples, ran: Mask, *, seed: int = 0, margin: float = 3.0) -> None:
        """Fit; ``margin`` is how far below the lowest failure, in log-odds, a pair must be."""
        self.models = np.unique([*couples.model_a, *couples.model_b])
        self.cards = np.unique(couples.card)
        self.largest = {
            str(name): float(
                max(
                    np.max(couples.batch_a, where=couples.model_a == name, initial=1.0),
                    np.max(couples.batch_b, where=couples.model_b == name, initial=1.0),
                )
            )
            for name in self.models
        }
        features = self._features(couples)
        fold = np.random.default_rng(seed).permutation(len(couples)) % _FOLDS
        scores = np.zeros(len(couples))
        for held in range(_FOLDS):
            test = fold == held
            if test.any() and not test.all():
                scores[test] = features[test] @ _fitted(features[~test], ran[~test])
        self.out_of_fold = scores
        self.limit = float(scores[~ran].min()) - margin if not ran.all() else 0.0
        self.weights = _fitted(features, ran)

    def scores(self, couples: Couples) -> Floats:
        """Log-odds that a pair fails; infinite for a model or a card never seen."""
        known = np.isin(couples.model_a, self.models) & np.isin(couples.model_b, self.models)
        known &= np.isin(couples.card, self.cards)
        return np.where(known, self._features(couples) @ self.weights, np.inf)

    def admits(self, couples: Couples) -> Mask:
        """True for pairs that may share a card."""
        return self.scores(couples) < self.limit

    def chance(self, couples: Couples) -> Floats:
        """Chance that a pair fails."""
        return np.asarray(expit(self.scores(couples)), dtype=np.float64)

    def _features(self, couples: Couples) -> Floats:
        columns = []
        for name in self.models:
            a, b = couples.model_a == name, couples.model_b == name
            columns.append(a.astype(np.float64) + b)
            columns.append((couples.batch_a * a + couples.batch_b * b) / self.largest[str(name)])
        columns += [-(couples.card == name).astype(np.float64) for name in self.cards]
        return np.column_stack(columns)


def _fitted(features: Floats, ran: Mask) -> Floats:
    sign = np.where(ran, -1.0, 1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        score = features @ weights
        slope = features.T @ (-sign * expit(-sign * score))
        value = float(np.sum(np.logaddexp(0.0, -sign * score)))
        return value + 0.5e-2 * float(weights @ weights), slope + 1e-2 * weights

    found = minimize(
        loss, np.ones(features.shape[1]), jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * features.shape[1]
    )
    return np.asarray(found.x, dtype=np.float64)
