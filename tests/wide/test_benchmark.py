"""The planning benchmark as people call it: its figures, its queues, and what it says to input it cannot use."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.cpn import main

FIGURES = {
    "makespan_h",
    "mean_completion_h",
    "p99_completion_h",
    "longest_wait_h",
    "planning_s",
    "decision_p99_s",
    "lp_bound_h",
}
HEADER = "job,model,batch_size,gpus,steps,submit_s,sec_fast,sec_slow\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = [f"{at},m,8,{1 + at % 2},10,{at * 60},{600 + at},{'' if at % 3 else 1800}\n" for at in range(12)]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(rows))
    return str(path)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


@pytest.mark.parametrize("name", ["fifo", "fifo-exclusive", "binpack", "spread", "easy", "sjf", "ljf", "hcs"])
def test_every_policy_has_its_figures(trace: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "--trace", trace, "--fleet", "fast=2,slow=2", "--policy", name)
    assert found.keys() >= FIGURES
    assert (found["jobs"], found["completed"], found["policy"]) == (12, 12, name)
    assert found["makespan_h"] >= found["lp_bound_h"] > 0


def test_a_generated_queue_shares_cards_unless_told_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--generate", "24", "--gap", "60", "--fleet", "a=2,b=4", "--seed", "1")
    shared, alone = figures(capsys, *asked), figures(capsys, *asked, "--no-sharing")
    assert shared["shared"] > 0 == alone["shared"]
    assert shared["mean_completion_h"] < alone["mean_completion_h"]
    assert figures(capsys, *asked, "--cpu-threshold", "0.1")["shared"] == 0


def test_a_generated_queue_is_written_as_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    assert main(["--generate", "5", "--manifests", str(path), "--seed", "2"]) == 0
    made = list(yaml.safe_load_all(path.read_text()))
    assert [each["kind"] for each in made] == ["Job"] * 5
    assert all(isinstance(value, str) for each in made for value in each["metadata"]["annotations"].values())


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        pytest.param([], None, "name a trace", id="nothing to plan"),
        pytest.param(["--trace", "missing.csv"], None, "missing.csv", id="no such file"),
        pytest.param(["--trace", "TRACE"], "a,b\n1,2\n", "lacks the columns", id="other columns"),
        pytest.param(
            ["--trace", "TRACE"], HEADER + "0,m,8,1,10,0,-5,\n", "not a positive number", id="a negative time"
        ),
        pytest.param(["--trace", "TRACE"], HEADER + "0,m,8,1,10,0,5,\n" * 2, "a job twice", id="a job twice"),
        pytest.param(["--trace", "TRACE", "--fleet", "fast"], HEADER, "BadFleet", id="a fleet without counts"),
        pytest.param(
            ["--trace", "TRACE", "--times", "predicted"], HEADER + "0,m,8,1,10,0,5,\n", "--train", id="nothing to learn"
        ),
        pytest.param(
            ["--trace", "TRACE", "--sharing", "TRACE"], HEADER + "0,m,8,1,10,0,5,\n", "pairs", id="no table of pairs"
        ),
    ],
)
def test_input_that_cannot_be_used_is_told_in_a_sentence(
    arguments: list[str], text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text or "")
    assert main([str(path) if each == "TRACE" else each for each in arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert said in message
