"""The analytic part of exchanging gradients: its logarithm is a sum of what the model, the card and the layout add.

How much a model exchanges is the number of its parameters, which a run on one card tells too: even alone a program
goes through all its gradients, and what that takes is recorded as synchronisation. So rows on one card are part of the
same formula, with an offset of their own; the model's term is common to both. A probe on one card then says how heavy
the exchange between cards will be, which its step time never could.
"""

import numpy as np

from hcs.predict.steptime import one_hot
from hcs.predict.table import Floats, Mask, Table

# Prior standard deviations, in logarithms.
_SPREAD = {
    "level": 3.0,
    "model": 1.2,
    "card": 0.7,
    "pairing": 0.15,
    "alone/level": 4.0,
    "alone/model": 0.3,
    "alone/card": 0.5,
    "alone/pairing": 0.15,
    "shape": 0.7,
    "card-shape": 0.4,
}


class ExchangeTime:
    """The formula for the names it knows; others have coefficients of value 0 and full prior spread."""

    def __init__(self, rows: Table) -> None:
        self.models = tuple(sorted({str(name) for name in rows.model}))
        self.cards = tuple(sorted({str(name) for name in rows.card}))

    def design(self, rows: Table) -> "Linear":
        """The rows as weights of the coefficients."""
        return Linear(np.hstack([block for _, block in self._blocks(rows)]))

    @property
    def spreads(self) -> Floats:
        """Prior standard deviation of each coefficient."""
        return np.concatenate([np.full(count, _SPREAD[name]) for name, count in self._sizes()])

    @property
    def heavy(self) -> Mask:
        """Pairings: what a model exchanges is the same on every card, but where something else takes the time."""
        return np.concatenate([np.full(count, name == "pairing") for name, count in self._sizes()])

    def _sizes(self) -> list[tuple[str, int]]:
        m, g = len(self.models) + 1, len(self.cards) + 1
        return [
            ("level", 1),
            ("model", m),
            ("card", g),
            ("pairing", m * g),
            ("alone/level", 1),
            ("alone/model", m),
            ("alone/card", g),
            ("alone/pairing", m * g),
            ("shape", 4),
            ("card-shape", 4 * g),
        ]

    def _blocks(self, rows: Table) -> list[tuple[str, Floats]]:
        model, card = one_hot(rows.model, self.models), one_hot(rows.card, self.cards)
        alone = (rows.cards <= 1).astype(np.float64)[:, None]
        shape = np.column_stack(
            [
                np.log(rows.cards),
                (rows.nodes > 1).astype(np.float64),
                np.log(rows.nodes),
                np.log(rows.largest / rows.smallest),
            ]
        )
        return [
            ("level", np.ones((len(rows), 1))),
            ("model", model),
            ("card", card),
            ("pairing", (1 - alone) * _products(model, card)),
            ("alone/level", alone),
            ("alone/model", alone * model),
            ("alone/card", alone * card),
            ("alone/pairing", alone * _products(model, card)),
            ("shape", shape),
            ("card-shape", _products(card, shape)),
        ]


class Linear:
    """A formula without curvature."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    def at(self, coefficients: Floats) -> tuple[Floats, Floats]:
        """Value and derivative at any coefficients."""
        return self.weights @ coefficients, self.weights


def _products(left: Floats, right: Floats) -> Floats:
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), left.shape[1] * right.shape[1]))
