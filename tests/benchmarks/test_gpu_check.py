"""``make gpu-check`` without a card: its logic on the emulated driver, and its words where something is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gpu.check import EMULATED, Bench, CheckError, main, run_checks, sight
from benchmarks.gpu.programs import PROGRAMS, SIGHT, TRAINING, Program
from benchmarks.gpu.report import Row, Setting, page
from tests.native.toolkit import build_native

MI = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    build_native()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Bench(EMULATED, 256 * MI, sys.executable, emulated=True)


@pytest.mark.parametrize("text", [*(program.text for program in PROGRAMS.values()), TRAINING, *SIGHT.values()])
def test_every_program_is_python(text: str) -> None:
    compile(text, "program", "exec")


def test_the_driver_alone_is_filled_to_the_quota(bench: Bench) -> None:
    passed, why, figures = bench.program(PROGRAMS["driver"])
    assert (passed, why) == (True, "")
    assert figures == {"held": 256 * MI, "ledger": 256 * MI, "driver": 256 * MI, "context": 0}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("if code == 2: break", "if code == 2 or held > 100 << 20: break", "bytes left"),
        ('"total": total.value', '"total": 5', "the card said it has 5 bytes"),
        ('"held": held}', '"held": held // 2, "limit": 1 << 40}', "it sized itself for"),
    ],
)
def test_what_is_wrong_is_said(bench: Bench, old: str, new: str, why: str) -> None:
    passed, said, _ = bench.program(Program("", PROGRAMS["driver"].text.replace(old, new)))
    assert not passed
    assert why in said


def test_a_program_that_fails_is_a_failed_check_and_the_others_go_on(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.python = "/bin/false"
    rows = run_checks(bench, {"torch": "not here", "jax": "not here", "cupy": "not here"})
    verdicts = {row.check: row.verdict for row in rows}
    assert (verdicts["driver"], verdicts["two-tenants"]) == ("FAILED", "FAILED")
    assert {name for name, verdict in verdicts.items() if verdict == "left out"} == {
        "pytorch-caching",
        "pytorch-expandable",
        "pytorch-graphs",
        "jax",
        "jax-preallocating",
        "cupy",
        "step-time",
    }
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["passed"] for line in lines] == [False, False]


def test_a_program_that_fails_says_why_in_its_own_words(bench: Bench) -> None:
    with pytest.raises(CheckError, match="exit code 1: ValueError: no such device"):
        bench.program(Program("", "raise ValueError('no such device')"))


def test_a_framework_that_is_missing_or_sees_no_card_is_named(tmp_path: Path) -> None:
    empty = subprocess.run([sys.executable, "-c", "import cupy"], capture_output=True, check=False).returncode
    if empty:
        version, why = sight(sys.executable, "cupy")
        assert version == ""
        assert "CuPy is not installed in" in why
        assert "--python" in why
    blind = tmp_path / "python"
    blind.write_text("#!/bin/sh\necho '[\"2.5.1+cpu\", false]'\n")
    blind.chmod(0o755)
    assert sight(str(blind), "torch") == ("", "PyTorch 2.5.1+cpu sees no card: is it built for CUDA?")


def test_without_a_card_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--card", "GPU-that-nobody-has"]) == 3
    assert "no NVIDIA card GPU-that-nobody-has on this machine" in capsys.readouterr().err


def test_the_page_says_when_on_what_and_by_which_command() -> None:
    setting = Setting(
        "2026-11-21", "H200, 143771 MiB", "580.1", "python -m benchmarks.gpu.check", ["PyTorch 2.9"], 8 << 30, False
    )
    text = page(
        setting, [Row("driver", "passed", "", {"held": 8 << 30}), Row("jax", "left out", "JAX is not installed")]
    )
    for part in ("2026-11-21", "H200", "580.1", "`python -m benchmarks.gpu.check`", "PyTorch 2.9", "on a real card"):
        assert part in text
    assert "| driver | passed | 8192 |" in text
    assert "| jax | left out |  |  |  |  | JAX is not installed |" in text
