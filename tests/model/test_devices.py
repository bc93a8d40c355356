"""A device and its node, on the wire and asked questions."""

import msgspec

from hcs.model.devices import Device, NodeInventory, Quarantine, Rate
from hcs.model.quantities import GIB

CARD = Device(
    id="GPU-1",
    index=0,
    vendor="nvidia",
    model="T4",
    vram=15 * GIB,
    rates=(Rate("gemm", 16_205, "measured", as_of="2026-11-20"), Rate("decode", 16_205, "derived")),
    fp16_mtflops=65_000,
)


def test_a_device_is_camel_case_on_the_wire_and_leaves_out_what_is_not_known():
    assert msgspec.json.decode(msgspec.json.encode(CARD)) == {
        "id": "GPU-1",
        "index": 0,
        "vendor": "nvidia",
        "model": "T4",
        "vram": 15 * GIB,
        "rates": [
            {"workload": "gemm", "milliacu": 16_205, "source": "measured", "asOf": "2026-11-20"},
            {"workload": "decode", "milliacu": 16_205, "source": "derived"},
        ],
        "fp16Mtflops": 65_000,
    }
    assert msgspec.json.decode(msgspec.json.encode(CARD), type=Device) == CARD


def test_a_rate_is_found_by_its_workload_class():
    assert CARD.rate() == CARD.rates[0]
    assert CARD.rate("decode") == CARD.rates[1]
    assert CARD.rate("pretrain") is None


def test_quarantine_names_one_device_or_all():
    one = NodeInventory("n", quarantine=(Quarantine("GPU-1", "EccError"),))
    assert one.quarantined("GPU-1") == Quarantine("GPU-1", "EccError")
    assert one.quarantined("GPU-2") is None
    everything = NodeInventory("n", quarantine=(Quarantine("*", "Maintenance"),))
    assert everything.quarantined("GPU-2") == Quarantine("*", "Maintenance")
