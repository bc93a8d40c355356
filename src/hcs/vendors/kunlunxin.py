"""Kunlunxin cards through ``xpu-smi`` (``xpu_smi`` in older releases).

Intel's tool has the same name: what its output does not look like is not taken for it.
"""

from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor
from hcs.vendors.source import Query, SourcedVendor, ToolSource


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its tool or its driver's device node."""
    tool = next((name for name in ("xpu_smi", "xpu-smi") if commands.find(name)), None)
    if tool is None or commands.find("xpumcli") is not None:  # Intel's xpu-smi comes with an xpumcli
        return None
    source = ToolSource(
        [Query(tool, tool="xpu-smi-kunlunxin")], topology=Query(tool, ("topo", "-m"), "xpu-smi-kunlunxin")
    )
    return SourcedVendor("kunlunxin", source, catalogue)
