"""Where cards and network ports stand in the machine, as sysfs knows it, whatever the vendors' tools say.

Two devices are as near as the last thing their paths share: one PCIe switch, several, a host bridge, a NUMA node, or
only the link between sockets; the words are those of the tools (``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS``). Ports
come with what RDMA they speak, how fast, and into which fabric they are plugged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.model.devices import Device, Link
from hcs.vendors.parsing import values

_LINK: Final = ("pcie_gen_current", "pcie_gen_max", "pcie_width_current", "pcie_width_max")
SYSFS: Final = Path("/sys")
_FUNCTION: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


class Place(msgspec.Struct, frozen=True):
    """A device's path from its host bridge down, its NUMA node, and its link, as far as sysfs says.

    ``generation`` is PCIe's, ``width`` in lanes.
    """

    bus_id: str
    path: tuple[str, ...] = ()
    numa: int | None = None
    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None


class Port(msgspec.Struct, frozen=True):
    """An RDMA port: ``fabric`` is the subnet's prefix on InfiniBand, else empty; ``gbps`` in gigabits per second."""

    name: str
    number: int
    bus_id: str | None = None
    numa: int | None = None
    protocol: str = ""
    state: str = ""
    gbps: float | None = None
    fabric: str = ""


def normal(bus_id: str) -> str | None:
    """A PCI address as sysfs spells it; None where it is none: ``00000000:9B:00.0`` is ``0000:9b:00.0``."""
    domain, _, rest = bus_id.lower().rpartition(":")[0].rpartition(":")
    tail = bus_id.lower().rpartition(":")[2]
    found = f"{(domain or '0000')[-4:].rjust(4, '0')}:{rest}:{tail}"
    return found if _FUNCTION.fullmatch(found) else None


def place_of(bus_id: str, sysfs: Path = SYSFS) -> Place | None:
    """Where a device stands; None where sysfs does not have it."""
    name = normal(bus_id)
    folder = sysfs / "bus/pci/devices" / (name or "none")
    if name is None or not folder.exists():
        return None
    parts = [part for part in folder.resolve().parts if _FUNCTION.fullmatch(part) or _ROOT.fullmatch(part)]
    return Place(
        bus_id=name,
        path=tuple(parts),
        numa=_node(folder),
        generation=_generation(_word(folder / "current_link_speed")),
        generation_max=_generation(_word(folder / "max_link_speed")),
        width=_positive(_word(folder / "current_link_width")),
        width_max=_positive(_word(folder / "max_link_width")),
    )


def distance(one: Place, other: Place) -> str:
    """The word for how near two devices are."""
    shared = 0
    for left, right in zip(one.path, other.path, strict=False):
        if left != right:
            break
        shared += 1
    if shared == 0:
        same = one.numa is not None and one.numa == other.numa
        return "NODE" if same else "SYS"
    if shared == 1:  # the host bridge alone
        return "PHB"
    between = (len(one.path) - shared - 1) + (len(other.path) - shared - 1)
    # Below one switch both hang on downstream ports of it; each further switch adds two bridges.
    return "PIX" if between <= 2 else "PXB"


def with_places(devices: Sequence[Device], sysfs: Path = SYSFS) -> list[Device]:
    """Devices with NUMA node and links from sysfs, where their vendor has not said them."""
    places = {device.id: place_of(device.bus_id, sysfs) if device.bus_id else None for device in devices}
    found = []
    for device in devices:
        here = places[device.id]
        if here is None:
            found.append(device)
            continue
        linked = {link.peer for link in device.links}
        more = tuple(
            Link(peer, distance(here, there))
            for peer, there in places.items()
            if there is not None and peer != device.id and peer not in linked
        )
        numa = device.numa if device.numa is not None else here.numa
        found.append(msgspec.structs.replace(device, numa=numa, links=(*device.links, *more)))
    return found


def with_link(reading: Mapping[str, Any], sysfs: Path = SYSFS) -> dict[str, Any]:
    """A reading with the PCIe link as sysfs has it, for tools that do not say. Four small reads, none where they do."""
    filled = dict(reading)
    if filled["bus_id"] is None or all(filled[key] is not None for key in _LINK):
        return filled
    place = place_of(filled["bus_id"], sysfs)
    if place is not None:
        for key, value in zip(
            _LINK, (place.generation, place.generation_max, place.width, place.width_max), strict=True
        ):
            filled[key] = value if filled[key] is None else filled[key]
    return filled


def absent(bus_ids: Iterable[str], sysfs: Path = SYSFS) -> frozenset[str]:
    """Those of some addresses that are not on the bus; none where not a single one is, for then sysfs is not ours."""
    asked = frozenset(bus_ids)
    there = frozenset(bus for bus in asked if place_of(bus, sysfs) is not None)
    return asked - there if there else frozenset()


def unlisted(bus_ids: Iterable[str], sysfs: Path = SYSFS) -> frozenset[str]:
    """Devices of the same make on the bus that are not among these addresses: cards that a tool has lost."""
    known = {name for bus in bus_ids if (name := normal(bus)) is not None}
    folder = sysfs / "bus/pci/devices"
    makes = {_make(folder / bus) for bus in known} - {None}
    if not makes:
        return frozenset()
    return frozenset(path.name for path in folder.glob("*") if path.name not in known and _make(path) in makes)


def _make(folder: Path) -> tuple[str, str] | None:
    maker, model = _word(folder / "vendor"), _word(folder / "device")
    return (maker, model) if maker and model else None


def ports(sysfs: Path = SYSFS) -> list[Port]:
    """Every RDMA port of the machine, by name."""
    found = []
    for adapter in sorted((sysfs / "class/infiniband").glob("*")):
        parts = [part for part in (adapter / "device").resolve().parts if _FUNCTION.fullmatch(part)]
        for port in sorted((adapter / "ports").glob("[0-9]*")):
            rate = _word(port / "rate")
            protocol = _word(port / "link_layer") or ""
            prefix = _word(port / "gids/0") or ""
            found.append(
                Port(
                    name=adapter.name,
                    number=int(port.name),
                    bus_id=parts[-1] if parts else None,
                    numa=_node(adapter / "device"),
                    protocol=protocol,
                    state=(_word(port / "state") or "").partition(": ")[2],
                    gbps=float(rate.split()[0]) if rate and re.match(r"[0-9.]+ Gb/sec", rate) else None,
                    fabric=":".join(prefix.split(":")[:4]) if protocol == "InfiniBand" else "",
                )
            )
    return found


def _word(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def _node(folder: Path) -> int | None:
    text = _word(folder / "numa_node")
    return int(text) if text is not None and text.isdecimal() else None  # -1 where the machine has no nodes


def _generation(text: str | None) -> int | None:
    match = re.match(r"([0-9.]+) GT/s", text or "")
    return values.generation_of_speed(f"{match.group(1)}GT/s") if match else None


def _positive(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and 0 < int(text) < 255 else None
