"""The analytic part: what a training step costs, from its physics, with a prior for every coefficient.

One card takes ``C = overhead + batch × cost``. Several cards also exchange gradients for ``S`` seconds, partly hidden
behind the computation: ``T = (C^γ + S^γ)^(1/γ)`` with γ ≥ 1, as AdaptDL models it (γ = 1: nothing hidden, γ large: the
longer of the two). Overhead, cost and S are products of a factor of the model, one of the card and a small one of their
pairing, so what is known of a model on one card carries over to another card, and of a card to another model.

The coefficients are Gaussian a priori and the formula is linearised at their best values; so it joins the Gaussian
process of the residual as one more covariance, and its uncertainty reaches the interval. An unknown model is an
unknown coefficient: its prior is its spread, and a probe run narrows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hcs.predict.table import Floats, Mask, Names, Table

# Prior standard deviations, in logarithms (0.7 is a factor of two). Wide where a fleet decides, narrow for pairings.
_SPREAD = {
    "level": 3.0,
    "overhead/model": 0.8,
    "overhead/card": 0.5,
    "overhead/pairing": 0.25,
    "cost/level": 1.5,
    "cost/model": 1.8,
    "cost/card": 0.7,
    "cost/pairing": 0.12,
    "exchange/level": 2.0,
    "exchange/model": 1.2,
    "exchange/card": 0.7,
    "exchange/pairing": 0.2,
    "exchange/shape": 0.7,
    "exchange/card-shape": 0.4,
    "overlap/level": 1.0,
    "overlap/model": 0.5,
    "share/level": 1.0,
}
_SHAPES = 4


@dataclass(frozen=True)
class StepTime:
    """The formula for the names it knows; names it does not know have coefficients of value 0 and full prior spread."""

    models: tuple[str, ...]
    cards: tuple[str, ...]
    reference: Mapping[str, float]  # the smallest batch known of each model

    def design(self, rows: Table) -> "Design":
        """The rows as weights of the coefficients; names never seen share one coefficient, at its prior."""
        return Design(self, rows)

    @property
    def spreads(self) -> Floats:
        """Prior standard deviation of each coefficient."""
        m, g = len(self.models) + 1, len(self.cards) + 1
        sizes = [
            ("level", 1),
            ("overhead/model", m),
            ("overhead/card", g),
            ("overhead/pairing", m * g),
            ("cost/level", 1),
            ("cost/model", m),
            ("cost/card", g),
            ("cost/pairing", m * g),
            ("exchange/level", 1),
            ("exchange/model", m),
            ("exchange/card", g),
            ("exchange/pairing", m * g),
            ("exchange/shape", _SHAPES),
            ("exchange/card-shape", g * _SHAPES),
            ("overlap/level", 1),
            ("overlap/model", m),
            ("share/level", 1),
        ]
        return np.concatenate([np.full(count, _SPREAD[name]) for name, count in sizes])

    @property
    def heavy(self) -> Mask:
        """No coefficient has heavy tails: a time is a sum of parts, and which part is odd cannot be told."""
        return np.zeros(len(self.spreads), dtype=np.bool_)


class Design:
    """Rows ready to be put through the formula at any coefficients."""

    def __init__(self, formula: StepTime, rows: Table) -> None:
        model = one_hot(rows.model, formula.models)
        card = one_hot(rows.card, formula.cards)
        pairing = (model[:, :, None] * card[:, None, :]).reshape(len(rows), model.shape[1] * card.shape[1])
        one = np.ones((len(rows), 1))
        shape = np.column_stack(
            [
                np.log(rows.cards),
                (rows.nodes > 1).astype(float),
                np.log(rows.nodes),
                np.log(rows.largest / rows.smallest),
            ]
        )
        card_shape = (card[:, :, None] * shape[:, None, :]).reshape(len(rows), card.shape[1] * shape.shape[1])
        reference = np.array([formula.reference.get(str(name), 0.0) for name in rows.model])
        self.ratio = np.divide(rows.batch, reference, out=np.ones(len(rows)), where=reference > 0)
        self.ratio = np.where(rows.batch > 0, self.ratio, 0.0)
        self.alone = rows.cards <= 1
        base = np.hstack([one, model, card, pairing])
        self.base = base
        self.exchange = np.hstack([base, shape, card_shape])
        self.overlap = np.hstack([one, model])
        self.share = -np.log(rows.cards)
        self.width = base.shape[1]

    def at(self, coefficients: Floats) -> tuple[Floats, Floats]:
        """Logarithm of the time, and its derivative by each coefficient."""
        k, x = self.width, self.exchange.shape[1]
        a, b = coefficients[:k], coefficients[k : 2 * k]
        c, o = coefficients[2 * k : 2 * k + x], coefficients[2 * k + x : -1]
        level = coefficients[0]
        overhead = np.exp(np.clip(self.base @ a, -30, 30))
        cost = np.exp(np.clip(level + self.base @ b, -30, 30)) * self.ratio
        compute = overhead + cost
        log_c = np.log(compute)
        log_s = np.where(self.alone, -40.0, level - 1.5 + self.exchange @ c)
        excess = np.exp(np.clip(self.overlap @ o, -4, 3))
        gamma = 1.0 + excess
        top = np.logaddexp(gamma * log_c, gamma * log_s)
        share = np.exp(gamma * log_c - top)
        log_t = top / gamma
        by_gamma = np.where(self.alone, 0.0, (share * log_c + (1 - share) * log_s - log_t) / gamma * excess)
        jacobian = np.hstack(
            [
                self.base * (share * overhead / compute)[:, None],
                self.base * (share * cost / compute)[:, None],
                self.exchange * (1 - share)[:, None],
                self.overlap * by_gamma[:, None],
                self.share[:, None],
            ]
        )
        jacobian[:, 0] += share * cost / compute + (1 - share)  # the level moves all three terms
        return log_t + coefficients[-1] * self.share, jacobian


def one_hot(names: Names, known: tuple[str, ...]) -> Floats:
    """One column for each known name and a last one for all others."""
    columns = (names[:, None] == np.array(known, dtype=np.str_)[None, :]).astype(np.float64)
    return np.hstack([columns, 1.0 - columns.sum(axis=1, keepdims=True)])
