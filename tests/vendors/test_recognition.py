"""A card is what its driver says it is, and its rates are those of exactly that card."""

import pytest

from hcs.model.devices import Device
from hcs.ura.catalogue import load_catalogue
from hcs.vendors.recognition import recognise

GIB = 1 << 30


def seen(name: str, vendor: str, vram: int) -> Device:
    return recognise(load_catalogue(), vendor=vendor, name=name, id="id-0", index=0, vram=vram)


def test_a_known_card_has_its_rates_and_the_drivers_memory() -> None:
    device = seen("NVIDIA A100-SXM4-80GB", "nvidia", 79 * GIB)
    assert (device.model, device.vram) == ("A100-SXM4-80GB", 79 * GIB)
    rate = device.rate()
    assert rate is not None
    assert rate.milliacu == 100_000


@pytest.mark.parametrize(("name", "vendor"), [("Quantum 9000", "nvidia"), ("A100-SXM4-80GB", "ascend")])
def test_an_unknown_card_is_published_without_rates(name: str, vendor: str) -> None:
    device = seen(name, vendor, 16 * GIB)
    assert (device.model, device.vendor, device.vram, device.rates) == (name, vendor, 16 * GIB, ())
