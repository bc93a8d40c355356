"""Kunlunxin's ``xpu-smi``: the table, and the columns that collectors cut out of ``xpu_smi`` with awk.

The cut-out columns carry their units and no heading: heat, power, used and total memory, load. Which card a line is
about is not in it.
"""

import re
from typing import Final

from hcs.vendors.parsing import matrices, tables, values
from hcs.vendors.parsing.report import Report, reading

_CUT_OUT: Final = re.compile(
    r"^[ \t]*([0-9]+C)[ \t]+([0-9]+W)[ \t]+([0-9]+)MiB[ \t]+([0-9]+)MiB[ \t]+([0-9]+%)[ \t]*$", re.MULTILINE
)


def read(text: str, command: str = "") -> Report:
    """Whatever this output of Kunlunxin's xpu-smi says."""
    if topology := matrices.read(text):
        return Report(tool="xpu-smi-kunlunxin", gpus=topology.devices, links=topology.links, numa=topology.numa)
    devices = [reading("kunlunxin", facts) for facts in tables.devices(text)]
    for heat, power, used, total, load in [] if devices else _CUT_OUT.findall(text):
        sane = int(used) <= int(total)
        devices.append(
            reading(
                "kunlunxin",
                {
                    "temperature_c": values.celsius(heat),
                    "power_w": values.watts(power),
                    "memory_used_mib": int(used) if sane else None,
                    "memory_total_mib": (int(total) or None) if sane else None,
                    "utilization_pct": values.percent(load),
                },
            )
        )
    return Report(
        tool="xpu-smi-kunlunxin",
        version=tables.search(r"XPU-SMI[ \t]+v?([0-9][\w.]*)", text, values.version),
        driver=tables.search(r"Driver Version:[ \t]*([^|\s]+)", text, values.version),
        devices=tuple(devices),
    )
