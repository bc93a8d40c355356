"""How many compute units the kernel's ROCm driver says a card has, on a tree of files like its own."""

from pathlib import Path

import pytest

from hcs.model.devices import Device
from hcs.ura.catalogue import Catalogue
from hcs.vendors.amd import AmdVendor
from hcs.vendors.kfd import compute_units
from hcs.vendors.source import ToolSource

NODES = [
    "cpu_cores_count 64\nsimd_count 0\nsimd_per_cu 0\nlocation_id 0\ndomain 0\n",
    "simd_count 416\nsimd_per_cu 4\nlocation_id 49920\ndomain 0\nunique_id 17 18\n",  # 0000:c3:00.0
    "simd_count 160\nsimd_per_cu 2\nlocation_id 49920\ndomain 1\n",  # 0001:c3:00.0
    "simd_count 152\nsimd_per_cu 4\nlocation_id 768\ndomain 0\n",  # 0000:03:00.0, two partitions
    "simd_count 152\nsimd_per_cu 4\nlocation_id 769\ndomain 0\n",
    "simd_count what\nsimd_per_cu 4\nlocation_id 1024\ndomain 0\n",
]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for number, text in enumerate(NODES):
        folder = tmp_path / f"class/kfd/kfd/topology/nodes/{number}"
        folder.mkdir(parents=True)
        (folder / "properties").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("bus_id", "units"),
    [
        ("0000:c3:00.0", 104),
        ("00000000:C3:00.0", 104),
        ("0001:c3:00.0", 80),
        ("0000:00:00.0", 0),  # where the processors say they are
        ("0000:03:00.0", 0),  # in partitions: which one is meant is not known
        ("0000:04:00.0", 0),
        ("0000:c4:00.0", 0),
        ("", 0),
    ],
)
def test_the_units_are_those_of_the_card_at_this_place(sysfs: Path, bus_id: str, units: int) -> None:
    assert compute_units(bus_id, sysfs) == units


def test_a_machine_without_the_driver_says_nothing(tmp_path: Path) -> None:
    assert compute_units("0000:c3:00.0", tmp_path) == 0


def test_the_vendor_tells_them_to_injection(sysfs: Path) -> None:
    vendor = AmdVendor(ToolSource([]), Catalogue(()), sysfs=sysfs)
    card = Device("GPU-1", 0, "amd", "MI210", 64 << 30, bus_id="0000:c3:00.0")
    assert vendor.node_files(card).compute_units == 104
