"""Intel's accelerators: Gaudi through ``hl-smi``, GPUs through ``xpu-smi``.

``xpu-smi discovery`` names the GPUs and ``xpu-smi dump`` reads them; memory sizes are in neither, so the catalogue's
stand for them.
"""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its tools."""
    if commands.find("hl-smi") is not None:
        return SourcedVendor("intel", ToolSource([Query("hl-smi")]), catalogue)
    if commands.find("xpumcli") is None or commands.find("xpu-smi") is None:
        return None
    discovery = Query("xpu-smi", ("discovery", "-j"), "xpu-smi-intel")
    dump = Query("xpu-smi", ("dump", "-d", "-1", "-m", "0,1,2,3,4,5,18", "-n", "1"), "xpu-smi-intel")
    return SourcedVendor("intel", ToolSource([discovery, dump]), catalogue)
