"""Peak memory of a job on a card, as an interval whose upper end is what the job asks for.

A model needs ``base + sample × batch`` bytes: weights, their gradients and the optimiser's state do not depend on the
batch, activations do. Both are fitted to observed peaks, never below zero. The upper end adds the largest conformal
error seen, a margin that shrinks with evidence, and the context that every process holds on the card. An accelerator
that ran out of memory proves that the job needs more than it was given: that is a floor from then on, and floors never
fall. Host memory (exit code 137) says nothing about the card and is not accepted here.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.optimize import nnls

from hcs.model.quantities import GIB, Bytes

COVERAGE = 0.90
CONTEXT = Bytes(GIB // 2)
_UNSURE = 0.5  # half as much again for the first observation of a model, shrinking with their number
_LOG_ERROR = 0.05


class Peak(msgspec.Struct, frozen=True):
    """The most memory one run of a model held on one card; ``exceeded`` when it ran out of that much."""

    model: str
    batch: int
    bytes: int
    exceeded: bool = False


class MemoryForecast(msgspec.Struct, frozen=True):
    """Bytes on one card: the expected peak, a 90 % interval, and what to ask for with the context included."""

    peak: Bytes
    low: Bytes
    high: Bytes
    ask: Bytes
    observations: int


class MemoryPredictor:
    """Peaks seen so far; a new one is a new predictor, so a decision never sees half of an update."""

    def __init__(self, peaks: Sequence[Peak], *, context: Bytes = CONTEXT) -> None:
        """Peaks that are not positive are refused."""
        for peak in peaks:
            if peak.bytes <= 0 or peak.batch < 0:
                raise ValueError(f"a peak of {peak.bytes} bytes at batch {peak.batch} for {peak.model}: both count up")
        self.peaks = tuple(peaks)
        self.context = context

    def learned(self, peak: Peak) -> "MemoryPredictor":
        """The same with one more observation."""
        return MemoryPredictor([*self.peaks, peak], context=self.context)

    def predict(self, model: str, batch: int) -> MemoryForecast | None:
        """None for a model without any observed peak: it needs an exclusive probe run first."""
        seen = [peak for peak in self.peaks if peak.model == model and not peak.exceeded]
        floor = max((p.bytes for p in self.peaks if p.model == model and p.exceeded and p.batch <= batch), default=0)
        if not seen:
            return None
        batches = np.array([peak.batch for peak in seen], dtype=np.float64)
        observed = np.array([peak.bytes for peak in seen], dtype=np.float64)
        if len(set(batches)) < 2:
            # One batch cannot tell base from sample: all of it may grow with the batch, or none of it.
            largest, at = float(observed.max()), float(batches.max())
            growth = batch / at if at > 0 and batch > at else 1.0
            middle, error = largest * growth, 0.0
        else:
            unit = float(observed.max())
            columns = np.column_stack([np.ones(len(seen)), batches / batches.max()])
            weights, _ = nnls(columns / observed[:, None], np.ones(len(seen)) / unit)
            line = (columns @ weights) * unit
            middle = float(weights[0] + weights[1] * batch / batches.max()) * unit
            error = float(np.max(np.abs(np.log(observed / np.maximum(line, 1.0)))))
        reach = 1.645 * _LOG_ERROR + error + _UNSURE / len(seen)
        # A peak seen at this batch or a smaller one is a fact, and so is a failure.
        fact = max((peak.bytes for peak in seen if peak.batch <= batch), default=0)
        high = max(middle * float(np.exp(reach)), fact, floor * (1 + _LOG_ERROR))
        peak = max(middle, fact, floor)
        return MemoryForecast(
            Bytes(round(peak)),
            Bytes(max(floor, round(middle * float(np.exp(-reach))))),
            Bytes(round(high)),
            Bytes(round(high) + self.context),
            len(seen),
        )
