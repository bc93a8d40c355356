"""Vendors' libraries, played by small C libraries with the signatures of the public headers.

They show that arguments, structures and units are used as the headers say, not that a driver behaves so.
"""

import json
import os
import subprocess
import sys
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


NVML_STORY = """
import json
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import nvidia
vendor = nvidia.find(load_catalogue())
devices = vendor.probe()
first, second = vendor.read_health(), vendor.read_health()
print(json.dumps({
    "devices": [[d.id, d.index, d.model, d.vram >> 30, d.bus_id, {l.peer: l.kind for l in d.links}] for d in devices],
    "codes": [[seen.code for seen in first], [seen.code for seen in second]],
    "faults": [[f"{f.verdict} {f.reason}" for f in seen.faults] for seen in first],
    "figures": dict(first[2].figures),
    "driver": vendor.driver_versions(),
}))
"""


def test_nvml(build: Build) -> None:
    """Through the real binding, in a process of its own that finds our library under the driver's name."""
    library = Path(build("nvml"))
    library.rename(library.with_name("libnvidia-ml.so.1"))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([sys.executable, "-c", NVML_STORY], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    zero, one, two = (f"GPU-{number:08d}" for number in range(3))
    assert told["devices"] == [
        [zero, 7, "A30", 24, "00000000:3B:00.0", {one: "NV4", two: "PXB"}],
        [one, 6, "A30", 24, "00000000:3C:00.0", {zero: "NV4", two: "TNS"}],
        [two, 5, "A30", 24, "00000000:3D:00.0", {zero: "PXB", one: "TNS"}],
    ]
    assert told["codes"] == [[0, 79, 0], [0, 79, 0]], "an event is told once and remembered"
    assert told["faults"] == [
        ["SubHealthy RowRemapPending", "Healthy PcieGeneration"],
        ["Healthy PcieGeneration"],
        ["SubHealthy ThermalSlowdown", "Healthy PcieGeneration"],
    ]
    assert told["figures"] | {"slowdowns_in_a_row": {}} == {
        "utilization_pct": 50,
        "memory_used_mib": 3,
        "memory_total_mib": 24576,
        "temperature_c": 42,
        "power_w": 61.5,
        "power_cap_w": 165.0,
        "throttle_reasons": ["hw_slowdown", "hw_thermal"],
        "ecc_errors": 0,
        "row_remap_pending": False,
        "row_remap_failed": False,
        "pcie_gen_current": 1,
        "pcie_gen_max": 4,
        "pcie_width_current": 16,
        "pcie_width_max": 16,
        "pcie_replay": 7,
        "pcie_tx_kbps": 7,
        "pcie_rx_kbps": 8,
        "slowdowns_in_a_row": {},
    }
    assert told["driver"] == {"nvidia": "470.57.02"}
