"""Enflame cards through ``efsmi -q``, which unlike the table says how much memory is used."""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its tool."""
    if commands.find("efsmi") is None:
        return None
    return SourcedVendor("enflame", ToolSource([Query("efsmi", ("-q",))]), catalogue)
