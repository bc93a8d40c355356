"""AMD cards: ROCm SMI's library where it is present, else ``rocm-smi``.

Not verified on hardware. The tool's JSON is asked for, since its table has neither names nor bus ids.
"""

from pathlib import Path

from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device
from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands, kfd, pci
from hcs.vendors.base import Vendor
from hcs.vendors.libraries.rocm import RocmSource
from hcs.vendors.source import Query, SourcedVendor, ToolSource

_SHOW = ("--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--showuse", "--showtemp")
_MORE = ("--showpower", "--showmaxpower", "--showreplaycount", "--showserial", "--showdriverversion", "--json")


class AmdVendor(SourcedVendor):
    """AMD's cards; the kernel says how many compute units each has, by which a share of its compute is held."""

    def node_files(self, device: Device, sysfs: Path = pci.SYSFS) -> NodeFiles:
        """The card's compute units; its files are in the profile."""
        return NodeFiles(compute_units=kfd.compute_units(device.bus_id or "", sysfs))


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    if commands.find("hy-smi") is not None:  # Hygon's stack answers under the same names
        return None
    library = RocmSource.find(
        "amd", "librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so"
    )
    if library is not None:
        return AmdVendor("amd", library, catalogue)
    if commands.find("rocm-smi") is None:
        return None
    query = Query("rocm-smi", (*_SHOW, *_MORE))
    return AmdVendor("amd", ToolSource([query], topology=Query("rocm-smi", ("--showtopo",))), catalogue)
