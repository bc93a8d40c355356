"""The library and the emulated drivers under the address and undefined-behaviour sanitizers; and the fuzz target."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.native.toolkit import GI, MI, PROGRAMS, REPOSITORY, Container, build_tool, compile_program

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
GOOD = (
    "hcs-quota 1\ncounter 7\nledger ledger\n"
    "card nvidia GPU-5f3c9a1e-0b1d-4c5e-9f00-0123456789ab 17179869184 471859200 00000000:3B:00.0 -\n"
    "card ascend 185011D4-21104518-A0C4ED94-14CC040A-56102003 34359738368 0 - 6\nend 2\n"
)


@pytest.fixture(scope="module")
def sanitized() -> Path:
    """A build of this source tree with sanitizers; kept between sessions under the hash of what it was made of."""
    sources = sorted(
        path for path in (REPOSITORY / "native").rglob("*") if path.suffix in {".c", ".h", ".def", ".map", ".txt"}
    )
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, REPOSITORY / "CMakeLists.txt")))
    build = Path(tempfile.gettempdir()) / f"hcs-sanitized-{os.getuid()}-{digest.hexdigest()[:16]}"
    with build.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers start together
        _build_once(build)
    return build


def _build_once(build: Path) -> None:
    if not (build / "complete").exists():
        shutil.rmtree(build, ignore_errors=True)
        build_tool("-S", str(REPOSITORY), "-B", str(build), "-DHCS_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=None")
        targets = ["hcs_interceptor", "hcs_emulated_cuda", "hcs_emulated_nvml", "quota_fuzz"]
        build_tool("--build", str(build), "--parallel", "2", "--target", *targets)
        (build / "complete").touch()


@pytest.fixture
def watched(container: Container, sanitized: Path) -> Container:
    """A container in which the library is found before the driver, without preloading."""
    container.intercepted = False
    container.variables |= {
        "LD_LIBRARY_PATH": f"{sanitized}/lib:{sanitized}/lib/emulated/nvidia",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    return container


def compile_sanitized(directory: Path, sanitized: Path, source: str) -> Path:
    """The program on road (a), linked to the library first and then to the driver."""
    names = sorted(set(re.findall(r"\b(?:CALL|FIND)\((cu\w+)", (PROGRAMS / source).read_text())))
    header = directory / f"{source}.h"
    header.write_text("".join(f"extern int {name}();\n" for name in names))
    libraries = [str(sanitized / "lib/libhcs_interceptor.so"), str(sanitized / "lib/emulated/nvidia/libcuda.so.1")]
    flags = ("-Wno-strict-prototypes", "-Wno-unused-result", f'-DDIRECT="{header}"', "-Wl,--no-as-needed", *SANITIZERS)
    return compile_program(directory, source, f"{source}-sanitized", *flags, *libraries)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_random_walk_touches_nothing_it_must_not(
    watched: Container, sanitized: Path, programs: Path, seed: int
) -> None:
    card = watched.add_card(total=16 * GI, context=seed % 2 * MI)
    quota = 96 * MI
    watched.limit(quota)
    program = compile_sanitized(programs, sanitized, "walk.c")
    done = watched.run(str(program), str(watched.ledger_path), str(card), str(quota), "2000", str(seed))
    assert done.stdout.startswith("ok "), done.stdout + done.stderr
    assert "ERROR" not in done.stderr
    assert "runtime error" not in done.stderr


def test_threads_that_hammer_touch_nothing_they_must_not(watched: Container, sanitized: Path, programs: Path) -> None:
    card = watched.add_card(total=16 * GI)
    watched.limit(41 * MI)
    program = compile_sanitized(programs, sanitized, "hammer.c")
    done = watched.run(str(program), str(watched.ledger_path), str(card), "16", "10")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[2]) == 0
    assert done.stderr == ""


@pytest.mark.parametrize("count", [20_000, pytest.param(5_000_000, marks=pytest.mark.nightly)])
def test_the_parser_survives_every_mutation(sanitized: Path, tmp_path: Path, count: int) -> None:
    (tmp_path / "good").write_text(GOOD)
    (tmp_path / "small").write_text(GOOD.replace(GOOD.splitlines()[3] + "\n", "").replace("end 2", "end 1"))
    done = subprocess.run(
        [sanitized / "fuzz/quota_fuzz", "1", str(count), tmp_path / "good", tmp_path / "small"],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    accepted, refused = (int(part.split()[1]) for part in done.stdout.split(", "))
    assert accepted + refused == count
    assert min(accepted, refused) > count // 20
