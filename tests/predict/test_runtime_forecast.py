"""Predictions of run time: near for what was measured, honest about what was not, and never nonsense."""

from dataclasses import replace

import numpy as np
import pytest
from tests.predict.worlds import CARDS, error, world

from hcs.predict.novelty import KNOWN, LAYOUT, MODEL, PAIRING, PROBED_MODEL, novelty, probes
from hcs.predict.runtime import RunTimePredictor, Training
from hcs.predict.table import table

ROWS, SECONDS = world()


def without(mask: np.ndarray, **settings: object) -> RunTimePredictor:
    return RunTimePredictor(replace(Training(ROWS.take(~mask), SECONDS[~mask]), **settings))


@pytest.fixture(scope="module")
def predictor() -> RunTimePredictor:
    """Knows all but one layout, one pairing and one model."""
    return without(HELD_LAYOUT | HELD_PAIRING | HELD_MODEL | HELD_ROWS)


HELD_LAYOUT = (ROWS.nodes == 2) & (ROWS.cards == 4)
HELD_PAIRING = (ROWS.model == "speech") & (ROWS.card == "fast")
HELD_MODEL = ROWS.model == "text"
HELD_ROWS = np.random.default_rng(1).random(len(ROWS)) < 0.15


@pytest.mark.parametrize(
    ("held", "most", "covered"),
    [
        pytest.param(HELD_ROWS & ~HELD_LAYOUT & ~HELD_PAIRING & ~HELD_MODEL, 0.06, 0.8, id="row-never-seen"),
        pytest.param(HELD_LAYOUT & ~HELD_PAIRING & ~HELD_MODEL, 0.07, 0.5, id="layout-never-seen"),
        pytest.param(HELD_PAIRING & ~HELD_LAYOUT, 0.15, 0.8, id="pairing-never-seen"),
    ],
)
def test_what_was_kept_back_is_predicted(
    predictor: RunTimePredictor, held: np.ndarray, most: float, covered: float
) -> None:
    forecast = predictor.predict(ROWS.take(held))
    assert error(forecast.seconds, SECONDS[held]) < most
    inside = (forecast.low <= SECONDS[held]) & (SECONDS[held] <= forecast.high)
    assert inside.mean() >= covered


def test_the_interval_widens_with_novelty(predictor: RunTimePredictor) -> None:
    known = ~(HELD_LAYOUT | HELD_PAIRING | HELD_MODEL)
    width = {}
    for name, mask in (("known", known), ("pairing", HELD_PAIRING), ("model", HELD_MODEL)):
        forecast = predictor.predict(ROWS.take(mask))
        width[name] = float(np.median(forecast.high / forecast.low))
    assert width["known"] < width["pairing"] < width["model"]


def test_what_was_measured_exactly_so_is_surer_than_its_neighbour(predictor: RunTimePredictor) -> None:
    held = ~HELD_LAYOUT & ~HELD_PAIRING & ~HELD_MODEL
    seen, beside = (predictor.predict(ROWS.take(held & mask)) for mask in (~HELD_ROWS, HELD_ROWS))
    assert set(seen.novelty) == {"measured"}
    assert set(beside.novelty) == {KNOWN}
    assert np.median(seen.high / seen.low) < np.median(beside.high / beside.low)
    inside = (seen.low <= SECONDS[held & ~HELD_ROWS]) & (SECONDS[held & ~HELD_ROWS] <= seen.high)
    assert 0.8 < inside.mean() <= 1


def test_probe_runs_make_an_unseen_model_known_enough(predictor: RunTimePredictor) -> None:
    held = HELD_MODEL.copy()
    given = np.concatenate([probes(ROWS, np.flatnonzero(HELD_MODEL & (ROWS.card == card)), 1) for card in CARDS])
    blind = predictor
    held[given] = False
    probed = without(held)
    asked, actual = ROWS.take(held), SECONDS[held]
    assert error(probed.predict(asked).seconds, actual) < 0.5 * error(blind.predict(asked).seconds, actual)


