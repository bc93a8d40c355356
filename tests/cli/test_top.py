"""``hcs top``: one line a card, the same for every vendor, and a bar that never hides a tenant."""

import msgspec
from tests.cli.room import Hcs

from hcs.cli.devices import Row
from hcs.cli.top import _BAR, lines
from hcs.model.devices import Device, Quarantine, Rate

CARD = Device("d", 0, "ascend", "910B2", 64 << 30, rates=(Rate("gemm", 100_000, "measured"),), verdict="Healthy")


def text(*rows: Row) -> list[str]:
    return ["".join(piece for piece, _ in line) for line in lines(list(rows))]


def test_the_room(on_room: Hcs):
    shown = on_room.text("top", "--once").splitlines()
    assert shown[0].startswith("9 cards, ")
    assert "1 not well" in shown[0] or "2 not well" in shown[0]
    assert shown[2].split()[:3] == ["CARD", "MODEL", "VRAM"]
    assert [line.split()[0] for line in shown[3:12]] == sorted(
        ["gpu-a/0", "gpu-a/1", "gpu-b/0", "gpu-b/1", "mlu-a/0", "npu-a/0", "npu-a/1", "npu-a/2", "npu-a/3"]
    )
    assert any("Quarantined: Xid79" in line for line in shown)
    assert any("default/share-1, default/share-2" in line for line in shown)


def test_one_node_one_vendor_and_data(on_room: Hcs):
    assert len([line for line in on_room.text("top", "--node", "npu-a").splitlines() if line.startswith("npu-a/")]) == 4
    data = on_room.data("top", "--vendor", "cambricon")
    assert [(row["node"], row["device"]["model"]) for row in data] == [("mlu-a", "MLU590")]
    assert on_room.text("top", "--vendor", "metax") == "no cards\n"


def test_too_often_is_refused(on_room: Hcs):
    result = on_room("top", "--every", "0.1")
    assert (result.exit_code, result.stdout) == (2, "")


def test_bars_are_as_long_as_what_is_held():
    for used, full in ((0, 0), (1, 1), (32 << 30, _BAR // 2), (64 << 30, _BAR), (99 << 30, _BAR)):
        (line,) = (line for line in text(Row("n", CARD, used, 0, ())) if line.startswith("n/0"))
        assert line.count("█") == full
    unknown = msgspec.structs.replace(CARD, rates=(), verdict="Failed", verdict_reason="FellOffTheBus")
    (line,) = (line for line in text(Row("n", unknown, 0, 0, ("a/b",))) if line.startswith("n/0"))
    assert "Failed: FellOffTheBus  a/b" in line
    (line,) = (line for line in text(Row("n", CARD, 0, 0, (), Quarantine("d", "Drill"))) if line.startswith("n/0"))
    assert "Quarantined: Drill" in line
