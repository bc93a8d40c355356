"""Ways round a quota that somebody might find, and accidents that must not become one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.native.conftest import cuda_probe
from tests.native.test_preload import UNSHARE, _has_namespaces
from tests.native.toolkit import GI, MI, Container, compile_program

from hcs import native


@pytest.fixture
def holes(container: Container, programs: Path) -> Path:
    """The program, and a container with one card."""
    container.add_card()
    return compile_program(programs, "holes.c", "holes", "-Wno-cast-function-type")


def told(container: Container, *command: object, **variables: str) -> list[str]:
    done = container.run(*map(str, command), **variables)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


def test_the_functions_of_the_first_interface_are_charged(container: Container, holes: Path) -> None:
    """Drivers still have cuMemAlloc and its like without a suffix; a program may well use them."""
    container.limit(8 * MI)
    large, small, after, freed, again, pitched, flat, deep, total = told(container, holes, "first", 16 * MI)
    assert (large, small) == ("2", "0")
    assert after == f"{4 * MI} {8 * MI}"
    assert (freed, again) == ("0", f"{8 * MI} {8 * MI}")
    assert (pitched, flat, deep) == ("2", "2", "2")
    assert total == str(8 * MI)


def test_contexts_of_the_first_interface_are_charged(container: Container, holes: Path, programs: Path) -> None:
    container.limit(2 * GI, context=GI)
    assert told(container, holes, "contexts") == ["0", "0"]
    container.limit(3 * GI // 2, context=GI, counter=2)
    assert told(container, holes, "contexts") == ["2"], "the one before it took the room"


@pytest.mark.parametrize("way", ["loader", "loader-version"])
def test_the_loaders_own_functions_cannot_be_had_by_name(container: Container, holes: Path, way: str) -> None:
    """dlsym found in libc by dlsym would not be ours, and would find the driver's functions."""
    container.limit(8 * MI)
    assert told(container, holes, way, 16 * MI) == ["2"]
    assert told(container, holes, way, 8 * MI) == ["0"]


def test_a_capture_on_the_threads_own_stream_is_the_graphs_memory(container: Container, holes: Path) -> None:
    """The functions for the per-thread default stream mean it where they are given none."""
    container.limit(8 * MI)
    assert told(container, holes, "per-thread", 6 * MI) == ["0", "2"]


def test_a_thread_that_jumped_out_of_a_call_is_watched_again(container: Container, holes: Path) -> None:
    container.limit(8 * MI)
    assert told(container, holes, "jump", 16 * MI, HCS_EMULATED_FAIL="cuMemAlloc_v2:1:-10") == ["jumped", "2"]
    assert told(container, holes, "jump", 4 * MI, HCS_EMULATED_FAIL="cuMemAlloc_v2:1:-10") == ["jumped", "0"]


def test_a_driver_in_a_namespace_of_its_own_is_the_driver(container: Container, holes: Path) -> None:
    container.limit(8 * MI)
    assert told(container, holes, "namespace", 16 * MI) == ["2"]
    assert told(container, holes, "namespace", 8 * MI) == ["0"]


def test_a_library_that_brings_a_driver_into_a_namespace_is_refused(
    container: Container, holes: Path, programs: Path
) -> None:
    driver = native.emulated_driver_dir("nvidia")
    flags = ["-shared", "-fPIC", str(driver / "libcuda.so.1"), f"-Wl,-rpath,{driver}"]
    there = compile_program(programs, "there.c", "libthere.so", *flags)
    container.limit(8 * MI)
    [said] = told(container, holes, "namespace-within", 16 * MI, there)
    assert said.startswith("refused ")
    assert "namespace" in said
    assert container.physically_used() == 0


def test_the_ledger_is_never_a_standard_stream(
    container: Container, holes: Path, programs: Path, tmp_path: Path
) -> None:
    """A program that was started with its streams closed must not write into our files, which took their place."""
    watch = compile_program(programs, "lowfiles.c", "liblowfiles.so", "-shared", "-fPIC")
    container.limit(8 * MI)
    note = tmp_path / "note"
    preload = f"{watch}:{native.interceptor_path()}"
    done = container.run(str(holes), "closed", str(4 * MI), LD_PRELOAD=preload, LOW_FILES=str(note))
    assert done.returncode == 0
    assert container.ledger().cards[0].uuid
    assert not note.exists()


@pytest.mark.skipif(not _has_namespaces(), reason="no mount namespace for a user here")
def test_a_ledger_for_which_the_disk_has_no_room_is_refused_with_a_reason(
    container: Container, programs: Path, tmp_path: Path
) -> None:
    """Room is taken before the file is used: a page that cannot be had later would kill the program."""
    container.add_card()
    container.limit(2 * GI)
    small = tmp_path / "small"
    small.mkdir()
    probe = cuda_probe(programs, "dlsym")
    prepare = f"mount -t tmpfs -o size=64k none {small} && cp {container.quota_path} {small}/quota && exec {probe}"
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", prepare],
        env=container.environment() | {"HCS_QUOTA_FILE": str(small / "quota")},
        input="init\ndevice 0\nalloc 4096\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["0", "2", "201"]), done.stderr
    assert "the ledger's disk has no room" in done.stderr


def test_a_ledger_that_was_left_half_made_is_finished(container: Container, programs: Path) -> None:
    """Somebody died, or had no room, before there was anything in it."""
    container.add_card()
    container.limit(2 * GI)
    container.ledger_path.write_bytes(bytes(4096))
    done = container.run(str(compile_program(programs, "holes.c", "holes", "-Wno-cast-function-type")), "plain", "4096")
    assert done.stdout == "0\n", done.stderr


def test_a_ledger_that_could_not_be_opened_for_a_moment_is_opened_later(container: Container, holes: Path) -> None:
    """A program that had used up its files for a moment is not refused until it ends."""
    container.limit(8 * MI)
    assert told(container, holes, "files", 4 * MI) == ["100", "0"]
    assert container.ledger().cards[0].used_bytes == 4 * MI


def test_a_quota_file_that_could_not_be_opened_for_a_moment_is_opened_later(
    container: Container, holes: Path, programs: Path
) -> None:
    without = compile_program(programs, "nofiles.c", "libnofiles.so", "-shared", "-fPIC")
    container.limit(8 * MI)
    environment = {"LD_PRELOAD": f"{without}:{native.interceptor_path()}", "NO_FILES": str(container.quota_path)}
    assert told(container, holes, "plain", 4 * MI, **environment) == ["0"]
    assert told(container, holes, "plain", 16 * MI, **environment) == ["2"]


def test_a_context_with_very_many_allocations_is_destroyed_at_once(container: Container, programs: Path) -> None:
    """All it had is found in one pass over the books."""
    container.add_card()
    container.limit(2 * GI)
    lines = "init\nnewcontext 0\nmany 60000\ndestroycontext 0\ndevice 0\ninfo\n"
    done = subprocess.run(
        [str(cuda_probe(programs, "dlsym"))],
        env=container.environment(),
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == f"0 {2 * GI} {2 * GI}", done.stdout + done.stderr
