"""Ascend's lower level, Cambricon's CNDrv and HIP: the same promises, each at the level where everything ends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.conftest import RUNTIMES, probe_of
from tests.native.toolkit import ACL_OUT_OF_MEMORY, GI, MI, Container, Probe, compile_program

from hcs import native

Start = Callable[..., Probe]

OUT_OF_MEMORY = {"acl": ACL_OUT_OF_MEMORY, "rt": ACL_OUT_OF_MEMORY, "cn": 100100, "hip": 2, "musa": 2}
WAYS = {
    "acl": ["alloc", "alloc32", "cached", "config", "scheduler", "managed", "dvpp", "mpi"],
    "rt": ["alloc", "cached", "plain", "managed", "dvpp", "dvppflag"],
    "cn": ["alloc", "zero", "security", "constant", "peer", "node", "zeronode", "nodeconstant", "framebuffer"],
    "hip": ["alloc", "flags", "managed", "async"],
}
ROADS_OF = {"acl": ["direct", "dlsym"], "rt": ["direct", "dlsym"], "cn": ["direct", "dlsym", "lookup"]}
ROADS_OF["hip"] = ["direct", "dlsym", "lookup"]
MATRIX = [
    pytest.param(runtime, road, way, id=f"{runtime}-{road}-{way}")
    for runtime, ways in WAYS.items()
    for road in ROADS_OF[runtime]
    for way in ways
]


def container_for(runtime: str, directory: Path) -> Container:
    container = Container(directory / runtime, RUNTIMES[runtime][0])
    container.add_card(node=0)
    return container


@pytest.mark.parametrize(("runtime", "road", "way"), MATRIX)
def test_each_way_to_allocate_on_each_road(
    tmp_path: Path, start: Start, programs: Path, runtime: str, road: str, way: str
) -> None:
    container = container_for(runtime, tmp_path)
    container.limit(8 * MI)
    probe = start(probe_of(programs, runtime, road), within=container)
    assert probe("info") == [0, 8 * MI, 8 * MI]
    assert probe.code(f"{way} {9 * MI}") == OUT_OF_MEMORY[runtime]
    assert probe.code(f"{way} {4 * MI}") == 0
    taken = container.physically_used()
    assert 4 * MI <= taken <= 4 * MI + 64
    assert container.used() == taken
    assert probe("info") == [0, 8 * MI - taken, 8 * MI]
    assert probe.code(f"{way} {4 * MI + 1}") == OUT_OF_MEMORY[runtime]
    assert probe.code("free 0") == 0
    assert container.used() == container.physically_used() == 0
    assert probe.close() == ""


@pytest.mark.parametrize("runtime", ["acl", "rt", "cn", "hip"])
def test_physical_memory_is_charged_where_it_lies(tmp_path: Path, start: Start, programs: Path, runtime: str) -> None:
    container = container_for(runtime, tmp_path)
    container.limit(4 * MI)
    probe = start(probe_of(programs, runtime, "dlsym"), within=container)
    assert probe.code(f"create {6 * MI} 0") == OUT_OF_MEMORY[runtime]
    assert probe.code(f"create {2 * MI} 0") == 0
    assert container.used() == container.physically_used() == 2 * MI
    if runtime != "rt":
        assert [probe.code(line) for line in (f"reserve {2 * MI}", "map 1 0", "releasehandle 0")] == [0, 0, 0]
        assert container.used() == container.physically_used() == 2 * MI, "still mapped"
        assert probe.code("unmap 1") == 0
    else:
        assert probe.code("releasehandle 0") == 0
    assert container.used() == container.physically_used() == 0


@pytest.mark.parametrize(
    ("runtime", "command"), [("acl", "createhost"), ("rt", "createhost"), ("hip", "host"), ("acl", "host")]
)
def test_memory_of_the_host_costs_nothing(
    tmp_path: Path, start: Start, programs: Path, runtime: str, command: str
) -> None:
    container = container_for(runtime, tmp_path)
    container.limit(MI)
    probe = start(probe_of(programs, runtime, "dlsym"), within=container)
    assert probe.code(f"{command} 4096") == 0
    assert probe("info") == [0, MI, MI]
    assert container.physically_used() == 0


def test_both_levels_of_ascend_share_one_table(tmp_path: Path, programs: Path) -> None:
    """A call at the upper level ends in the lower one: charged once, and freed at either."""
    container = container_for("acl", tmp_path)
    container.limit(8 * MI)
    driver = native.emulated_driver_dir("ascend")
    libraries = [str(driver / name) for name in ("libascendcl.so", "libruntime.so")]
    program = compile_program(programs, "mixed.c", "mixed", *libraries)
    process = subprocess.Popen(
        [program], env=container.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        while container.physically_used() < 4 * MI:  # a ledger that is being made cannot be read yet
            assert process.poll() is None
        assert container.used() == container.physically_used() == 4 * MI + 32
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().split() == ["0"] * 6
        assert container.used() == container.physically_used() == 0
        process.stdin.close()


@pytest.mark.parametrize(
    ("command", "release"),
    [
        ("pitch 1000 4000", "free 0"),
        ("pitch3d 1000 100 40", "free 0"),
        ("array 1024 1024", "freearray 0"),
        ("array3d 256 256 16", "freearray 0"),
        ("arraycreate 1024 1024", "freearray 0"),
        ("mipmap 1024 1024 4", "freearray 0"),
        (f"async {4 * MI}", "freeasync 0"),
        (f"alloc {4 * MI}", "reset"),
    ],
)
def test_hip_by_audit_charges_every_class(
    tmp_path: Path, start: Start, programs: Path, command: str, release: str
) -> None:
    container = container_for("hip", tmp_path)
    container.limit(8 * MI)
    probe = start(probe_of(programs, "hip", "direct"), within=container)
    assert probe.code(command) == 0
    assert container.used() == container.physically_used() >= 4_000_000
    assert probe.code(command) in (0, 2)
    assert container.used() == container.physically_used() <= 8 * MI
    probe.close()
    container.limit(MI, counter=2)
    probe = start(probe_of(programs, "hip", "direct"), within=container)
    assert probe.code(command) == 2
    container.limit(8 * MI, counter=3)
    assert [probe.code(command), probe.code(release)] == [0, 0]
    assert container.used() == container.physically_used() == 0


GRAPHS = {
    "by-node": [f"graph {3 * MI}", "launch 0", "launch 0"],
    "by-generic-node": [f"graphnode {3 * MI}", "upload 0", "launch 0"],
    "captured": [f"capture {3 * MI}", "launch 0"],
    "on-the-threads-own-stream": [f"graph {3 * MI}", "launchspt 0"],
}


@pytest.mark.parametrize("road", ROADS_OF["hip"])
@pytest.mark.parametrize("kind", list(GRAPHS))
def test_memory_that_hips_graphs_own_is_charged_until_it_is_trimmed(
    tmp_path: Path, start: Start, programs: Path, kind: str, road: str
) -> None:
    container = container_for("hip", tmp_path)
    container.limit(8 * MI)
    probe = start(probe_of(programs, "hip", road), within=container)
    assert {probe.code(command) for command in GRAPHS[kind]} == {0}
    assert container.used() == container.physically_used() == 3 * MI
    assert probe("info") == [0, 5 * MI, 8 * MI]
    assert probe.code(f"alloc {6 * MI}") == 2
    assert probe.code("destroygraph 0") == 0
    assert container.used() == container.physically_used() == 3 * MI, "the device keeps it"
    assert probe.code("graphtrim 0") == 0
    assert container.used() == container.physically_used() == 0
    assert probe.code(f"alloc {8 * MI}") == 0


def test_a_graph_of_hip_passes_the_quota_once_and_nothing_new_begins(
    tmp_path: Path, start: Start, programs: Path
) -> None:
    container = container_for("hip", tmp_path)
    container.limit(8 * MI)
    probe = start(probe_of(programs, "hip", "dlsym"), within=container)
    steps = [f"graph {4 * MI}", "launch 0", f"graph {8 * MI}", f"graph {8 * MI}", "launch 1"]
    assert [probe.code(step) for step in steps] == [0] * 5
    assert container.used() == container.physically_used() == 12 * MI
    assert probe.code("launch 2") == 2, "it never ran, and would take more"
    assert [probe.code(step) for step in ("launch 0", "launch 1")] == [0, 0]
    assert probe.code(f"graph {MI}") == 2
    assert container.used() == 12 * MI


def test_cambricon_answers_agree_and_a_reset_clears_the_books(tmp_path: Path, start: Start, programs: Path) -> None:
    container = container_for("cn", tmp_path)
    container.limit(4 * GI)
    probe = start(probe_of(programs, "cn", "lookup"), within=container)
    assert probe("totalmem 0") == [0, 4 * GI]
    assert probe.code(f"node {GI}") == 0
    assert probe("nodeinfo") == [0, 3 * GI, 4 * GI]
    assert probe.code("reset 0") == 0
    assert container.used() == container.physically_used() == 0


def test_a_card_without_a_known_uuid_is_found_by_its_bus_id(tmp_path: Path, start: Start, programs: Path) -> None:
    for runtime in ("cn", "hip", "musa"):
        container = container_for(runtime, tmp_path)
        container.limit(4 * MI, uuids=["another-identity"])
        text = container.quota_path.read_text().replace(" 0 - -\n", " 0 0000:3b:00.0 -\n")
        container.quota_path.write_text(text)
        probe = start(probe_of(programs, runtime, "dlsym"), within=container)
        assert [probe.code(f"alloc {4 * MI}"), probe.code("alloc 1")] == [0, OUT_OF_MEMORY[runtime]], runtime


def test_the_audit_library_leaves_programs_without_hip_alone(container: Container) -> None:
    container.add_card()
    container.intercepted = False
    script = "import ssl, sqlite3, ctypes, subprocess; print(ctypes.CDLL(None).getpid() == __import__('os').getpid())"
    without = container.run("python3", "-c", script)
    audited = container.run("python3", "-c", script, LD_AUDIT=str(native.audit_path()))
    assert (audited.stdout, audited.stderr, audited.returncode) == (without.stdout, "", 0)
