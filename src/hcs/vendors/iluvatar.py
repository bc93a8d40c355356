"""Iluvatar cards through ``ixsmi``. Its table gives what its queries cannot, among it the bus id."""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its tool."""
    if commands.find("ixsmi") is None:
        return None
    source = ToolSource([Query("ixsmi")], topology=Query("ixsmi", ("topo", "-m")))
    return SourcedVendor("iluvatar", source, catalogue)
