"""``hcs quota``: a program held to its share by hand, seen from outside, and compared with the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.toolkit import REPOSITORY, build_native
from typer.testing import CliRunner

from hcs.cli.main import build

UUID = "GPU-00000000-0000-4000-8000-000000000000"
TRAIN = str(REPOSITORY / "examples/train.py")
Quota = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    build_native()
    return {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "COLUMNS": "120", "PYTHONPATH": str(REPOSITORY / "src")}


@pytest.fixture
def quota(tmp_path: Path, environment: dict[str, str]) -> Quota:
    def running(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hcs.cli.main", "quota", *arguments],
            env=environment | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return running


@pytest.mark.parametrize(
    ("card", "vendor"),
    [(UUID, "nvidia"), ("ascend:3", "ascend")],
)
def test_a_program_gets_its_quota_and_not_more(quota: Quota, card: str, vendor: str) -> None:
    done = quota("run", "--emulated", "--card", f"{card}=2Gi", "--", sys.executable, TRAIN, "--allocate", "3Gi")
    start, oom = map(json.loads, done.stdout.splitlines())
    assert (start["vendor"], start["total_bytes"]) == (vendor, 2 << 30)
    assert (oom["event"], done.returncode) == ("oom", 3)
    assert done.stderr.endswith("emulated\n")


def test_the_exit_code_is_the_programs_and_nothing_is_left(quota: Quota, tmp_path: Path) -> None:
    assert quota("run", "--emulated", "--card", f"{UUID}=1Gi", "--", "sh", "-c", "exit 7").returncode == 7
    assert quota("run", "--emulated", "--card", f"{UUID}=1Gi", "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert quota("run", "--emulated", "--card", f"{UUID}=1Gi", "--", "/no/such").returncode == 127
    assert [path.name for path in tmp_path.glob("hcs-quota-*/*")] == ["emulated"]


def test_several_programs_share_one_card_and_top_sees_them_all(
    quota: Quota, environment: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "import ctypes, sys; d = ctypes.CDLL('libcuda.so.1'); c, p = ctypes.c_void_p(), ctypes.c_uint64(); d.cuInit(0);"
        "d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); d.cuCtxSetCurrent(c);"
        "print(d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(int(sys.argv[1]) << 30)), flush=True); sys.stdin.read()"
    )
    programs = []
    for name, share in (("small", 2), ("large", 5)):
        words = ["quota", "run", "--emulated", "--name", name, "--card", f"{UUID}={share}Gi", "--"]
        programs.append(
            subprocess.Popen(
                [sys.executable, "-m", "hcs.cli.main", *words, sys.executable, "-c", code, str(share - 1)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
    try:
        assert [program.stdout.readline() for program in programs if program.stdout] == ["0\n", "0\n"]
        rows = {row["container"]: row for row in json.loads(quota("top", "--json").stdout)}
        assert {name: (row["quotaBytes"] >> 30, row["usedBytes"] >> 30) for name, row in rows.items()} == {
            "small": (2, 1),
            "large": (5, 4),
        }
        assert [len(row["processes"]) for row in rows.values()] == [1, 1]
        lines = quota("top").stdout.splitlines()
        assert lines[0].split() == ["CONTAINER", "/", "CARD", "/", "PROCESS", "QUOTA", "USED", "OF", "IT", "REFUSED"]
        assert max(map(len, lines)) <= 80
        assert [line.split() for line in lines[1:3]] == [["large"], [UUID, "5Gi", "4Gi", "80", "%", "0"]]
    finally:
        for program in programs:
            program.communicate(timeout=30)
    assert quota("top", "--json").stdout == "[]\n"


def test_verify_finds_ledger_and_driver_in_agreement(quota: Quota) -> None:
    words = ("--emulated", "--card", f"{UUID}=2Gi", "--", sys.executable, TRAIN)
    done = quota("verify", "--json", *words, "--steps", "40", "--step-seconds", "0.005", "--allocate", "1Gi")
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert verdict["agree"]
    assert verdict["cards"][0]["samples"] > 0
    assert verdict["cards"][0]["mostBytes"] >= 1 << 30


def test_verify_notices_a_road_that_is_not_charged(quota: Quota) -> None:
    """By an export table: the driver has more than the books."""
    code = (
        "import ctypes, time; d = ctypes.CDLL('libcuda.so.1'); c, p, t = ctypes.c_void_p(), ctypes.c_uint64(), "
        "ctypes.POINTER(ctypes.c_void_p)(); d.cuInit(0); d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0);"
        "d.cuCtxSetCurrent(c); d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 30));"
        "d.cuGetExportTable(ctypes.byref(t), b'0' * 16);"
        "f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(t[1]);"
        "f(ctypes.addressof(p), 1 << 30); time.sleep(0.3)"
    )
    done = quota("verify", "--emulated", "--card", f"{UUID}=2Gi", "--", sys.executable, "-c", code)
    assert done.returncode == 1
    assert "DIFFER" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--", "true"], "no quota", id="no-card"),
        pytest.param(["--card", f"{UUID}=1Gi"], "no program to run", id="no-program"),
        pytest.param(["--card", f"{UUID}=0", "--", "true"], "a quota of 0", id="zero"),
        pytest.param(["--card", f"{UUID}=-1Gi", "--", "true"], "is negative", id="negative"),
        pytest.param(["--card", f"{UUID}=8GB", "--", "true"], "cannot read", id="unit"),
        pytest.param(["--card", f"{UUID}=99999Ti", "--", "true"], "more than", id="absurd"),
        pytest.param(["--card", UUID, "--", "true"], "cannot read the card", id="no-amount"),
        pytest.param(["--card", "1=8Gi", "--", "true"], "cannot read the card", id="ordinal"),
        pytest.param(["--card", "ascend:x=8Gi", "--", "true"], "cannot read the Ascend card", id="ascend-by-name"),
        pytest.param(["--emulated", "--card", "amd:GPU-1=8Gi", "--", "true"], "no emulated driver", id="no-emulation"),
        pytest.param(["--card", f"{UUID}=1Gi", "--card", f"{UUID}=1Gi", "--", "true"], "stands twice", id="twice"),
        pytest.param(["--name", "a b", "--card", f"{UUID}=1Gi", "--", "true"], "as a name", id="name"),
    ],
)
def test_bad_input_is_refused_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("HCS_ROOT", raising=False)
    done = CliRunner().invoke(build(), ["quota", "run", *arguments], prog_name="hcs")
    assert done.exit_code == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_card_that_is_not_there_is_named_with_those_that_are(quota: Quota, tmp_path: Path) -> None:
    from hcs.vendors.emulated import create_card

    (tmp_path / "root/dev").mkdir(parents=True)
    create_card(tmp_path / "root/dev/nvidia0", vendor="nvidia", model="A100", uuid=UUID, index=0, total_bytes=1 << 30)
    done = quota("run", "--card", "GPU-1=1Gi", "--", "true", HCS_ROOT=str(tmp_path / "root"))
    assert done.returncode == 2
    assert "this machine has no nvidia card GPU-1" in done.stderr
    assert UUID in done.stderr
    assert quota("run", "--card", f"{UUID}=1Gi", "--", "true", HCS_ROOT=str(tmp_path / "root")).returncode == 0


def test_without_shares_top_says_so(quota: Quota) -> None:
    done = quota("top")
    assert (done.stdout, done.returncode) == ("", 0)
    assert "no shares" in done.stderr
