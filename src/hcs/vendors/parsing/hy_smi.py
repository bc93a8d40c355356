"""Hygon's ``hy-smi``, which prints what rocm-smi prints under other names; see :mod:`hcs.vendors.parsing.rocm_smi`."""

from hcs.vendors.parsing import rocm_smi
from hcs.vendors.parsing.report import Report


def read(text: str, command: str = "") -> Report:
    """Whatever this output of hy-smi says."""
    return rocm_smi.read(text, command, tool="hy-smi", vendor="hygon")
