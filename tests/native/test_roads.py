"""Whatever road a program takes into the CUDA driver, it meets the same quota."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.conftest import cuda_probe
from tests.native.toolkit import GI, KI, MI, OUT_OF_MEMORY, Container, Probe, compile_program, gpu_uuid

from hcs import native
from hcs.native.ledger import announce_quota
from hcs.vendors import emulated

Start = Callable[..., Probe]

INVALID_VALUE = 1


def test_exactly_the_quota_is_granted_and_not_one_byte_more(
    container: Container, start: Start, every_road: Path
) -> None:
    container.add_card()
    container.limit(4 * GI)
    probe = start(every_road)
    assert probe.code(f"alloc {4 * GI + 1}") == OUT_OF_MEMORY
    assert probe.code(f"alloc {4 * GI}") == 0
    assert probe.code("alloc 1") == OUT_OF_MEMORY
    assert container.used() == container.physically_used() == 4 * GI
    assert probe.code("free 0") == 0
    assert probe.code("alloc 1") == 0


def test_programs_on_different_roads_share_one_ledger(container: Container, start: Start, programs: Path) -> None:
    container.add_card()
    container.limit(3 * GI)
    probes = [start(cuda_probe(programs, road)) for road in ("direct", "dlsym", "lookup")]
    assert [probe.code(f"alloc {GI}") for probe in probes] == [0, 0, 0]
    assert [probe.code("alloc 1") for probe in probes] == [OUT_OF_MEMORY] * 3
    assert container.used() == 3 * GI


@pytest.mark.parametrize(
    ("command", "taken", "release"),
    [
        pytest.param(f"alloc {3 * MI}", 4 * MI, "free 0", id="large-in-whole-pages"),
        pytest.param("alloc 1000", 1024, "free 0", id="small-in-512-bytes"),
        pytest.param(f"managed {4 * MI}", 4 * MI, "free 0", id="managed"),
        pytest.param("pitch 1000 5000", 6 * MI, "free 0", id="pitch-as-returned"),
        pytest.param(f"create {4 * MI}", 4 * MI, "releasehandle 0", id="physical-memory"),
    ],
)
def test_each_way_to_allocate_is_charged_what_the_driver_takes(
    container: Container, start: Start, every_road: Path, command: str, taken: int, release: str
) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(every_road)
    assert probe.code(command) == 0
    assert container.used() == container.physically_used() == taken
    assert probe.code(release) == 0
    assert container.used() == container.physically_used() == 0
    container.limit(taken - 1 if taken > 1024 else 1023, counter=2)
    assert start(every_road).code(command) == OUT_OF_MEMORY
    assert container.used() == container.physically_used() == 0


def test_memory_that_is_not_on_a_card_is_the_drivers_business(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(2 * MI)
    not_supported = 801
    assert start(probe_program).code(f"createhost {64 * MI}") == not_supported


def test_a_pointer_the_books_do_not_know_is_forwarded_to_the_driver(
    container: Container, start: Start, every_road: Path
) -> None:
    container.add_card()
    container.limit(GI)
    probe = start(every_road)
    assert probe.code("freeraw 4096") == INVALID_VALUE
    assert probe.code("freeraw 0") == 0


def test_the_drivers_own_refusal_gives_the_reservation_back(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card(total=2 * GI)
    container.limit(4 * GI)
    probe = start(probe_program)
    assert probe.code(f"alloc {3 * GI}") == OUT_OF_MEMORY
    assert container.used() == 0


def test_queries_agree_with_the_quota_and_never_go_below_zero(
    container: Container, start: Start, every_road: Path
) -> None:
    container.add_card(total=16 * GI)
    container.limit(4 * GI)
    probe = start(every_road)
    assert probe("totalmem 0") == [0, 4 * GI]
    assert probe("info") == [0, 4 * GI, 4 * GI]
    assert probe.code(f"alloc {3 * GI}") == 0
    assert probe("info") == [0, 1 * GI, 4 * GI]
    container.limit(2 * GI, counter=2)
    announce_quota(container.ledger_path, 2)
    assert probe("info") == [0, 0, 2 * GI]
    assert probe.code("alloc 1") == OUT_OF_MEMORY


def test_a_card_that_others_have_filled_shows_what_is_physically_free(
    container: Container, start: Start, probe_program: Path, tmp_path: Path
) -> None:
    card = container.add_card(total=4 * GI)
    container.limit(3 * GI)
    (tmp_path / "neighbour").mkdir()
    neighbour = Container(tmp_path / "neighbour")
    neighbour.give(card, 0)
    neighbour.intercepted = False
    assert start(probe_program, within=neighbour).code(f"alloc {3 * GI}") == 0
    assert start(probe_program)("info") == [0, 1 * GI, 3 * GI]


def test_who_fails_open_runs_without_a_limit_and_is_told(container: Container, start: Start, every_road: Path) -> None:
    container.add_card(total=8 * GI)
    container.variables |= {"HCS_QUOTA_FILE": "", "HCS_QUOTA_FAIL_OPEN": "1"}
    probe = start(every_road)
    assert probe("info") == [0, 8 * GI, 8 * GI]
    assert probe.code(f"alloc {8 * GI}") == 0
    assert not container.ledger_path.exists()
    assert probe.close().startswith("hcs interceptor: no limit holds, as was chosen: there is no quota file")


def test_the_right_card_is_charged_when_the_visible_devices_are_reordered(
    container: Container, start: Start, every_road: Path
) -> None:
    container.add_card()
    container.add_card()
    container.limit(1 * GI, 6 * GI)
    container.variables["CUDA_VISIBLE_DEVICES"] = "1,0"
    probe = start(every_road)
    assert probe("totalmem 0") == [0, 6 * GI]
    assert probe("totalmem 1") == [0, 1 * GI]
    assert probe.code(f"alloc {5 * GI}") == 0
    assert (container.used(0), container.used(1)) == (0, 5 * GI)
    assert probe.code("device 1") == 0
    assert probe.code(f"alloc {2 * GI}") == OUT_OF_MEMORY
    assert probe.code(f"create {4 * GI} 0") == OUT_OF_MEMORY, "physical memory is charged where it lies"
    assert probe.code(f"create {1 * GI} 0") == 0
    assert (container.used(0), container.used(1)) == (0, 6 * GI)


def test_a_stream_of_another_card_charges_that_card(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.add_card()
    container.limit(1 * GI, 6 * GI)
    probe = start(probe_program)
    assert probe.code("device 1") == 0
    assert probe.code("stream") == 0
    assert probe.code("device 0") == 0
    assert probe.code(f"onstream {4 * GI}") == 0
    assert (container.used(0), container.used(1)) == (0, 4 * GI)


def test_a_card_that_the_file_does_not_name_has_no_quota(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(GI, uuids=[gpu_uuid(77)])
    probe = start(probe_program, initialise=False)
    assert probe.code("init") == 0
    assert probe.code("device 0") == OUT_OF_MEMORY, "not even a context"
    assert probe.code(f"create {2 * MI}") == OUT_OF_MEMORY
    assert "the card is not in the quota file" in probe.close()


def test_a_card_is_found_by_its_bus_id_where_the_uuid_differs(
    container: Container, start: Start, probe_program: Path
) -> None:
    card = container.add_card()
    container.limit(GI, uuids=[gpu_uuid(77)])
    assert emulated.read_card(card).bus_id == "00000000:3B:00.0"
    text = container.quota_path.read_text().replace(" 0 - -\n", " 0 0000:3b:00.0 -\n")
    container.quota_path.write_text(text)
    probe = start(probe_program)
    assert probe.code(f"alloc {GI}") == 0
    assert probe.code("alloc 1") == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        pytest.param(["device 0"], "reset 0", id="primary-reset"),
        pytest.param(["device 0"], "releasedevice 0", id="last-release"),
        pytest.param(["newcontext 0"], "destroycontext 0", id="explicit-destroyed"),
    ],
)
def test_a_context_takes_its_memory_with_it(
    container: Container, start: Start, every_road: Path, begin: list[str], end: str
) -> None:
    container.add_card()
    container.limit(GI)
    probe = start(every_road, initialise=False)
    for command in ["init", *begin]:
        assert probe.code(command) == 0
    assert [probe.code(f"alloc {256 * MI}") for _ in range(4)] == [0, 0, 0, 0]
    assert container.used() == GI
    assert probe.code(end) == 0
    assert container.used() == container.physically_used() == 0


def test_a_contexts_overhead_is_charged_once_per_process(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(GI, context=300 * MI)
    first, second = start(probe_program), start(probe_program)
    assert first("info") == [0, GI - 600 * MI, GI], "both have one"
    assert [first.code(f"alloc {2 * MI}") for _ in range(3)] == [0, 0, 0]
    assert container.used() == 606 * MI
    assert second.code(f"alloc {418 * MI + 2 * MI}") == OUT_OF_MEMORY
    assert second.code(f"alloc {418 * MI}") == 0
    assert container.used() == GI


def test_ten_thousand_small_allocations_are_booked_one_by_one(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(512 * 10_000)
    probe = start(probe_program)
    assert probe("many 20000") == [OUT_OF_MEMORY, 10_000]
    assert container.used() == 512 * 10_000
    assert probe.code("freeall") == 0
    assert container.used() == 0


def test_a_wrong_version_gets_the_drivers_own_answer(container: Container, programs: Path) -> None:
    """Codes and statuses equal those of the bare driver; only hooked functions come from elsewhere."""
    container.add_card()
    container.limit(GI)
    program = str(compile_program(programs, "versions.c", "versions"))
    with_us = container.run(program).stdout.splitlines()
    container.intercepted = False
    without = container.run(program).stdout.splitlines()
    assert [line.split()[:2] for line in with_us] == [line.split()[:2] for line in without]
    assert [line.split()[2:] for line in with_us] == [
        ["interceptor", "cuMemAlloc_v2"],
        ["none", "-"],
        ["none", "-"],
        ["none", "-"],
        ["interceptor", "cuMemAllocAsync_ptsz"],
        ["interceptor", "cuInit"],
        ["interceptor", "cuGetProcAddress"],
        ["none", "-"],
        ["interceptor", "cuMemAlloc"],
    ]


@pytest.mark.parametrize("order", ["middle-first", "interceptor-first"])
def test_rtld_next_means_the_next_after_the_true_caller(container: Container, programs: Path, order: str) -> None:
    container.add_card()
    container.limit(4 * MI)
    end = compile_program(programs, "chain_end.c", "libchainend.so", "-shared", "-fPIC")
    middle = compile_program(programs, "chain.c", "libchain.so", "-shared", "-fPIC")
    driver = native.emulated_driver_dir("nvidia") / "libcuda.so.1"
    program = compile_program(programs, "chain_main.c", "chain", str(end), str(driver))
    preload = [str(middle), str(native.interceptor_path())]
    done = container.run(
        str(program), str(4 * MI), LD_PRELOAD=":".join(preload if order == "middle-first" else preload[::-1])
    )
    assert done.stdout.split() == ["17", "0", str(OUT_OF_MEMORY)], done.stderr


def test_a_deep_bound_plugin_meets_the_quota(container: Container, programs: Path) -> None:
    container.add_card()
    container.limit(4 * MI)
    plugin = compile_program(programs, "plugin.c", "libplugin.so", "-shared", "-fPIC")
    program = compile_program(programs, "deepbind.c", "deepbind")
    answers = [container.run(str(program), str(plugin), str(size)).stdout.strip() for size in (4 * MI, 4 * MI + KI)]
    assert answers == ["0", str(OUT_OF_MEMORY)]


def test_preloading_changes_nothing_for_programs_without_a_driver(container: Container) -> None:
    container.add_card()
    container.limit(GI)
    script = "import ssl, sqlite3, ctypes, subprocess; print(ctypes.CDLL(None).getpid() == __import__('os').getpid())"
    for command in (["/bin/ls", "/"], ["/bin/sh", "-c", "echo $((6 * 7)); exec ls /"], ["python3", "-c", script]):
        with_us = container.run(*command)
        container.intercepted = False
        without = container.run(*command)
        container.intercepted = True
        assert (with_us.stdout, with_us.stderr, with_us.returncode) == (without.stdout, "", 0)
    assert not container.ledger_path.exists(), "a program that takes no device memory writes no books"
    assert os.listdir(container.directory)
