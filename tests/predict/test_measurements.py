"""Three shapes of tables, recognised by their columns; what cannot be read is named by row and reason."""

import math

import numpy as np
import pytest

from hcs.predict.measurements import MeasurementError, history, measured, shape_of

RATE = {"gpu": "k", "model": "m", "batch_size": "16", "num_gpus": "4", "consolidated": "0", "steps_per_s": "2.5"}
STEP = {"gpu": "k", "model": "m", "local_batch": "16", "nodes": "2", "gpus": "4", "layout": "1-3", "step_s": "0.5"}
RUN = {"model": "m", "kind": "k", "cards": "2", "seconds": "12.5"}


def test_a_rate_is_the_seconds_of_a_step() -> None:
    found = measured([RATE, {**RATE, "consolidated": "1"}, {**RATE, "steps_per_s": "0"}])
    assert found.seconds[:2].tolist() == [0.4, 0.4]
    assert math.isnan(found.seconds[2])
    assert found.rows.nodes.tolist() == [4, 1, 4]
    assert found.exchange is None


def test_a_step_keeps_its_layout_and_its_exchange() -> None:
    found = measured([{**STEP, "sync_s": "0.1"}, {**STEP, "layout": "even", "gpus": "5"}])
    assert found.rows.largest.tolist() == [3, 3]
    assert found.rows.smallest.tolist() == [1, 2]
    assert found.rows.campaign.tolist() == ["", "even"]
    assert found.exchange is not None
    np.testing.assert_equal(found.exchange, [0.1, math.nan])


def test_a_run_needs_little_and_may_say_more() -> None:
    [plain, full] = history(
        [
            RUN,
            {
                **RUN,
                "batch": "8",
                "steps": "100",
                "peak_memory": "1073741824",
                "outcome": "accelerator-oom",
                "nodes": "2",
                "probe": "true",
                "shared_with": "other",
                "finished": "17",
            },
        ]
    )
    assert (plain.batch, plain.steps, plain.peak_memory, plain.outcome) == (None, None, None, "succeeded")
    assert (full.batch, full.steps, full.peak_memory, full.nodes) == (8.0, 100.0, 1 << 30, 2)
    assert (full.outcome, full.probe, full.shared_with, full.finished) == ("accelerator-oom", True, "other", 17)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        pytest.param({**RATE, "batch_size": "many"}, "row 2: batch_size is 'many'; expected a number", id="word"),
        pytest.param({**RATE, "steps_per_s": "inf"}, "row 2: steps_per_s is inf; expected a finite", id="infinite"),
        pytest.param({**RATE, "steps_per_s": "-1"}, "expected a finite number, 0 or more", id="negative"),
        pytest.param({**RATE, "num_gpus": "0"}, "num_gpus is '0'; expected a whole number", id="no-card"),
        pytest.param({**RATE, "model": " "}, "model is empty", id="no-name"),
        pytest.param({**RATE, "num_gpus": "9" * 30}, "expected a whole number from 1", id="huge"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(row: dict[str, str], sentence: str) -> None:
    with pytest.raises(MeasurementError, match=sentence):
        measured([RATE, row])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"layout": "2-3"}, "layout is '2-3' for 4 gpus", id="sum"),
        pytest.param({"layout": "x"}, "layout is 'x'", id="word"),
        pytest.param({"layout": "even", "nodes": "9"}, "4 gpus on 9 nodes", id="nodes"),
    ],
)
def test_a_layout_must_add_up(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(MeasurementError, match=sentence):
        measured([{**STEP, **changes}])


def test_a_run_of_unknown_outcome_is_refused() -> None:
    with pytest.raises(MeasurementError, match="row 1: outcome is 'lost'; expected one of succeeded"):
        history([{**RUN, "outcome": "lost"}])


def test_other_columns_are_refused_with_what_is_expected() -> None:
    with pytest.raises(MeasurementError, match=r"the columns are a, b; expected model, kind, .*\(rates\)"):
        shape_of(["a", "b"])
    with pytest.raises(MeasurementError, match="whole runs"):
        measured([RUN])
