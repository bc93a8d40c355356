"""``hcs fleet`` shows every card once, and never adds what was measured to what is only rated."""

import msgspec
import pytest

from hcs.cli.cluster import Cluster
from hcs.cli.fleet import totals, view_of
from hcs.model.devices import Device, NodeInventory, Rate

GIB = 1 << 30


def test_the_room_in_one_view(on_room):
    lines = on_room.text("fleet").splitlines()
    assert [line.split() for line in lines[:5]] == [
        ["NODE", "VENDOR", "MODEL", "CARDS", "FREE", "VRAM", "FREE", "ACU", "SOURCE", "HEALTH"],
        ["gpu-a", "nvidia", "A100-SXM4-80GB*", "2", "40/160Gi", "60/200", "measured", "Healthy"],
        ["gpu-b", "nvidia", "L40S*", "2", "48/96Gi", "102/204", "measured", "1", "of", "2", "Quarantined"],
        ["mlu-a", "cambricon", "MLU590", "1", "96/96Gi", "-", "unknown", "Healthy"],
        ["npu-a", "ascend", "Ascend910B2*", "4", "128/256Gi", "243.1/486.2", "measured", "Healthy"],
    ]
    assert lines[6:] == [
        "9 cards of 3 vendors on 4 nodes, 608Gi of memory, 312Gi free",
        "890.3 ACU measured, 405.1 free",
        "1 card of unknown compute: measure them",
        "* 8 of them emulated",
    ]


def test_the_same_as_data(on_room):
    data = on_room.data("fleet")
    assert (data["nodes"], data["cards"], data["vram"]) == (4, 9, 608 * GIB)
    assert data["compute"] == [{"source": "measured", "milliacu": 890_312, "milliacuFree": 405_156}]
    assert data["models"][1]["health"] == {"Healthy": 1, "Quarantined": 1}
    assert on_room.text("fleet", "-o", "name").splitlines()[0] == "gpu-a/nvidia/A100-SXM4-80GB"
    assert not on_room.text("fleet", "--no-headers").startswith("NODE")


def of(*devices: Device) -> Cluster:
    return Cluster("default", inventories=(NodeInventory("n", devices),))


def device(index: int, source: str, milliacu: int = 50_000, **changes) -> Device:
    rate = Rate("gemm", milliacu, source)
    plain = Device(str(index), index, "nvidia", "A30", 24 * GIB, rates=(rate,), verdict="Healthy")
    return msgspec.structs.replace(plain, **changes)


def test_compute_of_different_provenance_is_never_added():
    view = view_of(of(device(0, "measured"), device(1, "datasheet"), device(2, "datasheet"), device(3, "derived")))
    assert [(total.source, total.milliacu) for total in view.compute] == [
        ("measured", 50_000),
        ("datasheet", 100_000),
        ("derived", 50_000),
    ]
    assert [(cards.source, cards.count) for cards in view.models] == [("measured", 1), ("datasheet", 2), ("derived", 1)]
    assert totals(view)[1:] == ["50 ACU measured, 50 free", "100 ACU datasheet, 100 free", "50 ACU derived, 50 free"]


@pytest.mark.parametrize(
    ("changes", "health"),
    [
        ({"verdict": "Failed"}, "Failed"),
        ({"verdict": "Unknown"}, "Unknown"),
        ({"foreign": True}, "Foreign"),
    ],
)
def test_a_card_that_cannot_be_given_is_not_free(changes, health):
    view = view_of(of(device(0, "measured", **changes)))
    assert (view.vram, view.vram_free, view.compute[0].milliacu_free) == (24 * GIB, 0, 0)
    assert view.models[0].health == {health: 1}


def test_an_empty_cluster_says_what_may_be_wrong():
    view = view_of(Cluster("default"))
    assert (view.cards, view.models, view.compute) == (0, (), ())


def test_emulated_cards_say_so():
    card = device(0, "measured", emulated=True)
    assert totals(view_of(of(card)))[-1] == "* all of them emulated"
