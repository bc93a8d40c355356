"""One ledger per container: shared by its processes, and right whatever happens to them."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.native.conftest import acl_probe
from tests.native.toolkit import (
    ACL_OUT_OF_MEMORY,
    GI,
    INTERCEPTOR_SOURCES,
    MI,
    OUT_OF_MEMORY,
    REPOSITORY,
    Container,
    Probe,
    compile_sources,
)

from hcs.native import ledger as layout

Start = Callable[..., Probe]


@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.nightly)])
def test_processes_that_race_never_exceed_the_quota_together(
    container: Container, start: Start, probe_program: Path, tmp_path: Path, rounds: int
) -> None:
    """The quota holds one allocation: of four racing processes, at most one may have it at any moment."""
    container.add_card()
    container.limit(2 * MI)
    counters = tmp_path / "counters"
    counters.write_bytes(bytes(4096))
    racers = [start(probe_program) for _ in range(4)]
    for racer in racers:
        racer.send(f"race {counters} {rounds} {2 * MI}")
    won = [racer.receive()[1] for racer in racers]
    holding, most = struct.unpack_from("<ii", counters.read_bytes())
    assert (holding, most) == (0, 1)
    assert sum(won) >= 1
    assert container.used() == 0


def test_a_killed_process_gives_its_memory_to_its_successor(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(4 * GI)
    first, second = start(probe_program), start(probe_program)
    assert first.code(f"alloc {3 * GI}") == 0
    assert second.code(f"alloc {2 * GI}") == OUT_OF_MEMORY
    first.kill()
    assert second.code(f"alloc {4 * GI}") == 0
    assert container.used() == 4 * GI


def test_a_killed_process_in_the_middle_of_a_charge_leaves_nothing_behind(
    container: Container, start: Start, probe_program: Path
) -> None:
    """As left by a SIGKILL between the counter and the slot: the counter too high, the slot still in flight."""
    container.add_card()
    container.limit(4 * GI)
    victim = start(probe_program)
    assert victim.code(f"alloc {1 * GI}") == 0
    victim.kill()
    with container.ledger_path.open("r+b") as file:
        _poke(file, layout.CARDS_OFFSET, "<Q", 3 * GI)
        _poke(file, layout.SLOTS_OFFSET + 24, "<I", 1)
    assert start(probe_program).code(f"alloc {4 * GI}") == 0
    assert container.used() == 4 * GI


@pytest.mark.parametrize("name", ["Z", "a b", ") Z 1 (", "x) Z"])
def test_a_zombie_is_dead_and_a_living_process_is_not_whatever_their_names(
    container: Container, start: Start, probe_program: Path, name: str
) -> None:
    container.add_card()
    container.limit(4 * GI)
    first, second = start(probe_program), start(probe_program)
    assert first.code(f"rename {name}") == 0
    assert first.code(f"alloc {4 * GI}") == 0
    assert second.code("alloc 1") == OUT_OF_MEMORY
    first.kill(reap=False)
    assert second.code(f"alloc {4 * GI}") == 0


def test_a_program_whose_main_thread_has_ended_still_holds_its_memory(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(4 * GI)
    headless = start(probe_program, "--leader-leaves")
    assert headless.code(f"alloc {4 * GI}") == 0
    while _state(headless.process.pid) != "Z":  # the main thread is on its way out
        os.sched_yield()
    assert start(probe_program).code("alloc 1") == OUT_OF_MEMORY
    assert container.used() == 4 * GI


def test_a_reused_pid_is_another_process(container: Container, start: Start, probe_program: Path) -> None:
    """The slot's owner is dead and its pid belongs to somebody else: told apart by the start time."""
    container.add_card()
    container.limit(4 * GI)
    namesake = start(probe_program)
    assert namesake.code(f"alloc {4 * GI}") == 0
    with container.ledger_path.open("r+b") as file:
        file.seek(layout.SLOTS_OFFSET + 8)
        (started,) = struct.unpack("<Q", file.read(8))
        _poke(file, layout.SLOTS_OFFSET + 8, "<Q", started - 1)
    assert start(probe_program).code(f"alloc {4 * GI}") == 0


