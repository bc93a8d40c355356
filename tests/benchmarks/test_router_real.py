"""The end-to-end benchmark: it says what is missing, and on a real control plane both set-ups bind every pod."""

import json
from pathlib import Path

import pytest
from benchmarks.router.__main__ import main
from tests.real.programs import control_plane


def test_a_folder_without_the_programs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kubernetes", str(tmp_path), "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"folder {tmp_path} lacks etcd, kube-apiserver" in said.err


def test_one_size_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--real", "--nodes", "100,200"]) == 2
    assert "one number of nodes" in capsys.readouterr().err


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.timeout(180)
@pytest.mark.xdist_group("sandbox")
def test_both_set_ups_bind_all_pods(capsys: pytest.CaptureFixture[str]) -> None:
    folder = control_plane()
    assert main(["--kubernetes", str(folder), "--nodes", "20", "--pods", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"real"}
    real = found["real"]
    assert (real["nodes"], real["pods"]) == (20, 40)
    assert real["with_per_s"] > 0 < real["without_per_s"]
    # Three decimals: on a busy machine so few pods are heard of all at once, and the ratio is next to nothing.
    assert real["ratio"] == pytest.approx(real["with_per_s"] / real["without_per_s"], rel=0.02, abs=0.001)
