"""How many compute units a ROCm card has, as the kernel's compute driver lists it in sysfs.

Each folder of ``class/kfd/kfd/topology/nodes`` has a file ``properties`` with a name and a number on each line. Names
used, as in Linux, ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c``: ``domain`` and ``location_id`` (``bus << 8 |
device << 3``) are the place on the bus, where the remaining bits may number a card's partitions; ``simd_count`` counts
the units in use times ``simd_per_cu``. Not verified on hardware.
"""

import re
from pathlib import Path
from typing import Final

from hcs.vendors import pci

_ADDRESS: Final = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.[0-7]")
_BUS_AND_DEVICE: Final = 0xFFF8


def compute_units(bus_id: str, sysfs: Path = pci.SYSFS) -> int:
    """Compute units of the card at this place; 0 where the kernel does not list it, or lists partitions of it."""
    address = _ADDRESS.fullmatch(pci.normal(bus_id) or "")
    if address is None:
        return 0
    domain, bus, device = (int(part, 16) for part in address.groups())
    place = (domain, bus << 8 | device << 3)
    found = []
    for file in sorted((sysfs / "class/kfd/kfd/topology/nodes").glob("*/properties")):
        node = _read(file)
        here = (node.get("domain", 0), node.get("location_id", 0) & _BUS_AND_DEVICE)
        if here == place and node.get("simd_per_cu", 0) > 0:
            found.append(node.get("simd_count", 0) // node["simd_per_cu"])
    return found[0] if len(found) == 1 else 0


def _read(file: Path) -> dict[str, int]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):  # the kernel hides nodes whose device this process may not use
        return {}
    pairs = [line.split() for line in lines]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
