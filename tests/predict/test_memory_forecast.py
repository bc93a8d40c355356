"""Peak memory: a line through what was seen, a margin that shrinks, and floors that never fall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.quantities import GIB
from hcs.predict.memory import CONTEXT, MemoryPredictor, Peak

SEEN = [Peak("vision", batch, 2 * GIB + batch * (GIB // 16)) for batch in (8, 16, 32, 64)]


def test_a_line_is_found_and_the_context_is_asked_for_too() -> None:
    forecast = MemoryPredictor(SEEN).predict("vision", 48)
    assert forecast is not None
    assert forecast.peak == pytest.approx(5 * GIB, rel=0.02)
    assert forecast.low < forecast.peak < forecast.high
    assert forecast.ask == forecast.high + CONTEXT


def test_an_unseen_model_needs_a_probe() -> None:
    assert MemoryPredictor(SEEN).predict("speech", 8) is None


def test_the_margin_shrinks_with_evidence() -> None:
    def margin(count: int) -> float:
        forecast = MemoryPredictor(SEEN[:count]).predict("vision", 8)
        assert forecast is not None
        return forecast.high / forecast.peak

    assert margin(1) > margin(2) > margin(4)


def test_one_observation_may_grow_with_the_batch() -> None:
    forecast = MemoryPredictor(SEEN[:1]).predict("vision", 16)
    assert forecast is not None
    assert forecast.peak == 2 * SEEN[0].bytes


@given(st.integers(1, 128), st.integers(1, 64), st.integers(0, 64))
def test_running_out_raises_the_floor_for_good(batch: int, gibibytes: int, more: int) -> None:
    learned = MemoryPredictor(SEEN).learned(Peak("vision", batch, gibibytes * GIB, exceeded=True))
    after = learned.learned(Peak("vision", 8, GIB)).predict("vision", batch + more)
    assert after is not None
    assert after.high > gibibytes * GIB
    assert after.low <= after.peak <= after.high


def test_absurd_peaks_are_refused() -> None:
    with pytest.raises(ValueError, match="count up"):
        MemoryPredictor([Peak("vision", 8, 0)])