def test_levels_of_novelty() -> None:
    measured = ROWS.take(~(HELD_LAYOUT | HELD_PAIRING | HELD_MODEL))
    measured = measured.joined(ROWS.take(np.flatnonzero(HELD_MODEL & (ROWS.card == "slow"))[:2]))
    asked = table(
        ["vision", "vision", "speech", "text", "other"],
        ["fast"] * 5,
        [8.0] * 5,
        [(1,), (2, 2), (1,), (1,), (1,)],
    )
    assert list(novelty(asked, measured)) == [KNOWN, LAYOUT, PAIRING, PROBED_MODEL, MODEL]


def test_the_whole_queue_on_every_card_is_one_call_and_each_row_its_own(predictor: RunTimePredictor) -> None:
    together = predictor.predict(ROWS)
    some = np.arange(0, len(ROWS), 37)
    alone = predictor.predict(ROWS.take(some))
    np.testing.assert_allclose(together.seconds[some], alone.seconds, rtol=1e-6)


@pytest.mark.parametrize("batch", [float("nan"), float("inf"), 1e300, 0.0])
def test_nonsense_in_is_never_nonsense_out(predictor: RunTimePredictor, batch: float) -> None:
    forecast = predictor.predict(table(["vision", "??"], ["fast", "??"], [batch, batch], [(1,), (64,) * 40]))
    for column in (forecast.seconds, forecast.low, forecast.high):
        assert np.isfinite(column).all()
        assert (column > 0).all()
        assert (column < 1e6).all()
    assert (forecast.low <= forecast.seconds).all()
    assert (forecast.seconds <= forecast.high).all()
    assert forecast.fallback.all() == (batch != 0.0)


def test_rows_without_a_real_time_are_left_out_of_training() -> None:
    spoilt = SECONDS.copy()
    spoilt[::7] = [float("nan"), 0.0, -1.0, float("inf")][0]
    forecast = RunTimePredictor(Training(ROWS, spoilt)).predict(ROWS)
    assert error(forecast.seconds, SECONDS) < 0.1


def test_nothing_to_learn_from_is_said() -> None:
    with pytest.raises(ValueError, match="finite, positive time"):
        RunTimePredictor(Training(ROWS.take(np.arange(2)), np.array([0.0, float("nan")])))


def test_a_handful_of_rows_is_enough_to_answer() -> None:
    few = np.arange(3)
    forecast = RunTimePredictor(Training(ROWS.take(few), SECONDS[few])).predict(ROWS.take(few))
    assert error(forecast.seconds, SECONDS[few]) < 0.1


def test_the_exchange_of_gradients_counts_where_it_was_measured() -> None:
    exchange = np.where(ROWS.cards > 1, 0.3 * SECONDS, 1e-4)
    held = HELD_PAIRING
    some = np.flatnonzero(~held)[::2]
    forecast = RunTimePredictor(Training(ROWS.take(some), SECONDS[some], exchange[some])).predict(ROWS.take(held))
    assert error(forecast.seconds, SECONDS[held]) < 0.2


@pytest.mark.parametrize("kind", ["forest", "boosted"])
def test_both_kinds_of_trees_and_the_same_answer_twice(kind: str) -> None:
    some = np.arange(0, len(ROWS), 2)
    twice = [
        RunTimePredictor(Training(ROWS.take(some), SECONDS[some], kind=kind, limit=100)).predict(ROWS)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    np.testing.assert_array_equal(twice[0].seconds, twice[1].seconds)
    assert error(twice[0].seconds, SECONDS) < 0.1


def test_seconds_belong_to_the_mean_rate() -> None:
    """Where much is known that is the middle of the interval; where little is, it lies below it, and stays inside."""
    held = ROWS.model == "text"
    predictor = RunTimePredictor(Training(ROWS.take(~held), SECONDS[~held]))
    for asked, sure in ((ROWS.take(~held), True), (ROWS.take(held), False)):
        told = predictor.predict(asked)
        middle = np.sqrt(told.low * told.high)
        half = np.log(told.high / middle) / 1.645
        np.testing.assert_allclose(told.seconds, middle * np.exp(-(np.minimum(half, 1.0) ** 2) / 2), rtol=1e-9)
        assert (np.median(told.seconds / middle) > 0.97) == sure
        assert (told.low <= told.seconds).all()
