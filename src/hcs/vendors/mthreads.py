"""Moore Threads cards: MTML where the driver's library is present, else ``mthreads-gmi``. Not verified on hardware."""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.libraries.mtml import MtmlSource
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    library = MtmlSource.find("libmtml.so", "libmtml.so.2", "libmtml.so.1")
    if library is not None:
        return SourcedVendor("mthreads", library, catalogue)
    if commands.find("mthreads-gmi") is None:
        return None
    topology = Query("mthreads-gmi", ("topo", "-m"))
    return SourcedVendor(
        "mthreads", ToolSource([Query("mthreads-gmi", ("--query", "--json"))], topology=topology), catalogue
    )