def test_a_forked_child_has_books_of_its_own(tmp_path: Path, start: Start, programs: Path) -> None:
    """AscendCL's emulation lets a child allocate, as real CUDA does not."""
    container = Container(tmp_path / "ascend", "ascend")
    container.add_card()
    container.limit(4 * GI)
    parent = start(acl_probe(programs, "dlsym"), within=container)
    assert parent.code(f"alloc32 {3 * GI}") == 0
    assert parent.code(f"childalloc {2 * GI}") == 1, "the parent's memory counts"
    assert parent.code(f"childalloc {1 * GI - 32}") == 0
    assert parent.code(f"alloc32 {1 * GI}") == 0, "the child is gone, and its memory with it"
    assert parent.code("alloc32 1") == ACL_OUT_OF_MEMORY
    assert container.used() == 4 * GI
    assert [process.used_bytes for process in container.ledger().processes] == [(4 * GI,)]


def test_a_freshly_executed_program_does_not_inherit_charges(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(6 * GI)
    script = f"""
import ctypes, os
driver = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
driver.cuInit(0); driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); driver.cuCtxSetCurrent(context)
assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t({4 * GI})) == 0
os.execv({str(probe_program)!r}, ["probe"])
"""
    probe = start(Path(sys.executable), "-c", script)
    assert probe.code(f"alloc {1 * GI}") == 0
    assert container.used() == 1 * GI
    assert probe.code(f"alloc {5 * GI}") == 0


def test_a_raised_limit_is_noticed_at_the_next_refusal_and_a_lowered_one_when_announced(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(2 * GI)
    probe = start(probe_program)
    assert probe.code(f"alloc {2 * GI}") == 0
    container.limit(4 * GI, counter=2)
    assert probe.code(f"alloc {1 * GI}") == 0
    container.limit(3 * GI, counter=3)
    layout.announce_quota(container.ledger_path, 3)
    assert probe.code("alloc 1") == OUT_OF_MEMORY
    assert probe("info") == [0, 0, 3 * GI]


def test_a_broken_replacement_refuses_until_it_is_mended(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(2 * GI)
    probe = start(probe_program)
    assert probe.code("alloc 1") == 0
    good = container.quota_path.read_text()
    container.quota_path.write_text(good[:-3])
    layout.announce_quota(container.ledger_path, 2)
    assert probe.code("alloc 1") == OUT_OF_MEMORY
    container.quota_path.write_text(good)
    assert probe.code("alloc 1") == 0


BROKEN = {
    "zero": lambda text: text.replace(f" {2 * GI} ", " 0 "),
    "duplicate": lambda text: text.replace("end 1", text.splitlines()[3] + "\nend 2"),
    "empty": lambda text: "",
    "truncated": lambda text: text[: len(text) // 2],
    "last-line-missing": lambda text: text[: text.rindex("end")],
    "negative": lambda text: text.replace(f" {2 * GI} ", f" -{2 * GI} "),
    "other-version": lambda text: text.replace("hcs-quota 1", "hcs-quota 2"),
    "not-text": lambda text: "\0" * 300,
}


@pytest.mark.parametrize("fault", list(BROKEN))
def test_a_broken_quota_file_means_no_memory_not_an_unlimited_card(
    container: Container, start: Start, probe_program: Path, fault: str
) -> None:
    container.add_card()
    container.limit(2 * GI)
    container.quota_path.write_text(BROKEN[fault](container.quota_path.read_text()))
    probe = start(probe_program, initialise=False)
    assert probe.code("init") == 0
    assert probe.code("device 0") == OUT_OF_MEMORY, "not even a context"
    assert probe.code(f"create {2 * MI}") == OUT_OF_MEMORY
    assert probe("totalmem 0") == [0, 16 * GI]
    errors = probe.close()
    assert errors.startswith("hcs interceptor: device memory is refused: ")
    assert errors.count("\n") == 1


def test_a_quota_file_that_is_named_but_missing_refuses(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    assert not container.quota_path.exists()
    probe = start(probe_program, initialise=False)
    assert [probe.code("init"), probe.code("device 0")] == [0, OUT_OF_MEMORY]
    assert "the quota file cannot be opened" in probe.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"x" * layout.LEDGER_BYTES, "not a ledger", id="foreign"),
        pytest.param(b"short", "wrong size", id="wrong-size"),
    ],
)
def test_an_unusable_ledger_refuses(
    container: Container, start: Start, probe_program: Path, content: bytes, reason: str
) -> None:
    container.add_card()
    container.limit(2 * GI)
    container.ledger_path.write_bytes(content)
    probe = start(probe_program, initialise=False)
    assert [probe.code("init"), probe.code("device 0")] == [0, OUT_OF_MEMORY]
    assert reason in probe.close()


def test_a_ledger_of_zeros_is_an_empty_ledger(container: Container, start: Start, probe_program: Path) -> None:
    """The node creates it so, with the owner and mode it wants."""
    container.add_card()
    container.limit(2 * GI)
    container.ledger_path.write_bytes(bytes(layout.LEDGER_BYTES))
    assert start(probe_program).code(f"alloc {2 * GI}") == 0
    assert container.used() == 2 * GI


def test_the_environment_cannot_move_the_limit_where_the_fixed_path_exists(
    container: Container, start: Start, probe_program: Path, programs: Path, tmp_path: Path
) -> None:
    """Built with another fixed path than /etc/hcs/quota: only the build can change it, nothing at run time."""
    container.add_card()
    container.limit(2 * GI)
    fixed = tmp_path / "etc"
    container.interceptor = compile_sources(
        tmp_path,
        INTERCEPTOR_SOURCES,
        "libinterceptor-for-tests.so",
        *("-shared", "-fPIC", "-O2", "-fvisibility=hidden", f'-DHCS_QUOTA_PATH="{fixed}/quota"'),
        f"-Wl,--version-script={REPOSITORY}/native/interceptor/exports.map",
    )
    assert start(probe_program).code(f"alloc {2 * GI}") == 0, "no fixed file: the variable's file holds"
    fixed.mkdir()
    container.quota_path.rename(fixed / "quota")
    container.limit(8 * GI)  # what a user who edits the environment would like
    for variable in (str(container.quota_path), "", "/nowhere"):
        container.variables["HCS_QUOTA_FILE"] = variable
        probe = start(probe_program)
        assert probe("totalmem 0") == [0, 2 * GI]
        assert probe.code(f"alloc {3 * GI}") == OUT_OF_MEMORY
    assert layout.read_ledger(fixed / "ledger").cards[0].refusals == 3


SIZES = st.sampled_from([1, 512, 513, MI - 1, MI, 2 * MI, 2 * MI + 1, 5 * MI, 9 * MI])
STEPS = st.lists(st.tuples(st.integers(0, 2), st.one_of(SIZES, st.just(0))), min_size=1, max_size=40)


@given(steps=STEPS, quota=st.integers(1, 24 * MI))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ledger_card_and_quota_agree_after_every_step(
    tmp_path_factory: pytest.TempPathFactory, probe_program: Path, steps: list[tuple[int, int]], quota: int
) -> None:
    """Three processes allocate (a size) and free their oldest memory (0) in any order."""
    container = Container(tmp_path_factory.mktemp("sequence"))
    container.add_card()
    container.limit(quota)
    probes = [Probe(container, probe_program) for _ in range(3)]
    held: list[list[tuple[int, int]]] = [[] for _ in probes]
    made = [0 for _ in probes]
    used = 0
    try:
        for who, size in steps:
            if size == 0:
                if held[who]:
                    index, taken = held[who].pop(0)
                    assert probes[who].code(f"free {index}") == 0
                    used -= taken
            else:
                unit = 512 if size < MI else 2 * MI
                taken = -(-size // unit) * unit
                fits = used + taken <= quota
                assert probes[who].code(f"alloc {size}") == (0 if fits else OUT_OF_MEMORY)
                if fits:
                    held[who].append((made[who], taken))
                    made[who] += 1
                    used += taken
            if container.ledger_path.exists():
                assert container.used() == container.physically_used() == used <= quota
    finally:
        for probe in probes:
            probe.close()


def test_refusals_are_counted(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(2 * MI)
    probe = start(probe_program)
    assert [probe.code(f"alloc {4 * MI}") for _ in range(3)] == [OUT_OF_MEMORY] * 3
    assert container.ledger().cards[0].refusals == 3


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _poke(file: object, offset: int, form: str, value: int) -> None:
    os.pwrite(file.fileno(), struct.pack(form, value), offset)  # type: ignore[attr-defined]
