"""Adapters as the kernel shows them, next to the cards they share a switch with."""

from pathlib import Path

from hcs.agent.networks import adapters
from hcs.model.devices import Device, Nic

GPU, FAR, ADAPTER = "0000:41:00.0", "0000:81:00.0", "0000:42:00.0"


def machine(
    sysfs: Path, *, state: str = "4: ACTIVE", layer: str = "InfiniBand", rate: str = "400 Gb/sec (4X NDR)"
) -> None:
    """A switch with a card and an adapter, and a card elsewhere."""
    for path in (
        f"pci0000:40/0000:40:01.0/0000:3f:00.0/0000:3e:00.0/{GPU}",
        f"pci0000:40/0000:40:01.0/0000:3f:00.0/0000:3e:01.0/{ADAPTER}",
        f"pci0000:80/0000:80:01.0/{FAR}",
    ):
        folder = sysfs / "devices" / path
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text("1\n")
        link = sysfs / "bus/pci/devices" / folder.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    port = sysfs / "class/infiniband/mlx5_0/ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "gids/0").write_text("fe80:0000:0000:0001:0000:0000:0000:0001\n")
    for name, text in (("state", state), ("link_layer", layer), ("rate", rate)):
        (port / name).write_text(f"{text}\n")
    (sysfs / "class/infiniband/mlx5_0/device").symlink_to(sysfs / "bus/pci/devices" / ADAPTER)


CARDS = (
    Device("near", 0, "nvidia", "H100", 1, bus_id=GPU),
    Device("far", 1, "nvidia", "H100", 1, bus_id=FAR),
    Device("nowhere", 2, "nvidia", "H100", 1),
)


def test_an_adapter_knows_its_network_its_rate_and_its_cards(tmp_path: Path) -> None:
    machine(tmp_path)
    assert adapters(CARDS, tmp_path) == (
        Nic("mlx5_0", "fe80:0000:0000:0001", "infiniband", numa=1, mbps=100_000, near=("near",)),
    )


def test_an_ethernet_port_does_not_say_its_network(tmp_path: Path) -> None:
    machine(tmp_path, layer="Ethernet", rate="what?")
    (nic,) = adapters(CARDS, tmp_path)
    assert (nic.kind, nic.fabric, nic.mbps) == ("roce", "", None)


def test_a_port_that_is_down_is_no_adapter(tmp_path: Path) -> None:
    machine(tmp_path, state="1: DOWN")
    assert adapters(CARDS, tmp_path) == ()
    assert adapters(CARDS, tmp_path / "empty") == ()
