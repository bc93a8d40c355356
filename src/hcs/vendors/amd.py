"""AMD cards: ROCm SMI's library where it is present, else ``rocm-smi``.

Not verified on hardware. The tool's JSON is asked for, since its table has neither names nor bus ids.
"""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.libraries.rocm import RocmSource
from hcs.vendors.source import Query, SourcedVendor, ToolSource

_SHOW = ("--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--showuse", "--showtemp")
_MORE = ("--showpower", "--showmaxpower", "--showreplaycount", "--showserial", "--showdriverversion", "--json")


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    if commands.find("hy-smi") is not None:  # Hygon's stack answers under the same names
        return None
    library = RocmSource.find(
        "amd", "librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so"
    )
    if library is not None:
        return SourcedVendor("amd", library, catalogue)
    if commands.find("rocm-smi") is None:
        return None
    query = Query("rocm-smi", (*_SHOW, *_MORE))
    return SourcedVendor("amd", ToolSource([query], topology=Query("rocm-smi", ("--showtopo",))), catalogue)
