"""Nearness from sysfs, on a tree of links like the kernel's."""

from pathlib import Path

import pytest

from hcs.model.devices import Device, Link
from hcs.vendors.pci import Port, absent, distance, normal, place_of, ports, unlisted, with_link, with_places

BEHIND_SWITCH = "pci0000:16/0000:16:02.0/0000:17:00.0/0000:18:{down}.0/0000:{bus}:00.0"
TREE = {
    "0000:19:00.0": (BEHIND_SWITCH.format(down="00", bus="19"), 0),
    "0000:1a:00.0": (BEHIND_SWITCH.format(down="04", bus="1a"), 0),
    "0000:1d:00.0": ("pci0000:16/0000:16:02.0/0000:17:00.0/0000:18:08.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0", 0),
    "0000:2a:00.0": ("pci0000:16/0000:16:04.0/0000:2a:00.0", 0),
    "0000:40:00.0": ("pci0000:3f/0000:3f:00.0/0000:40:00.0", 0),
    "0000:80:00.0": ("pci0000:7f/0000:7f:00.0/0000:80:00.0", 1),
}


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    listed = tmp_path / "bus/pci/devices"
    listed.mkdir(parents=True)
    for bus, (path, node) in TREE.items():
        folder = tmp_path / "devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "numa_node").write_text(f"{node}\n")
        (folder / "current_link_speed").write_text("2.5 GT/s PCIe\n")
        (folder / "max_link_speed").write_text("16.0 GT/s PCIe\n")
        (folder / "vendor").write_text("0x19e5\n")
        (folder / "device").write_text("0xd801\n" if bus != "0000:80:00.0" else "0x0001\n")
        (folder / "current_link_width").write_text("8\n")
        (folder / "max_link_width").write_text("16\n")
        (listed / bus).symlink_to(folder)
    adapter = tmp_path / "class/infiniband/mlx5_0"
    port = adapter / "ports/1"
    (port / "gids").mkdir(parents=True)
    (adapter / "device").symlink_to(tmp_path / "devices" / TREE["0000:2a:00.0"][0])
    for name, text in (("rate", "400 Gb/sec (4X NDR)"), ("link_layer", "InfiniBand"), ("state", "4: ACTIVE")):
        (port / name).write_text(f"{text}\n")
    (port / "gids/0").write_text("fe80:0000:0000:0001:b8ce:f603:0012:3456\n")
    return tmp_path


@pytest.mark.parametrize(
    ("other", "word"),
    [
        pytest.param("0000:1a:00.0", "PIX", id="one-switch"),
        pytest.param("0000:1d:00.0", "PXB", id="two-switches"),
        pytest.param("0000:2a:00.0", "PHB", id="one-host-bridge"),
        pytest.param("0000:40:00.0", "NODE", id="one-numa-node"),
        pytest.param("0000:80:00.0", "SYS", id="two-sockets"),
    ],
)
def test_two_cards_are_as_near_as_what_their_paths_share(sysfs: Path, other: str, word: str) -> None:
    here, there = place_of("00000000:19:00.0", sysfs), place_of(other, sysfs)
    assert here is not None
    assert there is not None
    assert (distance(here, there), distance(there, here)) == (word, word)
    assert (here.generation, here.generation_max, here.width, here.width_max, here.numa) == (1, 4, 8, 16, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:9B:00.0", "0000:9b:00.0"),
        ("0000:9b:00.0", "0000:9b:00.0"),
        ("9b:00.0", "0000:9b:00.0"),
        ("0000:9b:00", None),
        ("xxxx", None),
    ],
)
def test_every_tools_spelling_of_an_address_is_one(text: str, expected: str | None) -> None:
    assert normal(text) == expected


def test_the_tools_own_links_stay_and_the_rest_is_filled_in(sysfs: Path) -> None:
    cards = [
        Device(id="a", index=0, vendor="nvidia", model="A30", vram=1, bus_id="0000:19:00.0", links=(Link("b", "NV4"),)),
        Device(id="b", index=1, vendor="nvidia", model="A30", vram=1, bus_id="0000:1a:00.0", links=(Link("a", "NV4"),)),
        Device(id="c", index=2, vendor="nvidia", model="A30", vram=1, bus_id="0000:80:00.0", numa=7),
        Device(id="d", index=3, vendor="nvidia", model="A30", vram=1, bus_id="0000:ff:00.0"),
    ]
    a, b, c, d = with_places(cards, sysfs)
    assert (a.links, a.numa) == ((Link("b", "NV4"), Link("c", "SYS")), 0)
    assert (b.links, b.numa) == ((Link("a", "NV4"), Link("c", "SYS")), 0)
    assert (c.links, c.numa) == ((Link("a", "SYS"), Link("b", "SYS")), 7)
    assert d == cards[3], "what sysfs does not know stays unknown"


def test_a_tool_that_does_not_speak_of_its_link_is_helped_out(sysfs: Path) -> None:
    said = {"pcie_gen_current": None, "pcie_gen_max": 5, "pcie_width_current": None, "pcie_width_max": None}
    filled = with_link({"bus_id": "0000:19:00.0", **said}, sysfs)
    assert filled == {
        "bus_id": "0000:19:00.0",
        "pcie_gen_current": 1,
        "pcie_gen_max": 5,
        "pcie_width_current": 8,
        "pcie_width_max": 16,
    }
    assert with_link({"bus_id": "0000:99:00.0", **said}, sysfs)["pcie_width_max"] is None
    assert with_link({"bus_id": None, **said}, sysfs)["pcie_width_max"] is None


def test_cards_are_missed_on_either_side(sysfs: Path) -> None:
    listed = ["0000:19:00.0", "0000:1A:00.0", "0000:77:00.0"]
    assert absent(listed, sysfs) == {"0000:77:00.0"}
    assert absent(["0000:77:00.0", "0000:78:00.0"], sysfs) == frozenset(), "this sysfs is another machine's"
    assert unlisted(listed, sysfs) == {"0000:1d:00.0", "0000:2a:00.0", "0000:40:00.0"}, "the same make, not the other"
    assert unlisted([], sysfs) == frozenset()


def test_ports_say_into_which_fabric_they_are_plugged(sysfs: Path) -> None:
    assert ports(sysfs) == [Port("mlx5_0", 1, "0000:2a:00.0", 0, "InfiniBand", "ACTIVE", 400.0, "fe80:0000:0000:0001")]
    assert ports(sysfs / "none") == []
