"""Emulated cards: the file format, and drivers that behave like the vendors' own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.native.conftest import cuda_probe
from tests.native.toolkit import GI, MI, OUT_OF_MEMORY, Container, Probe, build_native, compile_program, gpu_uuid

from hcs.native import ledger
from hcs.vendors import emulated
from hcs.vendors.emulated import EmulatedCardError, clear_fault, create_card, inject_fault, read_card

Start = Callable[[], Probe]

NO_DEVICE, UNKNOWN = 100, 999


@pytest.fixture
def container(tmp_path: Path) -> Container:
    build_native()
    container = Container(tmp_path)
    container.intercepted = False
    return container


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def start(container: Container, programs: Path) -> Iterator[Callable[..., Probe]]:
    build_native()
    program = cuda_probe(programs, "dlsym")
    probes: list[Probe] = []

    def starting(*, initialise: bool = True) -> Probe:
        probes.append(Probe(container, program, initialise=initialise))
        return probes[-1]

    yield starting
    for probe in probes:
        probe.process.kill()
        probe.process.communicate(timeout=60)


def test_a_new_card_reads_as_it_was_made(tmp_path: Path) -> None:
    card = tmp_path / "card"
    create_card(card, vendor="cambricon", model="MLU370-X8", uuid="mlu-1", index=3, total_bytes=48 * GI, bus_id="5e:00")
    state = read_card(card)
    assert (state.vendor, state.model, state.uuid, state.bus_id) == ("cambricon", "MLU370-X8", "mlu-1", "5e:00")
    assert (state.index, state.total_bytes, state.used_bytes, state.processes) == (3, 48 * GI, 0, ())
    assert (state.fault_code, state.fault_name) == (0, "")


def test_a_fault_is_injected_and_cleared(tmp_path: Path) -> None:
    card = tmp_path / "card"
    create_card(card, vendor="nvidia", model="A100", uuid=gpu_uuid(0), index=0, total_bytes=GI)
    inject_fault(card, 79, "GPU has fallen off the bus")
    assert (read_card(card).fault_code, read_card(card).fault_name) == (79, "GPU has fallen off the bus")
    clear_fault(card)
    assert (read_card(card).fault_code, read_card(card).fault_name) == (0, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"vendor": "acme"}, "no emulated vendor", id="vendor"),
        pytest.param({"total_bytes": 0}, "bytes of memory", id="no-memory"),
        pytest.param({"model": "x" * 64}, "63 bytes", id="long-name"),
        pytest.param({"index": -1}, "index", id="index"),
    ],
)
def test_a_card_that_cannot_be_is_not_made(tmp_path: Path, change: dict[str, object], message: str) -> None:
    card = {"vendor": "nvidia", "model": "A100", "uuid": gpu_uuid(0), "index": 0, "total_bytes": GI} | change
    with pytest.raises(EmulatedCardError, match=message):
        create_card(tmp_path / "card", **card)  # type: ignore[arg-type]
    assert not (tmp_path / "card").exists()


def test_files_that_are_no_cards_are_told_apart(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"not a card")
    with pytest.raises(EmulatedCardError, match="not an emulated card"):
        read_card(other)
    with pytest.raises(EmulatedCardError, match="not an emulated card"):
        inject_fault(other, 79, "Xid 79")


def test_c_and_python_agree_on_every_offset(programs: Path) -> None:
    build_native()
    program = compile_program(programs, "layout.c", "layout")
    output = subprocess.run([program], capture_output=True, check=True).stdout
    assert output[-16:] == emulated.MAGIC + ledger.LEDGER_MAGIC
    offsets = {name: int(value) for name, value in (line.split() for line in output[:-16].decode().splitlines())}
    assert offsets == {
        "card.bytes": emulated.CARD_FILE_BYTES,
        "card.slots": emulated.SLOTS_OFFSET,
        "card.slot_count": emulated.PROCESS_SLOTS,
        "card.slot_bytes": emulated.SLOT_BYTES,
        "card.layout": 8,
        "card.process_slots": 12,
        "card.vendor": 16,
        "card.model": 32,
        "card.uuid": 96,
        "card.bus_id": 160,
        "card.index": 192,
        "card.fault_code": emulated.FAULT_CODE_OFFSET,
        "card.fault_name": emulated.FAULT_NAME_OFFSET,
        "card.total_bytes": 256,
        "card.counter": emulated.COUNTER_OFFSET,
        "ledger.bytes": ledger.LEDGER_BYTES,
        "ledger.slots": ledger.SLOTS_OFFSET,
        "ledger.slot_count": ledger.PROCESS_SLOTS,
        "ledger.slot_bytes": ledger.SLOT_BYTES,
        "ledger.card_count": ledger.CARD_SLOTS,
        "ledger.quota_counter": ledger.QUOTA_COUNTER_OFFSET,
        "ledger.cards": ledger.CARDS_OFFSET,
        "ledger.card_bytes": ledger.CARD_BYTES,
        "ledger.card.counter": 0,
        "ledger.card.refusals": 8,
        "ledger.card.uuid": 16,
        "slot.owner": 0,
        "slot.start_time": 8,
        "slot.pid_namespace": 16,
        "slot.inflight": 24,
        "slot.charged": ledger.SLOT_CHARGES_OFFSET,
    }


def test_the_device_name_says_that_it_is_emulated(container: Container, start: Start) -> None:
    container.add_card()
    probe = start()
    probe.send("name 0")
    assert probe.receive_text() == "0 NVIDIA A100-SXM4-80GB (emulated)"


def test_an_allocation_takes_whole_pages_of_the_card_and_a_killed_process_gives_them_back(
    container: Container, start: Start
) -> None:
    card = container.add_card(total=80 * GI)
    first, second = start(), start()
    assert first.code(f"alloc {60 * GI - MI}") == 0
    state = read_card(card)
    assert state.used_bytes == 60 * GI
    assert [(process.pid, process.used_bytes) for process in state.processes] == [(first.process.pid, 60 * GI)]
    assert second.code(f"alloc {21 * GI}") == OUT_OF_MEMORY
    assert second("info") == [0, 20 * GI, 80 * GI]
    first.kill(reap=False)
    assert read_card(card).used_bytes == 0
    assert second("info") == [0, 80 * GI, 80 * GI]
    assert second.code(f"alloc {80 * GI}") == 0


def test_every_call_that_needs_a_dead_card_fails_as_on_a_gpu_that_fell_off_the_bus(
    container: Container, start: Callable[..., Probe]
) -> None:
    card = container.add_card()
    probe = start()
    assert probe.code("alloc 4096") == 0
    inject_fault(card, 79, "GPU has fallen off the bus")
    assert [probe.code(command) for command in ("alloc 4096", "free 0", "info", "device 0")] == [UNKNOWN] * 4
    assert start(initialise=False).code("init") == UNKNOWN


def test_only_the_cards_whose_nodes_are_there_are_seen(container: Container, start: Callable[..., Probe]) -> None:
    container.add_card(node=4)
    foreign = container.directory / "foreign"
    foreign.write_bytes(os.urandom(emulated.CARD_FILE_BYTES))
    container.give(foreign, 0)
    (container.dev / "nvidiactl").touch()
    (container.dev / "nvidia-uvm").touch()
    assert start()("count") == [0, 1]
    (container.dev / "nvidia4").unlink()
    assert start(initialise=False).code("init") == NO_DEVICE


@pytest.mark.parametrize(
    ("visible", "order"),
    [
        pytest.param("2,0", [2, 0], id="reordered"),
        pytest.param("1,-1,0", [1], id="stops-at-an-invalid-entry"),
        pytest.param("0,7,1", [0], id="stops-at-a-missing-card"),
        pytest.param("", [], id="empty-hides-all"),
        pytest.param("0,0", [], id="twice-is-none"),
        pytest.param(f"{gpu_uuid(2)},1", [2, 1], id="by-uuid"),
        pytest.param("GPU-00000000", [], id="ambiguous-beginning"),
    ],
)
def test_cuda_visible_devices_selects_and_orders(
    container: Container, start: Callable[..., Probe], visible: str, order: list[int]
) -> None:
    for size in (1, 2, 3):
        container.add_card(total=size * GI)
    container.variables["CUDA_VISIBLE_DEVICES"] = visible
    probe = start(initialise=False)
    if not order:
        assert probe.code("init") == NO_DEVICE
        return
    assert probe.code("init") == 0
    assert probe("count") == [0, len(order)]
    assert [probe(f"totalmem {device}")[1] for device in range(len(order))] == [(card + 1) * GI for card in order]


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        pytest.param("0,1,2", 3, id="ascending"),
        pytest.param("0,2,1", 2, id="stops-where-it-descends"),
        pytest.param("1, 2", 1, id="stops-at-a-blank"),
        pytest.param("5", 0, id="missing"),
    ],
)
def test_ascend_rt_visible_devices_is_read_as_documented(tmp_path: Path, visible: str, count: int) -> None:
    build_native()
    container = Container(tmp_path, "ascend")
    container.intercepted = False
    for _ in range(3):
        container.add_card()
    script = (
        "import ctypes; acl = ctypes.CDLL('libascendcl.so'); acl.aclInit(None); count = ctypes.c_uint32();"
        "acl.aclrtGetDeviceCount(ctypes.byref(count)); print(count.value)"
    )
    done = container.run("python3", "-c", script, ASCEND_RT_VISIBLE_DEVICES=visible)
    assert done.stdout == f"{count}\n", done.stderr
