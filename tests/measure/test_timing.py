"""The figure is that of the steady state, whatever the first runs and the disturbed ones took."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.measure.timing import time_work


def runs(*seconds: float):
    it = iter(seconds)
    return lambda: next(it)


def test_slow_beginnings_are_thrown_away():
    ramp = [2.0, 1.8, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1]
    timing = time_work(runs(*ramp, *[1.0] * 40))
    assert (timing.seconds, timing.spread, timing.steady) == (1.0, 0.0, True)
    assert timing.warmups >= len(ramp)


def test_a_disturbed_run_moves_nothing():
    timing = time_work(runs(*[1.0] * 12, 3.0, *[1.0] * 40))
    assert (timing.seconds, timing.steady) == (1.0, True)


def test_what_never_holds_still_is_told_and_ends():
    noise = random.Random(1)
    timing = time_work(lambda: noise.uniform(1, 2), most_runs=60)
    assert not timing.steady
    assert timing.warmups + timing.samples <= 60


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_work_without_a_time_is_an_error(seconds):
    with pytest.raises(ValueError, match="too small"):
        time_work(lambda: seconds)


@given(st.floats(1e-6, 1e3), st.integers(0, 2**32))
def test_small_noise_is_averaged_out(true, seed):
    noise = random.Random(seed)
    timing = time_work(lambda: true * noise.gauss(1, 0.003))
    assert timing.steady
    assert timing.seconds == pytest.approx(true, rel=0.01)
