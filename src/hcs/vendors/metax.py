"""MetaX cards through ``mx-smi``: the table for the figures, ``-L`` for ids and for cards that are not available."""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its tool."""
    if commands.find("mx-smi") is None:
        return None
    source = ToolSource([Query("mx-smi", ("-L",)), Query("mx-smi")], topology=Query("mx-smi", ("topo", "-m")))
    return SourcedVendor("metax", source, catalogue)
