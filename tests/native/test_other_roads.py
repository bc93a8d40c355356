"""The roads above and beside the driver API: the runtime library, export tables, NVML; and MIG and four tenants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.toolkit import GI, MI, OUT_OF_MEMORY, Container, Probe, compile_program

from hcs import native

Start = Callable[..., Probe]
INSUFFICIENT_SIZE = 7


@pytest.fixture
def runtime_program(programs: Path) -> str:
    library = native.emulated_driver_dir("nvidia") / "libcudart.so"
    return str(compile_program(programs, "runtime.c", "runtime", str(library)))


@pytest.mark.parametrize(
    ("way", "asked", "charged"),
    [("malloc", 3 * MI, 4 * MI), ("managed", 4 * MI, 4 * MI), ("async", 3 * MI, 4 * MI), ("pitch", 3 * MI, 4 * MI)],
)
def test_the_runtime_library_is_charged_once_where_it_ends(
    container: Container, runtime_program: str, way: str, asked: int, charged: int
) -> None:
    container.add_card()
    container.limit(16 * MI)
    done = container.run(runtime_program, way, str(asked))
    assert done.stdout.split() == ["0", "0", str(16 * MI - charged), str(16 * MI)], done.stderr


def test_the_runtime_library_meets_the_quota(container: Container, runtime_program: str) -> None:
    container.add_card()
    container.limit(8 * MI)
    done = container.run(runtime_program, "malloc", str(8 * MI), "malloc", "1", "async", "1")
    assert done.stdout.split()[:3] == ["0", str(OUT_OF_MEMORY), str(OUT_OF_MEMORY)]


def test_export_tables_are_left_alone(container: Container, programs: Path) -> None:
    """Nothing there can be wrapped safely: what comes by this road is the driver's own, and not charged."""
    container.add_card()
    container.limit(2 * MI)
    done = container.run(str(compile_program(programs, "tables.c", "tables")))
    assert done.stdout.split() == ["0", "driver", "0"]


def test_nvml_agrees_with_the_quota_and_shows_the_containers_processes_alone(
    container: Container, start: Start, probe_program: Path, programs: Path, tmp_path: Path
) -> None:
    card = container.add_card(total=16 * GI)
    container.limit(4 * GI)
    (tmp_path / "neighbour").mkdir()
    neighbour = Container(tmp_path / "neighbour")
    neighbour.give(card, 0)
    neighbour.intercepted = False
    assert start(probe_program, within=neighbour).code(f"alloc {2 * GI}") == 0
    probe = start(probe_program)
    assert probe.code(f"alloc {GI}") == 0
    program = str(compile_program(programs, "nvml.c", "nvml"))
    told = container.run(program).stdout.strip().split("|")
    codes, memory, second, processes, old, clients, graphics, sampled = told
    assert codes.split() == ["0", "0", "0", "0", str(INSUFFICIENT_SIZE), "0", "0", "0", "0", "0"]
    assert memory.split() == [str(4 * GI), str(3 * GI), str(GI)]
    assert second.split() == [str(4 * GI), "0", str(3 * GI), str(GI)]
    mine = f"{probe.process.pid}:{GI}"
    assert processes.split() == ["1", mine]
    assert old.split() == [mine]
    assert clients.split() == [mine], "all containers on a card may be clients of one MPS daemon"
    assert graphics.split() == ["0"]
    assert sampled.split() == [str(probe.process.pid)]
    container.intercepted = False
    assert container.run(program).stdout.split("|")[3].split()[0] == "2", "the card itself has two"


def test_nvml_saturates_where_more_is_used_than_allowed(
    container: Container, start: Start, probe_program: Path, programs: Path
) -> None:
    container.add_card(total=16 * GI)
    container.limit(4 * GI)
    probe = start(probe_program)
    assert probe.code(f"alloc {3 * GI}") == 0
    container.limit(1 * GI, counter=2)
    program = str(compile_program(programs, "nvml.c", "nvml"))
    assert container.run(program).stdout.split("|")[1].split() == [str(1 * GI), "0", str(1 * GI)]


def test_a_mig_instance_is_known_by_its_own_uuid(container: Container, start: Start, every_road: Path) -> None:
    container.uuid = "MIG-11111111-2222-4333-8444-555555555555"
    container.add_card(total=10 * GI)
    container.limit(4 * GI)
    probe = start(every_road)
    assert probe.code(f"alloc {4 * GI}") == 0
    assert probe.code("alloc 1") == OUT_OF_MEMORY


def test_a_uuid_in_capitals_is_the_same_uuid(container: Container, start: Start, probe_program: Path) -> None:
    container.add_card()
    container.limit(4 * GI)
    text = container.quota_path.read_text()
    container.quota_path.write_text(text.replace("aaaa-4bbb", "AAAA-4BBB"))
    assert start(probe_program).code(f"alloc {4 * GI}") == 0


def test_a_part_of_the_cards_by_number_is_charged_to_that_card(
    container: Container, start: Start, every_road: Path
) -> None:
    """The case others get wrong: two cards, the second chosen, and the first one's limit consulted."""
    container.add_card()
    container.add_card()
    container.limit(1 * GI, 6 * GI)
    container.variables["CUDA_VISIBLE_DEVICES"] = "1"
    probe = start(every_road)
    assert probe("info") == [0, 6 * GI, 6 * GI]
    assert probe.code(f"alloc {5 * GI}") == 0
    assert (container.used(0), container.used(1)) == (0, 5 * GI)
    assert probe("info") == [0, 1 * GI, 6 * GI]


def test_four_containers_share_one_card_each_within_its_own_quota(
    tmp_path: Path, start: Start, programs: Path, probe_program: Path, runtime_program: str
) -> None:
    quotas = [1 * GI, 2 * GI, 3 * GI, 5 * GI]
    first = Container(tmp_path / "0")
    card = first.add_card(total=16 * GI)
    containers = [first]
    for number in range(1, 4):
        containers.append(Container(tmp_path / str(number)))
        containers[-1].cards.append(card)
        containers[-1].give(card, 0)
    for tenant, quota in zip(containers, quotas, strict=True):
        tenant.limit(quota)
    probes = [start(probe_program, within=tenant) for tenant in containers]
    assert [probe("info") for probe in probes] == [[0, quota, quota] for quota in quotas]
    for probe, quota in zip(probes, quotas, strict=True):
        probe.send(f"alloc {quota - MI}")
        probe.send(f"async {MI + 1}")
        probe.send(f"alloc {2 * MI}")
        probe.send(f"create {2 * MI}")
    answers = [[probe.receive()[0] for _ in range(4)] for probe in probes]
    assert answers == [[0, OUT_OF_MEMORY, OUT_OF_MEMORY, OUT_OF_MEMORY]] * 4
    assert [tenant.used() for tenant in containers] == quotas
    assert first.physically_used() == sum(quotas)
    probes[2].kill()
    assert probes[3].code("alloc 1") == OUT_OF_MEMORY, "what a neighbour leaves is not this one's"
    assert start(probe_program, within=containers[2]).code(f"alloc {quotas[2]}") == 0
