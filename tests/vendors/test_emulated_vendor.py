"""Emulated cards go the same way as real ones, and say that they are emulated."""

from pathlib import Path

import pytest

from hcs.inject.builtin import builtin_profiles
from hcs.inject.vdcu import parse_vdcu
from hcs.model.allocations import Grant
from hcs.model.devices import Link
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import emulated
from hcs.vendors.base import HealthObservation, Vendor, VendorError, Wanted
from hcs.vendors.emulated_vendor import EmulatedVendor

GIB = 1 << 30
A100 = "GPU-00000000-0000-0000-0000-000000000001"


def put(folder: Path, vendor: str = "nvidia", model: str = "A100-SXM4-80GB", index: int = 0, uuid: str = A100) -> Path:
    path = folder / f"{vendor}{index}.card"
    bus_id = "0000:c3:00.0" if vendor == "hygon" else ""
    emulated.create_card(path, vendor=vendor, model=model, uuid=uuid, index=index, total_bytes=64 * GIB, bus_id=bus_id)
    return path


def make(folder: Path, drivers: Path | None = None) -> EmulatedVendor:
    return EmulatedVendor(
        folder, catalogue=load_catalogue(), profiles=builtin_profiles(), drivers=lambda vendor: drivers
    )


def test_a_card_file_is_a_device_with_the_catalogues_rates(tmp_path: Path) -> None:
    put(tmp_path)
    (tmp_path / "README").write_text("not a card")
    vendor: Vendor = make(tmp_path)
    (device,) = vendor.probe()
    assert (device.id, device.vendor, device.model, device.index) == (A100, "nvidia", "A100-SXM4-80GB", 0)
    assert (device.vram, device.emulated, device.bus_id) == (64 * GIB, True, None)
    assert device.rate() is not None


def test_faults_are_read_with_the_vendors_own_codes(tmp_path: Path) -> None:
    first = put(tmp_path)
    second = put(tmp_path, "ascend", "Ascend910B2", 3, "npu-3")
    vendor = make(tmp_path)
    vendor.probe()
    assert vendor.read_health() == [HealthObservation("npu-3"), HealthObservation(A100)]
    emulated.inject_fault(first, 79, "fell off the bus")
    emulated.inject_fault(second, 0x80E18402 - (1 << 32), "separate")
    assert {seen.device: (seen.code, seen.name) for seen in vendor.read_health()} == {
        A100: (79, "fell off the bus"),
        "npu-3": (0x80E18402, "separate"),
    }
    emulated.clear_fault(first)
    assert HealthObservation(A100) in vendor.read_health()


def test_a_card_that_was_pulled_out_is_not_in_the_answer(tmp_path: Path) -> None:
    path = put(tmp_path)
    vendor = make(tmp_path)
    vendor.probe()
    path.unlink()
    assert vendor.read_health() == []


def test_containers_get_the_card_file_as_device_node_and_the_emulated_driver(tmp_path: Path) -> None:
    cards, drivers = tmp_path / "cards", tmp_path / "drivers"
    cards.mkdir()
    path = put(cards, "ascend", "Ascend910B2", 3, "npu-3")
    vendor = make(cards, drivers)
    (device,) = vendor.probe()
    files = vendor.node_files(device)
    assert [(node.path, node.source) for node in files.devices] == [("/dev/davinci3", str(path))]
    assert [(mount.source, mount.destination) for mount in files.mounts] == [
        (str(drivers), "/usr/local/Ascend/driver/lib64")
    ]


def test_vendors_whose_nodes_are_not_numbered_get_a_name_that_says_so(tmp_path: Path) -> None:
    put(tmp_path, "hygon", "K100", 1, "dcu-1")
    vendor = make(tmp_path)
    (device,) = vendor.probe()
    files = vendor.node_files(device)
    assert [node.path for node in files.devices] == ["/dev/emulated-hygon1"]
    assert files.mounts == (), "there is no emulated driver for it"


def test_two_files_with_one_identity_are_refused(tmp_path: Path) -> None:
    put(tmp_path, index=0)
    put(tmp_path, index=1)
    with pytest.raises(VendorError, match=r"nvidia0.card and nvidia1.card have the same id"):
        make(tmp_path).probe()


def test_a_directory_that_is_not_there_is_an_error_not_an_empty_node(tmp_path: Path) -> None:
    with pytest.raises(VendorError, match="cannot list emulated cards"):
        make(tmp_path / "missing").probe()


def test_cards_whose_shares_nothing_enforces_say_so(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, vendor="cambricon", model="MLU370-X8", uuid="MLU-1")
    put(tmp_path, vendor="hygon", model="K100", uuid="DCU-1")
    whole_only = {found.vendor: found.whole_only for found in make(tmp_path).probe()}
    assert whole_only == {"nvidia": False, "cambricon": True, "hygon": False}


def test_an_emulated_dcu_is_split_by_records_that_its_driver_reads(tmp_path: Path) -> None:
    (tmp_path / "cards").mkdir()
    put(tmp_path / "cards", vendor="hygon", model="K100", uuid="DCU-1")
    vendor = make(tmp_path / "cards")
    [card] = vendor.probe()
    wanted = Wanted("pod", "main", tmp_path / "containers/pod/main", lambda: frozenset({"pod"}))
    given = vendor.instance(wanted, card, Grant(card.id, card.vram // 4, 0))
    assert given is not None
    assert (given.kind, given.percent) == ("vdcu", 25)
    record = parse_vdcu((Path(given.mounts[0].source) / "vdev0.conf").read_text())
    assert (record.mask.bit_count(), record.mebibytes) == (16, card.vram // 4 >> 20)


def test_where_a_card_sits_is_said_beside_it(tmp_path: Path) -> None:
    """Links and NUMA node are no part of the card file, whose layout the drivers share; nonsense is not believed."""
    first, second = put(tmp_path, uuid="a"), put(tmp_path, index=1, uuid="b")
    emulated.write_place(first, numa=1, links=[Link("b", "NV12", 200_000)])
    emulated.write_place(second, numa=None, links=[])
    assert not second.with_suffix(".place").exists()
    one, other = make(tmp_path).probe()
    assert (one.numa, one.links) == (1, (Link("b", "NV12", 200_000),))
    assert (other.numa, other.links) == (None, ())
    first.with_suffix(".place").write_text("[")
    assert make(tmp_path).probe()[0].links == ()
