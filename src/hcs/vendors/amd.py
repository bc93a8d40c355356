"""AMD cards: ROCm SMI's library where it is present, else ``rocm-smi``.

Not verified on hardware. The tool's JSON is asked for, since its table has neither names nor bus ids.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hcs.inject.adjustments import Variable
from hcs.inject.injection import NodeFiles
from hcs.inject.instances import HUNDRED, Instance, in_pairs, ranges, units_of
from hcs.model.allocations import Grant
from hcs.model.devices import Device
from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands, kfd, pci
from hcs.vendors.base import Vendor, Wanted
from hcs.vendors.libraries.rocm import RocmSource
from hcs.vendors.partitions import Partitions
from hcs.vendors.source import Query, Source, SourcedVendor, ToolSource

_SHOW = ("--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--showuse", "--showtemp")
_MORE = ("--showpower", "--showmaxpower", "--showreplaycount", "--showserial", "--showdriverversion", "--json")

_MOST_PARTS: Final = 256
"""Masks on one card: as many as the largest has pairs of compute units, and more."""


class AmdVendor(SourcedVendor):
    """AMD's cards; the kernel says how many compute units each has, by which a share of its compute is held."""

    def __init__(self, source: Source, catalogue: Catalogue, *, sysfs: Path = pci.SYSFS) -> None:
        """Prepare; nothing is asked before the first probe.

        Args:
            source: who lists the cards.
            catalogue: what they can do.
            sysfs: where the kernel shows its devices.
        """
        super().__init__("amd", source, catalogue)
        self._sysfs, self._partitions = sysfs, Partitions()

    def node_files(self, device: Device) -> NodeFiles:
        """The card's compute units; its files are in the profile."""
        return NodeFiles(compute_units=kfd.compute_units(device.bus_id or "", self._sysfs))

    def divisible(self, device: Device) -> bool:
        """Never: the mask holds compute alone."""
        return False

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance | None:
        """Compute units that no other container on the card has, in adjacent pairs, which RDNA wants; the container's
        one card is number 0. None where no ACU was asked for, or the card's units or its rate are not known.

        Raises:
            RefusedError: fewer units are left than the share has.
            OSError: the choice cannot be written down.
        """
        units, rate = self.node_files(device).compute_units, device.rate()
        if units < 2 or rate is None or not 0 < grant.milliacu < rate.milliacu:
            return None
        count = units_of(device, grant, units // 2)
        part = self._partitions.part(wanted, device, units // 2, count, _MOST_PARTS)
        mask = in_pairs(part.mask)
        percent = max(1, mask.bit_count() * HUNDRED // units)
        return Instance("cu-mask", percent, False, env=(Variable("HSA_CU_MASK", f"0:{ranges(mask)}"),))

    def keep(self, live: Callable[[], frozenset[str]]) -> None:
        """Nothing to take back: the choice goes with the container's folder."""


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    if commands.find("hy-smi") is not None:  # Hygon's stack answers under the same names
        return None
    library = RocmSource.find(
        "amd", "librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so"
    )
    if library is not None:
        return AmdVendor(library, catalogue)
    if commands.find("rocm-smi") is None:
        return None
    query = Query("rocm-smi", (*_SHOW, *_MORE))
    return AmdVendor(ToolSource([query], topology=Query("rocm-smi", ("--showtopo",))), catalogue)
