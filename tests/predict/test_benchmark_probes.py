"""The benchmark gives as probes what it says, scores nothing it gave, and refuses files with a sentence."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.predict.worlds import world

from benchmarks import predictor, predictor_splits, sharing

ROWS, SECONDS = world()


def test_probes_are_the_smallest_single_card_runs_of_what_is_unseen() -> None:
    known = ROWS.take((ROWS.model != "text") & ~((ROWS.model == "tiny") & (ROWS.card == "fast")))
    per_model = ROWS.take(predictor.given(known, ROWS, 2, "model"))
    assert sorted(per_model.model) == ["text", "text", "tiny", "tiny"]
    assert (per_model.cards == 1).all()
    assert per_model.batch.max() <= 16
    per_pairing = ROWS.take(predictor.given(known, ROWS, 2, "pairing"))
    assert len(per_pairing) == 2 + 4 * 2
    assert len(predictor.given(ROWS, ROWS, 2, "model")) == 0


def _written(path: Path, keep: np.ndarray) -> Path:
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["gpu", "model", "batch_size", "num_gpus", "consolidated", "steps_per_s", "split"])
        for i in np.flatnonzero(keep):
            side = int(ROWS.nodes[i] == 1)
            group = "odd" if i % 2 else "even"
            lines.writerow(
                [ROWS.card[i], ROWS.model[i], ROWS.batch[i], int(ROWS.cards[i]), side, 1 / SECONDS[i], group]
            )
    return path


def test_a_file_is_scored_by_its_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = np.arange(len(ROWS)) % 3 == 0
    train, test = _written(tmp_path / "train.csv", ~some), _written(tmp_path / "test.csv", some)
    assert predictor.main(["--set", "gavel", "--train", str(train), "--test", str(test), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mape_pct"] < 15
    assert set(found["by_group"]) == {"odd", "even"}
    assert sum(group["rows"] for group in found["by_group"].values()) == found["rows"] == some.sum()


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "gpu,model,batch_size,num_gpus,consolidated,steps_per_s\nx,y,z,1,1,1\n"]
)
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert predictor.main(["--set", "gavel", "--train", str(path), "--test", str(path), "--json"]) == 2
    assert "cannot score" in capsys.readouterr().err
    assert sharing.main(["--pairs", str(tmp_path / "none.csv")]) == 2


def test_every_split_of_a_kind_is_scored_and_the_mean_is_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = (ROWS.cards == 1) & (ROWS.batch < 64)
    file = str(_written(tmp_path / "train.csv", some))
    assert predictor_splits.main(["--set", "gavel", "--train", file, "--leave-out", "model", "--probes", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["splits"]) == set(ROWS.model)
    assert found["mape_pct"] == pytest.approx(np.mean([s["mape_pct"] for s in found["splits"].values()]), abs=0.01)
    # Every row lies on one card: there is no layout to leave out.
    assert predictor_splits.main(["--set", "gavel", "--train", file, "--leave-out", "layout"]) == 2
    assert "cannot split" in capsys.readouterr().err
    assert predictor_splits.main(["--set", "gavel", "--train", str(tmp_path / "no"), "--leave-out", "rows"]) == 2


def test_the_textbook_is_a_fair_opponent_that_uses_its_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(_written(tmp_path / "train.csv", (ROWS.cards == 1) & (ROWS.batch < 64)))
    told = {}
    for leave, probes in (("rows", "0"), ("model", "0"), ("model", "2")):
        wanted = ["--set", "gavel", "--train", file, "--leave-out", leave, "--probes", probes, "--method", "textbook"]
        assert predictor_splits.main(wanted) == 0
        told[leave, probes] = json.loads(capsys.readouterr().out)["mape_pct"]
    assert told["rows", "0"] < 20
    assert told["model", "2"] < told["model", "0"] / 2
