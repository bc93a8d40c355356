"""Ascend NPUs: DCMI where the driver's library is present, else ``npu-smi``.

Not verified on hardware. Device nodes are numbered by physical id, which is what a device's index is here.
"""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.libraries.dcmi import DcmiSource
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    library = DcmiSource.find("libdcmi.so", "/usr/local/dcmi/libdcmi.so")
    if library is not None:
        return SourcedVendor("ascend", library, catalogue)
    if commands.find("npu-smi") is None:
        return None
    topology = Query("npu-smi", ("info", "-t", "topo"))
    return SourcedVendor("ascend", ToolSource([Query("npu-smi", ("info",))], topology=topology), catalogue)
