"""The RDMA adapters of this node, and which cards each stands next to; network flags and placement need them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from hcs.model.devices import Device, Nic
from hcs.vendors.pci import SYSFS, Port, distance, place_of, ports

KINDS: Final = {"InfiniBand": "infiniband", "Ethernet": "roce"}
ACTIVE: Final = "ACTIVE"


def adapters(devices: Sequence[Device], sysfs: Path = SYSFS) -> tuple[Nic, ...]:
    """Every adapter with a live port, by name.

    The network of an InfiniBand port is its subnet prefix; an Ethernet port does not say which network it is in, so
    that stays empty until a person states the node's. A port that is down is left out: nothing can be sent through it.
    """
    return tuple(_adapters(ports(sysfs), devices, sysfs))


def _adapters(found: Iterable[Port], devices: Sequence[Device], sysfs: Path) -> Iterable[Nic]:
    live: dict[str, list[Port]] = {}
    for port in found:
        if port.state == ACTIVE:
            live.setdefault(port.name, []).append(port)
    for name, its in sorted(live.items()):
        first = its[0]
        rates = [port.gbps for port in its]
        yield Nic(
            name=name,
            fabric=next((port.fabric for port in its if port.fabric), ""),
            kind=KINDS.get(first.protocol, first.protocol.lower()),
            numa=first.numa,
            # Gigabits one way to megabytes both ways, all ports together.
            mbps=None if None in rates else round(sum(rate or 0 for rate in rates) * 1000 / 8 * 2),
            near=_near(first, devices, sysfs),
        )


def _near(port: Port, devices: Sequence[Device], sysfs: Path) -> tuple[str, ...]:
    here = place_of(port.bus_id, sysfs) if port.bus_id else None
    if here is None:
        return ()
    return tuple(
        device.id
        for device in devices
        if device.bus_id and (there := place_of(device.bus_id, sysfs)) is not None and distance(here, there) == "PIX"
    )
