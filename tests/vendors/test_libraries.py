"""Vendors' libraries, played by small C libraries with the signatures of the public headers.

They show that arguments, structures and units are used as the headers say, not that a driver behaves so.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcs.vendors.libraries.cndev import CndevSource
from hcs.vendors.libraries.dcmi import DcmiSource
from hcs.vendors.libraries.mtml import MtmlSource
from hcs.vendors.libraries.rocm import RocmSource

PROGRAMS = Path(__file__).parent / "programs"
Build = Callable[[str], str]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("libraries")

    def one(name: str) -> str:
        target = folder / f"{name}.so"
        flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-Wno-stringop-truncation"]
        subprocess.run(["cc", *flags, "-o", target, PROGRAMS / f"{name}.c"], check=True)
        return str(target)

    return one


def known(device: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in device.items() if value is not None}


def test_a_machine_without_the_libraries_has_no_sources() -> None:
    nowhere = "/nowhere/lib.so"
    assert RocmSource.find("amd", nowhere) is None
    assert DcmiSource.find(nowhere) is None
    assert CndevSource.find(nowhere) is None
    assert MtmlSource.find(nowhere) is None


def test_rocm_smi(build: Build) -> None:
    source = RocmSource.find("amd", "/nowhere/lib.so", build("rocm"))
    assert source is not None
    first, second = source.read()
    assert known(first) == {
        "index": 0,
        "vendor": "amd",
        "name": "AMD Instinct MI210",
        "uuid": "0xabc0",
        "bus_id": "0001:83:02.1",
        "memory_total_mib": 65536,
        "memory_used_mib": 1,
        "utilization_pct": 40,
        "temperature_c": 45,
        "power_w": 91.5,
        "power_cap_w": 300,
        "pcie_replay": 7,
    }
    assert (second["power_w"], second["power_cap_w"], second["temperature_c"]) == (None, None, 61)
    topology = source.topology()
    assert topology is not None
    assert (topology.gpus, topology.links) == (("GPU0", "GPU1"), {"GPU0-GPU1": "XGMI"})
    assert source.driver() == "6.10.5"


def test_dcmi(build: Build) -> None:
    source = DcmiSource.find(build("dcmi"))
    assert source is not None
    first, second = source.read()
    assert known(first) == {
        "index": 4,
        "vendor": "ascend",
        "name": "910B3",
        "bus_id": "0000:c1:00.0",
        "memory_total_mib": 65536,
        "memory_used_mib": 3300,
        "utilization_pct": 33,
        "temperature_c": 41,
        "power_w": 162.6,
        "health": "OK",
        "ecc_mode": "Enabled",
        "ecc_errors": 0,
        "npu_id": 9,
        "chip_id": 0,
    }
    assert (second["index"], second["power_w"], second["health"], second["ecc_errors"]) == (5, None, "Alarm", 1)
    assert second["error_codes"] == ["80C98001"]
    topology = source.topology()
    assert topology is not None
    assert topology.links == {"NPU0-NPU1": "SIO"}
    assert source.driver() == "25.5.2"


def test_mtml(build: Build) -> None:
    source = MtmlSource.find(build("mtml"))
    assert source is not None
    (card,) = source.read()
    assert known(card) == {
        "index": 0,
        "vendor": "mthreads",
        "name": "MTT S4000",
        "uuid": "399282a8-ba01-1475-893c-2eeca9e302f5",
        "memory_total_mib": 49152,
        "memory_used_mib": 5,
        "utilization_pct": 12,
        "temperature_c": 52,
    }


def test_cndev(build: Build) -> None:
    source = CndevSource.find(build("cndev"))
    assert source is not None
    first, second, lost = source.read()
    assert (first["name"], first["uuid"]) == ("MLU590-M9", "20010001-0000-0000-0000-00000000000"[:34] + "0")
    assert second["uuid"] != first["uuid"]
    assert known(lost) == {"index": 2, "vendor": "cambricon"}
    assert source.driver() == "6.2.10"
