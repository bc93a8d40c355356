"""NVIDIA through NVML. What needs a card is not tested here; see the module's own note."""

import pytest

from hcs.ura.catalogue import load_catalogue
from hcs.vendors import nvidia
from hcs.vendors.base import HealthObservation, Vendor
from hcs.vendors.nvidia import NvidiaVendor


def driverless() -> bool:
    if nvidia.pynvml is None:
        return True
    try:
        nvidia.pynvml.nvmlInit()
    except nvidia.pynvml.NVMLError:
        return True
    return False


@pytest.mark.skipif(not driverless(), reason="this machine has an NVIDIA driver")
def test_a_machine_without_the_driver_has_no_such_vendor() -> None:
    assert NvidiaVendor.find(load_catalogue()) is None


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        pytest.param([31, 13], 0, id="faults-of-programs-are-no-faults-of-the-card"),
        pytest.param([94, 79], 79, id="the-worse-one-replaces"),
        pytest.param([79, 94], 79, id="the-worse-one-stays"),
        pytest.param([79, 31], 79, id="a-harmless-one-heals-nothing"),
    ],
)
def test_the_worst_event_of_a_card_is_remembered(codes: list[int], expected: int) -> None:
    vendor = NvidiaVendor(load_catalogue())
    typed: Vendor = vendor
    for code in codes:
        vendor.remember("GPU-1", code)
    assert typed.word == "nvidia"
    assert vendor.worst("GPU-1") == HealthObservation(
        "GPU-1", expected, f"Xid {expected}" if expected else "", told=True
    )
    vendor.forget("GPU-1")
    assert vendor.worst("GPU-1").code == 0
