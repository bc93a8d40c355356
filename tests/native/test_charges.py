"""Every way to take memory of a card is charged what the driver takes of it, once, and given back once.

The emulated driver keeps its own books; after each step the ledger says the same as the card.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.conftest import probe_of
from tests.native.toolkit import GI, KI, MI, OUT_OF_MEMORY, Container, Probe

Start = Callable[..., Probe]

# (commands that take memory, bytes they take, commands that give it back)
CLASSES = {
    "linear-large": (["alloc 3145728"], 4 * MI, ["free 0"]),
    "linear-small": (["alloc 1000"], 1024, ["free 0"]),
    "managed": ([f"managed {4 * MI}"], 4 * MI, ["free 0"]),
    "pitch": (["pitch 1000 5000"], 6 * MI, ["free 0"]),
    "array": (["array 1024 1024"], 4 * MI, ["freearray 0"]),
    "array-of-odd-size": (["array 100 1"], 3584, ["freearray 0"]),
    "array-3d": (["array3d 256 256 16"], 4 * MI, ["freearray 0"]),
    "mipmapped": (["mipmap 1024 1024 4"], 6 * MI, ["freemipmap 0"]),
    "physical": ([f"create {4 * MI}"], 4 * MI, ["releasehandle 0"]),
    "stream-ordered": ([f"async {3 * MI}"], 4 * MI, ["freeasync 0", "sync"]),
    "stream-ordered-freed-at-once": ([f"async {3 * MI}"], 4 * MI, ["free 0"]),
    "stream-of-its-own": (["stream", f"onstream {4 * MI}"], 4 * MI, ["freeasync 0", "syncstream"]),
    "waited-for-by-event": ([f"async {4 * MI}"], 4 * MI, ["freeasync 0", "syncevent"]),
    "pool-of-its-own": (["poolcreate 0 0", f"frompool {4 * MI}"], 4 * MI, ["freeasync 0", "sync"]),
    "pool-made-current": (["poolcreate 0 0", "poolset 0", f"async {4 * MI}"], 4 * MI, ["freeasync 0", "sync"]),
    "pool-destroyed-with-memory-in-it": (
        ["poolcreate 0 0", f"frompool {4 * MI}", "pooldestroy 0"],
        4 * MI,
        ["freeasync 0"],
    ),
    "pool-that-keeps-what-is-freed": (
        ["pooldefault 0 0", f"threshold 0 {GI}", f"async {4 * MI}", "freeasync 0", "sync"],
        4 * MI,
        ["trim 0 0"],
    ),
    "module": ([f"module {5 * MI}"], 6 * MI, ["unload 0"]),
    "module-with-options": ([f"moduleex {5 * MI}"], 6 * MI, ["unload 0"]),
    "fat-binary": ([f"fatbinary {5 * MI}"], 6 * MI, ["unload 0"]),
    "library": ([f"library {5 * MI}"], 6 * MI, ["unloadlibrary 0"]),
    "graph": ([f"graph {3 * MI}", "launch 0", "launch 0"], 4 * MI, ["destroygraph 0", "graphtrim 0"]),
    "graph-by-generic-node": ([f"graphnode {3 * MI}", "launch 0"], 4 * MI, ["destroygraph 0", "graphtrim 0"]),
    "graph-captured": (["stream", f"capture {3 * MI}", "launch 0"], 4 * MI, ["destroygraph 0", "graphtrim 0"]),
}
MEASURED = (
    "module",
    "module-with-options",
    "fat-binary",
    "library",
    "graph",
    "graph-by-generic-node",
    "graph-captured",
)


def run(probe: Probe, commands: list[str]) -> list[int]:
    return [probe.code(command) for command in commands]


@pytest.mark.parametrize("kind", list(CLASSES))
def test_each_class_on_each_road(container: Container, start: Start, every_road: Path, kind: str) -> None:
    take, bytes_taken, give_back = CLASSES[kind]
    container.add_card()
    container.limit(8 * MI)
    probe = start(every_road)
    assert set(run(probe, take)) == {0}
    assert container.used() == container.physically_used() == bytes_taken
    assert probe("info") == [0, 8 * MI - bytes_taken, 8 * MI]
    assert set(run(probe, give_back)) == {0}
    assert container.used() == container.physically_used() == 0
    assert probe("info") == [0, 8 * MI, 8 * MI]
    assert probe.close() == ""


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind not in MEASURED])
def test_one_byte_below_what_it_takes_is_refused(
    container: Container, start: Start, probe_program: Path, kind: str
) -> None:
    take, bytes_taken, _ = CLASSES[kind]
    container.add_card()
    container.limit(bytes_taken - 1)
    probe = start(probe_program)
    codes = run(probe, take)
    assert OUT_OF_MEMORY in codes
    assert container.used() == container.physically_used() == 0


@pytest.mark.parametrize("kind", MEASURED)
def test_what_is_measured_may_pass_the_quota_once(
    container: Container, start: Start, probe_program: Path, kind: str
) -> None:
    take, bytes_taken, give_back = CLASSES[kind]
    container.add_card()
    container.limit(2 * MI)
    probe = start(probe_program)
    assert set(run(probe, take)) == {0}
    assert container.used() == container.physically_used() == bytes_taken
    assert probe("info") == [0, 0, 2 * MI]
    assert probe.code("alloc 1") == OUT_OF_MEMORY
    assert OUT_OF_MEMORY in run(probe, [step.replace("launch 0", "launch 1") for step in take]), "and no second time"
    assert container.used() == container.physically_used() == bytes_taken
    assert set(run(probe, give_back)) == {0}
    assert probe.code(f"alloc {2 * MI}") == 0


def test_a_graph_that_ran_before_may_run_again_while_nothing_new_may_begin(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    assert run(probe, [f"graph {4 * MI}", "launch 0", f"graph {8 * MI}", f"graph {8 * MI}", "launch 1"]) == [0] * 5
    assert container.used() == container.physically_used() == 12 * MI
    assert probe.code("launch 2") == OUT_OF_MEMORY, "it never ran, and would take more"
    assert run(probe, ["launch 0", "launch 1"]) == [0, 0]
    assert container.used() == 12 * MI


# ---- pools ---------------------------------------------------------------------------------------------------------


def test_what_a_pool_keeps_is_charged_and_used_again_without_another_charge(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    assert run(probe, ["pooldefault 0 0", f"threshold 0 {GI}", f"async {6 * MI}", "freeasync 0", "sync"]) == [0] * 5
    assert container.used() == container.physically_used() == 6 * MI
    assert probe.code(f"alloc {4 * MI}") == OUT_OF_MEMORY, "other allocators do not empty a pool"
    assert probe.code(f"async {6 * MI}") == 0
    assert container.used() == container.physically_used() == 6 * MI


def test_what_a_pool_keeps_for_nobody_makes_room_for_its_next_request(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    keep = ["pooldefault 0 0", f"threshold 0 {GI}", f"async {2 * MI}", f"async {2 * MI}", "freeasync 0", "freeasync 1"]
    assert run(probe, [*keep, "sync"]) == [0] * 7
    assert container.used() == 4 * MI
    assert probe.code(f"async {8 * MI}") == 0, "the two pieces do not fit it, and are given back first"
    assert container.used() == container.physically_used() == 8 * MI


def test_memory_freed_in_stream_order_is_reused_when_the_quota_is_full(
    container: Container, start: Start, probe_program: Path
) -> None:
    """It cannot be trimmed before the stream is waited for, but the driver gives it out again."""
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    assert run(probe, [f"async {8 * MI}", "freeasync 0", f"async {8 * MI}"]) == [0, 0, 0]
    assert container.used() == container.physically_used() == 8 * MI
    assert probe.code("async 512") == OUT_OF_MEMORY


def test_small_requests_share_a_chunk_and_are_charged_once_for_it(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(4 * MI)
    probe = start(probe_program)
    assert run(probe, [f"async {100 * KI}"] * 20) == [0] * 20
    assert container.used() == container.physically_used() == 2 * MI


def test_a_pool_that_grows_by_more_than_was_asked_gives_it_back(
    container: Container, start: Start, probe_program: Path
) -> None:
    """A quota of 1 MiB has room for the request, not for the chunk the pool takes."""
    container.add_card()
    container.limit(MI)
    probe = start(probe_program)
    assert probe.code(f"async {100 * KI}") == OUT_OF_MEMORY
    assert container.used() == container.physically_used() == 0
    assert probe.code(f"alloc {100 * KI}") == 0


def test_pools_of_host_memory_are_free_of_charge(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(2 * MI)
    probe = start(probe_program)
    assert run(probe, ["hostpool 0 0", f"frompool {64 * MI}"]) == [0, 0]
    assert container.used() == container.physically_used() == 0


# ---- virtual memory ------------------------------------------------------------------------------------------------


def test_physical_memory_stays_charged_while_it_is_mapped(container: Container, start: Start, every_road: Path) -> None:
    """Also when the driver gives its handle's number out again meanwhile."""
    container.add_card()
    container.limit(4 * MI)
    probe = start(every_road)
    assert run(probe, [f"reserve {4 * MI}", f"create {2 * MI}", "map 0 1", "releasehandle 1"]) == [0] * 4
    assert container.used() == container.physically_used() == 2 * MI
    assert run(probe, [f"create {2 * MI}", "releasehandle 2", f"create {2 * MI}"]) == [0] * 3
    assert container.used() == container.physically_used() == 4 * MI
    assert probe.code(f"unmap 0 {2 * MI}") == 0
    assert container.used() == container.physically_used() == 2 * MI
    assert probe.code("releasehandle 3") == 0
    assert container.used() == container.physically_used() == 0


