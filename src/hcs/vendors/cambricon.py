"""Cambricon MLUs: CNDEV where the driver's library is present, with ``cnmon`` for what it leaves open; else ``cnmon``.

Not verified on hardware.
"""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.libraries.cndev import CndevSource
from hcs.vendors.source import FilledSource, Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    library = CndevSource.find("libcndev.so", "/usr/local/neuware/lib64/libcndev.so")
    if commands.find("cnmon") is None:
        return SourcedVendor("cambricon", library, catalogue) if library is not None else None
    tool = ToolSource([Query("cnmon")], topology=Query("cnmon", ("topo", "-m")))
    return SourcedVendor("cambricon", FilledSource(library, tool) if library is not None else tool, catalogue)
