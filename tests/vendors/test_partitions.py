"""Parts of Hygon's and AMD's cards: chosen once, kept over restarts, free again when the pod is gone."""

import threading
from pathlib import Path

import pytest

from hcs.inject.instances import Instance
from hcs.inject.vdcu import VdcuRecord, parse_vdcu
from hcs.model.allocations import Grant
from hcs.model.devices import Device, Rate
from hcs.model.refusals import RefusedError
from hcs.ura.catalogue import Catalogue
from hcs.vendors.amd import AmdVendor
from hcs.vendors.base import Wanted
from hcs.vendors.hygon import HygonVendor
from hcs.vendors.source import ToolSource

GIB = 1 << 30
BUS = "0000:c3:00.0"


def card(vendor: str) -> Device:
    rates = (Rate("gemm", 100_000, "datasheet"),)
    return Device(f"{vendor}-1", 3, vendor, "K100", 64 * GIB, bus_id=BUS, rates=rates)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """The kernel's word for one card of 80 compute units."""
    folder = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    folder.mkdir(parents=True)
    location = 0xC3 << 8
    (folder / "properties").write_text(f"simd_count 320\nsimd_per_cu 4\ndomain 0\nlocation_id {location}\n")
    return tmp_path / "sys"


class Node:
    """A node with one card, and the pods on it."""

    def __init__(self, vendor: str, folder: Path, sysfs: Path) -> None:
        self.device, self.folder, self.live = card(vendor), folder, set[str]()
        self._sysfs = sysfs
        for path in ("opt/hyhal", "opt/dtk"):
            (folder / path).mkdir(parents=True, exist_ok=True)
        self.restart()

    def restart(self) -> None:
        source, catalogue = ToolSource([]), Catalogue(())
        self.vendor = (
            HygonVendor(source, catalogue, sysfs=self._sysfs, root=self.folder)
            if self.device.vendor == "hygon"
            else AmdVendor(source, catalogue, sysfs=self._sysfs)
        )

    def path(self, pod: str) -> Path:
        return self.folder / "containers" / pod / "main"

    def give(self, pod: str, milliacu: int, memory: int = GIB) -> Instance | None:
        self.live.add(pod)
        wanted = Wanted(pod, "main", self.path(pod), lambda: frozenset(self.live))
        return self.vendor.instance(wanted, self.device, Grant(self.device.id, memory, milliacu))

    def record(self, pod: str) -> VdcuRecord:
        return parse_vdcu((self.path(pod) / "vdcu/vdev0.conf").read_text())


@pytest.fixture
def hygon(tmp_path: Path, sysfs: Path) -> Node:
    return Node("hygon", tmp_path, sysfs)


def test_a_share_of_a_dcu_is_a_record_mounted_read_only(hygon: Node) -> None:
    given = hygon.give("one", 25_000, 10 * GIB)
    assert given is not None
    assert (given.kind, given.percent, given.holds_memory) == ("vdcu", 25, True)
    assert {mount.destination: mount.source for mount in given.mounts} == {
        "/etc/vdev/docker": str(hygon.path("one") / "vdcu"),
        "/opt/hyhal": "/opt/hyhal",
        "/opt/hygondriver": "/opt/dtk",
    }
    assert all(mount.read_only for mount in given.mounts)
    assert hygon.record("one") == VdcuRecord("0000:C3:00.0", (1 << 20) - 1, 10 * 1024, 3, 0)
    assert [file.name for file in (hygon.path("one") / "vdcu").iterdir()] == ["vdev0.conf"], (
        "each file there is a device"
    )


def test_neighbours_have_other_units_and_other_pipes(hygon: Node) -> None:
    for pod in ("one", "two", "three"):
        hygon.give(pod, 30_000)
    records = [hygon.record(pod) for pod in ("one", "two", "three")]
    assert len({record.pipe for record in records}) == 3
    assert records[0].mask & records[1].mask & records[2].mask == 0
    assert (records[0].mask | records[1].mask | records[2].mask) == (1 << 72) - 1, "the second word is used too"
    with pytest.raises(RefusedError, match="8 are free"):
        hygon.give("four", 20_000)


def test_a_fifth_virtual_dcu_is_refused(hygon: Node) -> None:
    for number in range(4):
        hygon.give(f"pod-{number}", 5_000)
    with pytest.raises(RefusedError, match="4 instances"):
        hygon.give("five", 5_000)


def test_a_restart_finds_what_was_given(hygon: Node) -> None:
    hygon.give("one", 25_000)
    hygon.give("two", 25_000)
    before = hygon.record("two")
    hygon.restart()
    assert hygon.give("two", 25_000) is not None
    assert hygon.record("two") == before


def test_what_a_pod_had_is_free_when_it_is_gone_though_its_files_may_still_be_there(hygon: Node) -> None:
    hygon.give("one", 90_000)
    hygon.live.discard("one")
    assert hygon.give("two", 90_000) is not None
    assert hygon.record("two").pipe == 0


def test_a_file_that_cannot_be_read_frees_nothing(hygon: Node) -> None:
    hygon.give("one", 25_000)
    part = hygon.path("one") / "part.json"
    part.chmod(0o644)
    part.write_text("{")
    with pytest.raises(RefusedError) as refused:
        hygon.give("two", 25_000)
    assert refused.value.refusals[0].reason == "PartUnknown"


def test_pods_that_are_prepared_at_once_get_different_units(hygon: Node) -> None:
    """A part is chosen and written before the next one is looked for."""
    hygon.live |= {f"pod-{number}" for number in range(4)}
    gate = threading.Barrier(4)

    def prepare(number: int) -> None:
        gate.wait()
        hygon.give(f"pod-{number}", 20_000)

    threads = [threading.Thread(target=prepare, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = [hygon.record(f"pod-{number}") for number in range(4)]
    assert sorted(record.pipe for record in records) == [0, 1, 2, 3]
    assert sum(record.mask for record in records) == (1 << 64) - 1


@pytest.mark.parametrize("missing", ["opt/dtk", "opt/hyhal"])
def test_without_the_runtime_that_keeps_to_the_record_there_is_none(hygon: Node, missing: str) -> None:
    (hygon.folder / missing).rmdir()
    assert not hygon.vendor.divisible(hygon.device)
    assert hygon.give("one", 25_000) is None


def test_without_the_number_of_compute_units_a_dcu_is_given_whole(tmp_path: Path) -> None:
    node = Node("hygon", tmp_path, tmp_path / "sys")
    assert not node.vendor.divisible(node.device)


def test_amds_masks_do_not_overlap_and_come_in_pairs(tmp_path: Path, sysfs: Path) -> None:
    node = Node("amd", tmp_path, sysfs)
    masks = [given.env[0].value for given in (node.give("one", 25_000), node.give("two", 26_000)) if given is not None]
    assert masks == ["0:0-19", "0:20-39"]
    assert node.give("three", 0) is None, "no ACU asked for: nothing to hold"
    assert not node.vendor.divisible(node.device), "the mask holds no memory"
    given = node.give("four", 50_000)
    assert given is not None
    assert (given.env[0].value, given.percent, given.holds_memory) == ("0:40-79", 50, False)
    with pytest.raises(RefusedError):
        node.give("five", 10_000)
