"""What two jobs of the queue do to each other on one card, learnt from the runs of the history that shared one.

A rate is that of sharing by that of running alone, within (0, 1]. Its logarithm is a mean of all, plus what the job
suffers, plus what its partner inflicts, plus the two together, each shrunk to nothing by a prior: two or three shared
runs already say something, and a model never seen gets the mean of all with a wide interval. Where a site measured
hundreds of pairs, ``sharing.SlowdownPredictor`` is the better tool.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from hcs.predict.table import Floats

_TYPICAL, _UNSURE = 0.65, 0.35  # sharing a card equally costs between a half and nothing
_SPREAD = {"suffers": 0.2, "inflicts": 0.2, "both": 0.15}
_NOISE = 0.12
_SLOWEST = 0.05
_REACH = 1.645


class Couple(msgspec.Struct, frozen=True):
    """How a model's rate fell beside another."""

    model: str
    partner: str
    rate: float


class Rate(msgspec.Struct, frozen=True):
    """Normalised rate with a 90 % interval, within (0, 1]."""

    rate: float
    low: float
    high: float


class CoupleRates:
    """Conditioned once on what was seen."""

    def __init__(self, seen: Sequence[Couple]) -> None:
        """Rates are clipped to what sharing can do."""
        together: dict[tuple[str, str], list[float]] = {}
        for couple in seen:
            together.setdefault((couple.model, couple.partner), []).append(couple.rate)
        self.seen = tuple(Couple(*names, float(np.median(rates))) for names, rates in sorted(together.items()))
        rates = np.log(np.clip([couple.rate for couple in self.seen], _SLOWEST, 1.0)) - np.log(_TYPICAL)
        noise = np.array([_NOISE**2 / len(together[couple.model, couple.partner]) for couple in self.seen])
        self._inverse = np.linalg.inv(self._covariance(self.seen, self.seen) + np.diag(noise))
        self._weights = self._inverse @ rates

    def predict(self, model: str, partner: str) -> Rate:
        """The rate of ``model`` beside ``partner``."""
        asked = (Couple(model, partner, 1.0),)
        cross = self._covariance(asked, self.seen)[0]
        mean = np.log(_TYPICAL) + float(cross @ self._weights)
        variance = float(self._covariance(asked, asked)[0, 0] - cross @ self._inverse @ cross) + _NOISE**2
        reach = _REACH * float(np.sqrt(max(variance, 0.0)))
        low, middle, high = np.exp(np.clip([mean - reach, mean, mean + reach], np.log(_SLOWEST), 0.0))
        return Rate(float(middle), float(low), float(high))

    @staticmethod
    def _covariance(left: Sequence[Couple], right: Sequence[Couple]) -> Floats:
        shape = (len(left), len(right))
        same = np.array([[a.model == b.model for b in right] for a in left], dtype=np.float64).reshape(shape)
        other = np.array([[a.partner == b.partner for b in right] for a in left], dtype=np.float64).reshape(shape)
        total: Floats = _UNSURE**2 + _SPREAD["suffers"] ** 2 * same + _SPREAD["inflicts"] ** 2 * other
        return total + _SPREAD["both"] ** 2 * same * other