def test_a_retained_handle_holds_the_memory(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    assert run(probe, [f"reserve {2 * MI}", f"create {2 * MI}", "map 0 1", "retain 0", "releasehandle 1"]) == [0] * 5
    assert run(probe, [f"unmap 0 {2 * MI}"]) == [0]
    assert container.used() == container.physically_used() == 2 * MI
    assert probe.code("releasehandle 2") == 0
    assert container.used() == container.physically_used() == 0


def test_a_handle_retained_after_the_last_release_is_a_new_name(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    assert run(probe, [f"reserve {2 * MI}", f"create {2 * MI}", "map 0 1", "releasehandle 1", "retain 0"]) == [0] * 5
    assert run(probe, [f"unmap 0 {2 * MI}"]) == [0]
    assert container.used() == container.physically_used() == 2 * MI
    assert probe.code("releasehandle 2") == 0
    assert container.used() == container.physically_used() == 0


def test_one_unmap_may_cover_several_mappings(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_program)
    assert (
        run(probe, [f"reserve {4 * MI}", f"create {2 * MI}", f"create {2 * MI}", "map 0 1", "mapsecond 0 2"]) == [0] * 5
    )
    assert run(probe, ["releasehandle 1", "releasehandle 2", f"unmap 0 {4 * MI}"]) == [0] * 3
    assert container.used() == container.physically_used() == 0


def test_imported_memory_is_the_exporters(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(4 * MI)
    probe = start(probe_program)
    assert probe.code(f"create {4 * MI}") == 0
    code, file = probe("export 0")
    assert code == 0
    assert probe.code(f"import {file}") == 0
    assert probe.code(f"import {file}") == 0
    assert container.used() == container.physically_used() == 4 * MI
    assert run(probe, ["releasehandle 1", "releasehandle 2"]) == [0, 0]
    assert container.used() == 4 * MI
    assert probe.code("releasehandle 0") == 0
    assert container.used() == container.physically_used() == 0


def test_memory_opened_by_ipc_is_the_owners(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(4 * MI)
    probe = start(probe_program)
    assert run(probe, [f"alloc {4 * MI}", "ipcget 0", "ipcopen"]) == [0, 0, 0]
    assert container.used() == container.physically_used() == 4 * MI
    assert probe.code("ipcclose 1") == 0
    assert container.used() == container.physically_used() == 4 * MI


# ---- what is not of the card ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [f"host {64 * MI}", f"hostalloc {64 * MI}", "sparse 65536 65536 1"])
def test_memory_that_is_not_on_a_card_costs_nothing(
    container: Container, start: Start, probe_program: Path, command: str
) -> None:
    container.add_card()
    container.limit(2 * MI)
    assert start(probe_program).code(command) == 0
    assert container.used() == container.physically_used() == 0


# ---- contexts ------------------------------------------------------------------------------------------------------


def test_contexts_are_measured_where_the_file_does_not_know_them(
    container: Container, start: Start, every_road: Path
) -> None:
    container.add_card(context=300 * MI)
    container.limit(GI)
    probe = start(every_road)
    assert container.used() == container.physically_used() == 300 * MI
    assert probe.code("newcontext 0") == 0
    assert container.used() == container.physically_used() == 600 * MI
    assert run(probe, [f"alloc {4 * MI}", f"module {4 * MI}", "array 1024 1024", "destroycontext 0"]) == [0] * 4
    assert container.used() == container.physically_used() == 300 * MI
    assert probe.code("releasedevice 0") == 0
    assert container.used() == container.physically_used() == 0


def test_a_measured_context_may_pass_the_quota_once(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card(context=300 * MI)
    container.limit(500 * MI)
    first = start(probe_program)
    assert first.code("newcontext 0") == 0, "not known beforehand"
    assert container.used() == 600 * MI
    assert first.code("newcontext 0 1") == OUT_OF_MEMORY
    second = start(probe_program, initialise=False)
    assert [second.code("init"), second.code("device 0")] == [0, OUT_OF_MEMORY]
    assert first.code("alloc 1") == OUT_OF_MEMORY
    assert first.code("destroycontext 0") == 0
    assert first.code(f"alloc {200 * MI}") == 0


def test_a_context_of_known_size_is_refused_where_it_does_not_fit(
    container: Container, start: Start, probe_program: Path
) -> None:
    container.add_card(context=300 * MI)
    container.limit(500 * MI, context=300 * MI)
    first = start(probe_program)
    assert container.used() == container.physically_used() == 300 * MI
    assert first.code("newcontext 0") == OUT_OF_MEMORY
    second = start(probe_program, initialise=False)
    assert [second.code("init"), second.code("device 0")] == [0, OUT_OF_MEMORY]
    assert container.used() == container.physically_used() == 300 * MI


def test_the_heap_of_kernels_belongs_to_the_context(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(GI)
    probe = start(probe_program)
    assert run(probe, ["newcontext 0", f"heap {64 * MI}"]) == [0, 0]
    assert container.used() == container.physically_used() == 64 * MI
    assert probe.code("destroycontext 0") == 0
    assert container.used() == container.physically_used() == 0


@pytest.mark.parametrize("call", ["cuMemAlloc_v2:1:2", "cuMemAlloc_v2:1:999"])
def test_a_call_the_driver_refuses_leaves_nothing_in_the_books(
    container: Container, start: Start, probe_program: Path, call: str
) -> None:
    container.add_card()
    container.limit(4 * MI)
    container.variables["HCS_EMULATED_FAIL"] = call
    probe = start(probe_program)
    assert probe.code(f"alloc {4 * MI}") == int(call.rpartition(":")[2])
    assert container.used() == 0
    assert probe.code(f"alloc {4 * MI}") == 0


@pytest.mark.parametrize(
    ("call", "take", "refused"),
    [
        ("cuMemRelease:1:999", f"create {4 * MI}", "releasehandle 0"),
        ("cuMemFreeAsync:1:999", f"async {4 * MI}", "freeasync 0"),
    ],
)
def test_memory_the_driver_did_not_free_stays_charged(
    container: Container, start: Start, probe_program: Path, call: str, take: str, refused: str
) -> None:
    container.add_card()
    container.limit(4 * MI)
    container.variables["HCS_EMULATED_FAIL"] = call
    probe = start(probe_program)
    assert run(probe, [take, refused]) == [0, 999]
    assert container.used() == container.physically_used() == 4 * MI
    assert run(probe, [refused, "sync"]) == [0, 0]
    assert container.used() == container.physically_used() == 0


# ---- MUSA: the same, under its names -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(CLASSES))
def test_musa_is_charged_the_same(tmp_path: Path, start: Start, programs: Path, kind: str) -> None:
    take, bytes_taken, give_back = CLASSES[kind]
    container = Container(tmp_path / "musa", "mthreads")
    container.add_card()
    container.limit(8 * MI)
    probe = start(probe_of(programs, "musa", "lookup"), within=container)
    assert set(run(probe, take)) == {0}
    assert container.used() == container.physically_used() == bytes_taken
    assert set(run(probe, give_back)) == {0}
    assert container.used() == container.physically_used() == 0
