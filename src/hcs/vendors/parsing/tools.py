"""The tools whose output can be read, by name.

A tool goes by its own name; where two vendors call theirs the same, by the name with the vendor's behind it.
"""

from collections.abc import Callable
from typing import Final

from hcs.vendors.parsing import (
    cnmon,
    efsmi,
    hl_smi,
    hy_smi,
    ixsmi,
    kernel_log,
    lspci,
    mthreads_gmi,
    mx_smi,
    npu_smi,
    nvidia_smi,
    rocm_smi,
    xpu_smi_intel,
    xpu_smi_kunlunxin,
)
from hcs.vendors.parsing.report import Report
from hcs.vendors.parsing.text import clean, decode

Reader = Callable[[str, str], Report]

TOOLS: Final[dict[str, Reader]] = {
    "cnmon": cnmon.read,
    "efsmi": efsmi.read,
    "hl-smi": hl_smi.read,
    "hy-smi": hy_smi.read,
    "ixsmi": ixsmi.read,
    "kernel-log": kernel_log.read,
    "lspci": lspci.read,
    "mthreads-gmi": mthreads_gmi.read,
    "mx-smi": mx_smi.read,
    "npu-smi": npu_smi.read,
    "nvidia-smi": nvidia_smi.read,
    "rocm-smi": rocm_smi.read,
    "xpu-smi-intel": xpu_smi_intel.read,
    "xpu-smi-kunlunxin": xpu_smi_kunlunxin.read,
}


class UnknownToolError(LookupError):
    """No reader has this name; the message lists the names."""


def parse(tool: str, output: bytes | str, command: str = "") -> Report:
    """Read a tool's output.

    Args:
        tool: a name of :data:`TOOLS`.
        output: what the tool printed.
        command: the arguments it was called with, where known: they name columns that have no heading.

    Raises:
        UnknownToolError: the tool is not known.
    """
    reader = TOOLS.get(tool)
    if reader is None:
        raise UnknownToolError(f"no tool is called {tool!r}; there are {', '.join(TOOLS)}")
    return reader(clean(decode(output) if isinstance(output, bytes) else output), command)
