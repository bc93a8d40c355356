"""Cambricon's ``cnmon``: the table. Version 4 has no bus id and names the driver for each card; version 5 has both
above. Both show two devices for a board with two chips."""

from hcs.vendors.parsing import matrices, tables, values
from hcs.vendors.parsing.report import Report, agreed, reading


def read(text: str, command: str = "") -> Report:
    """Whatever this output of cnmon says."""
    if topology := matrices.read(text):
        return Report(tool="cnmon", gpus=topology.devices, links=topology.links, numa=topology.numa)
    devices = tuple(reading("cambricon", facts) for facts in tables.devices(text))
    driver = tables.search(r"\bDriver[ \t]+(v?[0-9][\w.]*)[ \t]*\|", text, values.version)
    return Report(
        tool="cnmon",
        version=tables.search(r"CNMON[ \t]+(v?[0-9][\w.]*)", text, values.version),
        driver=driver or agreed(device.get("driver_version") for device in devices),
        devices=devices,
    )
