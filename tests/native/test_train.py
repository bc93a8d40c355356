"""examples/train.py: one unchanged file for every vendor, that computes, checkpoints, resumes, and tells the truth."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.native.toolkit import ACL_OUT_OF_MEMORY, GI, OUT_OF_MEMORY, REPOSITORY, Container

from hcs.vendors import emulated

TRAIN = REPOSITORY / "examples/train.py"
Events = list[dict[str, Any]]


@pytest.fixture(params=["nvidia", "ascend"])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    container = Container(tmp_path, request.param)
    container.add_card(total=16 * GI)
    container.limit(4 * GI)
    return container


@pytest.fixture
def train(container: Container) -> Callable[..., tuple[int, Events]]:
    def running(*arguments: str, **variables: str) -> tuple[int, Events]:
        done = subprocess.run(
            [sys.executable, str(TRAIN), *arguments],
            env=container.environment() | variables,
            cwd=container.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stderr == ""
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    return running


Train = Callable[..., tuple[int, Events]]


def test_it_imports_the_standard_library_alone() -> None:
    tree = ast.parse(TRAIN.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_loss_falls_and_the_quota_is_what_the_program_sees(container: Container, train: Train) -> None:
    status, events = train("--steps", "60", "--checkpoint-every", "20")
    assert status == 0
    start, *checkpoints, done = events
    assert start["event"] == "start"
    assert (start["vendor"], start["total_bytes"], start["free_bytes"]) == (container.vendor, 4 * GI, 4 * GI)
    assert start["device"].endswith("(emulated)")
    assert [event["step"] for event in checkpoints] == [20, 40, 60]
    losses = [event["loss"] for event in checkpoints]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 4
    assert done["event"] == "done"
    assert done["sha256"] == start["sha256"] == hashlib.sha256(TRAIN.read_bytes()).hexdigest()
    assert container.used() == container.physically_used() == 0


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(container: Container, train: Train) -> None:
    _, whole = train("--steps", "60", CHECKPOINT_DIR="whole")
    train("--steps", "40")
    (container.directory / "checkpoints/step-000050.json.partial").write_text("{")
    status, events = train("--steps", "60", HCS_RESUME_FROM="checkpoints")
    assert status == 0
    assert events[1] == {"event": "resume", "step": 40, "checkpoint": "checkpoints/step-000040.json"}
    assert events[-1]["loss"] == whole[-1]["loss"]


@pytest.mark.parametrize(
    ("arguments", "variables", "step"),
    [
        pytest.param([], {"HCS_RESUME_FROM": "checkpoints/step-000020.json"}, 20, id="one-checkpoint"),
        pytest.param(["--resume", "auto"], {}, 40, id="the-newest-when-asked"),
        pytest.param(["--resume", "auto"], {"HCS_RESUME_FROM": "checkpoints/step-000020.json"}, 20, id="named-wins"),
        pytest.param([], {}, None, id="not-asked"),
    ],
)
def test_where_it_continues(train: Train, arguments: list[str], variables: dict[str, str], step: int | None) -> None:
    train("--steps", "40")
    _, events = train("--steps", "41", *arguments, **variables)
    resumed = [event["step"] for event in events if event["event"] == "resume"]
    assert resumed == ([] if step is None else [step])


def test_a_checkpoint_to_resume_from_that_is_not_there_is_an_error(train: Train) -> None:
    status, events = train("--steps", "10", HCS_RESUME_FROM="nowhere/step-000010.json")
    assert status == 2
    assert events[-1]["name"] == "FileNotFoundError"


def test_beyond_the_quota_it_reports_the_drivers_own_code(container: Container, train: Train) -> None:
    status, events = train("--steps", "5", "--allocate", "5Gi")
    assert status == 3
    code = OUT_OF_MEMORY if container.vendor == "nvidia" else ACL_OUT_OF_MEMORY
    assert (events[-1]["event"], events[-1]["code"], events[-1]["requested_bytes"]) == ("oom", code, 5 * GI)
    status, events = train("--steps", "5", "--allocate", "5Gi", "--continue-after-oom")
    assert status == 0
    assert [event["event"] for event in events] == ["start", "oom", "checkpoint", "done"]


def test_when_the_card_dies_it_says_so_and_leaves_whole_checkpoints(container: Container) -> None:
    process = subprocess.Popen(
        [sys.executable, str(TRAIN), "--steps", "100000", "--checkpoint-every", "5", "--step-seconds", "0.001"],
        env=container.environment(),
        cwd=container.directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "checkpoint":
                break
        emulated.inject_fault(container.cards[0], 79, "GPU has fallen off the bus")
        last = [json.loads(line) for line in process.stdout][-1]
        assert process.wait(30) == 1
    assert last["event"] == "error"
    assert last["code"] == (999 if container.vendor == "nvidia" else 507899)
    for path in (container.directory / "checkpoints").glob("*.json"):
        assert json.loads(path.read_text())["step"] == int(path.stem.removeprefix("step-"))


def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TRAIN)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    if json.loads(done.stdout.splitlines()[0])["event"] == "start":
        pytest.skip("this machine has a real driver")
    assert done.returncode == 2
    assert json.loads(done.stdout)["name"] == "NoDriver"
