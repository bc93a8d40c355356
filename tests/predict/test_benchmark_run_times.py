"""The planning benchmark's run times: near the truth, in the trace's order, and blind to its true times."""

import csv
from pathlib import Path

import pytest
from benchmarks.run_times import run_times
from tests.predict.worlds import world

ROWS, SECONDS = world()


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["gpu", "model", "batch_size", "num_gpus", "consolidated", "steps_per_s"])
        for i in range(0, len(ROWS), 2):
            if ROWS.nodes[i] == 1:
                lines.writerow([ROWS.card[i], ROWS.model[i], ROWS.batch[i], int(ROWS.cards[i]), 1, 1 / SECONDS[i]])
    return path


def test_a_trace_is_told_its_times_by_model_batch_cards_and_steps_alone(train: Path) -> None:
    some = [i for i in range(1, len(ROWS), 9) if ROWS.nodes[i] == 1]
    trace = [
        {
            "job": str(i),
            "model": str(ROWS.model[i]),
            "batch_size": f"{ROWS.batch[i]:g}",
            "gpus": f"{ROWS.cards[i]:g}",
            "steps": "1000",
        }
        for i in some
    ]
    kinds = sorted(set(ROWS.card))
    found = run_times(train, trace, kinds)
    assert run_times(train, [{**row, f"sec_{kinds[0]}": "1"} for row in trace], kinds) == found
    misses = []
    for i, times in zip(some, found, strict=True):
        told = times[str(ROWS.card[i])]
        misses.append(abs(told.expected / 1e6 / SECONDS[i] - 1))
        assert all(time.expected <= time.upper for time in times.values())
    assert sum(misses) / len(misses) < 0.15


def test_what_cannot_be_read_is_said(train: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lacks the columns steps"):
        run_times(train, [{"model": "m", "batch_size": "1", "gpus": "1"}], ["fast"])
    broken = tmp_path / "broken.csv"
    broken.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"broken\.csv: the columns are a, b"):
        run_times(broken, [{"model": "m", "batch_size": "1", "gpus": "1", "steps": "1"}], ["fast"])
