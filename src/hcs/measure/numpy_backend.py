"""Timed work on the processor, where no framework for cards is installed: the suite runs, no card is measured."""

import time
from collections.abc import Sequence

import numpy as np

from hcs.measure.backends import BackendError, Precision, Unit


class NumpyBackend:
    """The machine's own processor through NumPy, in FP32."""

    is_card = False
    vendors = frozenset[str]()

    @property
    def name(self) -> str:
        """What it is."""
        return f"numpy {np.__version__} on the processor"

    def units(self) -> Sequence[Unit]:
        """The one processor."""
        return [Unit(0, "processor")]

    def precisions(self, unit: int) -> Sequence[Precision]:
        """FP32: the others are not done by hardware here."""
        return ["fp32"]

    def multiply(self, unit: int, size: int, precision: Precision, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        if precision != "fp32":
            raise BackendError(f"NumPy multiplies {precision} without hardware; that says nothing")
        left = np.ones((size, size), dtype=np.float32)
        out = np.empty_like(left)
        start = time.perf_counter()
        for _ in range(repeats):
            np.matmul(left, left, out=out)
        return time.perf_counter() - start

    def copy(self, unit: int, amount: int, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        source = np.zeros(amount, dtype=np.uint8)
        target = np.ones_like(source)
        start = time.perf_counter()
        for _ in range(repeats):
            np.copyto(target, source)
        return time.perf_counter() - start

    def copy_to(self, unit: int, other: int, amount: int, repeats: int) -> float | None:
        """There is no other."""
        return None

    def clocks(self, unit: int) -> dict[str, int]:
        """Nobody tells."""
        return {}

    def driver(self) -> str:
        """There is none."""
        return ""
