"""Timing a piece of work until the figure holds still, or saying that it does not.

The first runs are slow: clocks rise, libraries choose their kernels, pages are touched. So runs are thrown away until
two windows in a row agree, and only then counted. The figure is the median, which a run that was disturbed does not
move; the spread is that of the middle four fifths. Pure: the work brings its own clock, which on a card is the card's.
"""

import math
from collections.abc import Callable
from statistics import median
from typing import Final

import msgspec

WINDOW: Final = 4
SAMPLES: Final = 11
SPREAD: Final = 0.03
AGREE: Final = 0.01


class Timing(msgspec.Struct, frozen=True):
    """``seconds`` of one run (median), ``spread`` as a part of it, over ``samples`` runs after ``warmups``.

    ``steady``: the spread is within the limit. Whoever publishes a figure that is not steady is guessing.
    """

    seconds: float
    spread: float
    samples: int
    warmups: int
    steady: bool


def time_work(
    run: Callable[[], float],
    *,
    spread: float = SPREAD,
    most_runs: int = 120,
    samples: int = SAMPLES,
    most_seconds: float = math.inf,
) -> Timing:
    """Run the work again and again until its time is known.

    Args:
        run: does it once, and tells how many seconds it took; above 0.
        spread: how far the middle four fifths of the runs may lie apart, as a part of the median.
        most_runs: after so many runs the figure is what it is.
        samples: how many runs make a figure.
        most_seconds: after so many, by the work's clock, no more is run than makes a figure.

    Raises:
        ValueError: a run took no time: the work is too small for its clock.
    """
    warm: list[float] = []
    spent = 0.0
    while len(warm) < most_runs - samples and spent < most_seconds:
        warm.append(_timed(run))
        spent += warm[-1]
        if len(warm) >= 2 * WINDOW:
            before, now = median(warm[-2 * WINDOW : -WINDOW]), median(warm[-WINDOW:])
            if abs(now - before) <= AGREE * before:
                break
    warmups = len(warm)
    counted = [_timed(run) for _ in range(samples)]
    while _spread(counted) > spread and warmups + len(counted) < most_runs and spent + sum(counted) < most_seconds:
        counted.append(_timed(run))
    found = _spread(counted)
    return Timing(median(counted), found, len(counted), warmups, found <= spread)


def _timed(run: Callable[[], float]) -> float:
    seconds = run()
    if not seconds > 0:
        raise ValueError(f"a run took {seconds} s by its own clock; the work is too small to be timed")
    return seconds


def _spread(samples: list[float]) -> float:
    """The width of the middle four fifths, as a part of the median."""
    ordered = sorted(samples)
    cut = len(ordered) // 10
    inside = ordered[cut : len(ordered) - cut]
    return (inside[-1] - inside[0]) / median(ordered)
