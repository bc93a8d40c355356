"""``hcs cpn train``: what it learns from, what it says about it, and what it refuses, leaving nothing behind."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from hcs.cli.cpn_train import train
from hcs.cli.errors import CommandError
from hcs.model.quantities import GIB
from hcs.predict.jobs import JobPredictor, Run, Work

RUNNER = CliRunner()
RATES = "gpu,model,batch_size,num_gpus,consolidated,steps_per_s\n"
RUNS = "model,kind,batch,cards,steps,seconds,peak_memory,outcome\n"


def app() -> typer.Typer:
    group = typer.Typer(rich_markup_mode=None)
    group.command("train")(train)
    group.callback()(lambda: None)
    return group


def trained(*arguments: str | Path) -> Any:
    return RUNNER.invoke(app(), ["train", *map(str, arguments)], env={"COLUMNS": "80"})


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    path = tmp_path / "rates.csv"
    lines = [
        f"{card},{model},{batch},1,1,{1 / (pace * (cost + 0.001 * batch))}\n"
        for card, pace in (("old", 2.0), ("new", 1.0))
        for model, cost in (("vision", 0.05), ("speech", 0.2))
        for batch in (8, 16, 32)
    ]
    path.write_text(RATES + "".join(lines))
    return path


def test_rates_and_runs_become_one_file_under_the_names_of_the_site(rates: Path, tmp_path: Path) -> None:
    runs = [
        Run("vision", "H1", 8.0, 1, 1000.0, 70.0, 4 * GIB, "succeeded"),
        Run("vision", "H1", 8.0, 1, 1000.0, 5.0, 9 * GIB, "accelerator-oom"),
        Run("vision", "H1", 8.0, 0, 1000.0, 5.0, None, "succeeded"),
    ]
    ended = tmp_path / "ended.jsonl"
    ended.write_bytes(b"\n".join(map(msgspec.json.encode, runs)) + b"\n")
    output = tmp_path / "site.model"
    result = trained(rates, ended, "-o", output, "--rename", "new=H1", "--no-check", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["rows"] == 14
    assert facts["unusable"] == 1
    assert facts["kinds"] == ["H1", "old"]
    assert facts["memoryOf"] == ["vision"]
    assert facts["levels"] == []
    predictor = JobPredictor.decode(output.read_bytes())
    vision = Work("j", "vision", 8.0, 1, 1000.0)
    assert predictor.forecast([vision], ["H1"])[0]["H1"].expected_ms == 70_000
    assert (predictor.memory(vision) or 0) > 9 * GIB
    slow = predictor.forecast([vision], ["old"])[0]["old"].expected_ms
    assert slow == pytest.approx(116_000, rel=0.15)


def test_it_says_what_it_learnt_and_how_well(rates: Path, tmp_path: Path) -> None:
    result = trained(rates, "-o", tmp_path / "m")
    assert result.exit_code == 0, result.output
    for words in ("rows     12", "models   2: speech, vision", "kinds    2: new, old", "boosted", "LEVEL", "probed"):
        assert words in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "it has no rows", id="empty"),
        pytest.param(RATES, "it has no rows", id="header-only"),
        pytest.param("a,b\n1,2\n", "the columns are a, b; expected model, kind", id="columns"),
        pytest.param(RATES + "x,m,8,1,1,fast\n", "row 1: steps_per_s is 'fast'", id="number"),
        pytest.param(RATES + "x,m,8,1,1\n", "row 1 has more or fewer fields", id="short"),
        pytest.param(RATES + "x,m,8,1,1,2,3\n", "row 1 has more or fewer fields", id="long"),
        pytest.param(RUNS + "m,k,8,1,10,5,,lost\n", "row 1: outcome is 'lost'", id="outcome"),
        pytest.param('{"model": "m"}\n', "line 1 is no run", id="json"),
        pytest.param("{broken\n", "line 1 is no run", id="broken-json"),
        pytest.param("m\udcff\udcfe", "no UTF-8 text (byte 1)", id="bytes"),
        pytest.param("\udcff\udcfem\0", "save it as UTF-8", id="utf-16"),
        pytest.param("\x1f\udc8b\x08", "unpack it first", id="gzip"),
        pytest.param("PK\x03\x04", "save the table as CSV", id="spreadsheet"),
        pytest.param('[{"model": "m"}]', "one run on each line", id="a-list"),
        pytest.param(RUNS.replace(",", ";") + "m;k;8;1;10;5;;\n", "separated by semicolons", id="semicolons"),
        pytest.param(RUNS.replace(",", "\t"), "separated by tabs", id="tabs"),
        pytest.param("model,kind,cards,seconds,seconds\nm,k,1,5,5\n", "'seconds' stands there twice", id="twice"),
        pytest.param(RUNS + "m,k,8,1,10,5,lots,\n", "row 1: peak_memory is 'lots'; expected bytes, or", id="memory"),
        pytest.param(RUNS + "m,k,8,1,10,5,-1,\n", "row 1: peak_memory is -1", id="negative"),
        pytest.param(RUNS + "m,k,8,1,10,5,3072,\n", "write its unit, as in 3072Mi", id="no-unit"),
        pytest.param('{"model": "m", "kind": "k", "cards": 1, "seconds": ' + "[" * 9999, "line 1 is no run", id="deep"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    path, output = tmp_path / "history.csv", tmp_path / "m"
    path.write_bytes(text.encode(errors="surrogateescape"))
    result = trained(path, "-o", output)
    assert isinstance(result.exception, CommandError)
    assert why in str(result.exception)
    assert "try:" in str(result.exception)
    assert not output.exists()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\ufeffModel, Kind ,cards,seconds,peak_memory\nm,k,1,5,3Gi\n", id="as-a-spreadsheet-writes-it"),
        pytest.param("model,kind,cards,seconds,peak_memory\nm,k,1,5,3221225472.0\n", id="as-pandas-writes-it"),
        pytest.param('model,kind,cards,seconds,peak_memory,"a\nb"\nm,k,1,5,3Gi,"x\ny"\n', id="lines-within-fields"),
        pytest.param('{"model": "m", "kind": "k", "cards": 1, "seconds": 5, "peak_memory": "3Gi"}\n', id="json"),
        pytest.param(
            '\ufeff{"model": "m", "kind": "k", "cards": 1, "seconds": 5, "peak_memory": 3221225472}', id="json-marked"
        ),
    ],
)
def test_what_is_not_known_of_a_run_may_be_left_out(tmp_path: Path, text: str) -> None:
    path, output = tmp_path / "history", tmp_path / "m"
    path.write_text(text)
    result = trained(path, "-o", output, "--no-check")
    assert result.exit_code == 0, result.output
    (found,) = JobPredictor.decode(output.read_bytes()).runs
    assert found == Run("m", "k", None, 1, None, 5.0, 3 * GIB, "succeeded")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("model,kind,cards,seconds,peak_mem,site\nm,k,1,5,3,x\n", id="csv"),
        pytest.param('{"model":"m","kind":"k","cards":1,"seconds":5,"peak_mem":3,"site":"x"}\n', id="json"),
    ],
)
def test_columns_that_are_not_looked_at_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    result = trained(path, "-o", tmp_path / "m", "--no-check", "--rename", "x=y")
    assert result.exit_code == 0, result.output
    assert f"{path}: not looked at: peak_mem (did you mean peak_memory?), site" in result.stderr
    assert "--rename x=y changed nothing: no row has the kind x" in result.stderr


def test_nothing_that_ended_well_is_nothing_to_learn_from(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text(RUNS + "m,k,8,1,10,5,,failed\n")
    result = trained(path)
    assert isinstance(result.exception, CommandError)
    assert result.exception.what == "nothing to learn from"


def test_what_cannot_be_opened_or_written_is_said(rates: Path, tmp_path: Path) -> None:
    for arguments, what in (
        ([tmp_path / "none.csv"], "cannot read"),
        ([tmp_path], "cannot read"),
        ([rates, "--no-check", "-o", tmp_path / "no" / "m"], "cannot write"),
        ([rates, "--rename", "new"], "cannot rename"),
    ):
        result = trained(*arguments)
        assert isinstance(result.exception, CommandError)
        assert result.exception.what.startswith(what)


def test_a_file_that_stood_there_is_replaced_whole(rates: Path, tmp_path: Path) -> None:
    output = tmp_path / "m"
    output.write_bytes(b"old")
    assert trained(rates, "-o", output, "--no-check").exit_code == 0
    JobPredictor.decode(output.read_bytes())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "rates.csv"]
