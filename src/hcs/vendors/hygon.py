"""Hygon DCUs: the ROCm SMI library that its driver installs, else ``hy-smi``. Not verified on hardware."""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.libraries.rocm import RocmSource
from hcs.vendors.source import Query, SourcedVendor, ToolSource

_SHOW = ("--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--showuse", "--showtemp")
_MORE = ("--showpower", "--showmaxpower", "--showserial", "--json")
_LIBRARY = "/opt/hyhal/lib/librocm_smi64.so"


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    library = RocmSource.find("hygon", _LIBRARY)
    if library is not None:
        return SourcedVendor("hygon", library, catalogue)
    if commands.find("hy-smi") is None:
        return None
    query = Query("hy-smi", (*_SHOW, *_MORE))
    return SourcedVendor("hygon", ToolSource([query], topology=Query("hy-smi", ("--showtopo",))), catalogue)
