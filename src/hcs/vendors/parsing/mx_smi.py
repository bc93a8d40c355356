"""MetaX's ``mx-smi``: the table, whose columns change between 2.0 and 2.2, ``-L`` and ``topo``."""

import re
from typing import Any, Final

from hcs.vendors.parsing import matrices, tables, values
from hcs.vendors.parsing.report import Report, reading

_LISTED: Final = re.compile(
    r"^[ \t]*GPU#([0-9]+)[ \t]+(\S.*?)[ \t]+(\S+)[ \t]+(Not Available|Available)[ \t]*"
    r"(?:\(UUID:[ \t]*([^)\s]+)\)|\(([^)]*)\))?[ \t]*$",
    re.MULTILINE,
)


def read(text: str, command: str = "") -> Report:
    """Whatever this output of mx-smi says."""
    facts: dict[str, Any] = {}
    attached = tables.search(r"Attached GPUs\s*:\s*([0-9]+)\s*\n", text, values.integer)
    if attached is not None:
        facts["attached_gpus"] = attached
    version = tables.search(r"mx-smi\s+(?:version:)?\s*([0-9][\w.]*)", text, values.version)
    if topology := matrices.read(text):
        return Report(
            tool="mx-smi", version=version, gpus=topology.devices, links=topology.links, numa=topology.numa, facts=facts
        )
    if listed := _LISTED.findall(text):
        devices = tuple(
            reading(
                "metax",
                {
                    "index": int(index),
                    "name": values.name(model),
                    "bus_id": values.bus_id(bus),
                    "health": state,
                    "uuid": values.identifier(uuid),
                    "health_detail": values.word(why),
                },
            )
            for index, model, bus, state, uuid, why in listed
        )
        names = tuple(str(device["name"]) for device in devices if device["name"] is not None)
        return Report(tool="mx-smi", version=version, devices=devices, gpus=names, facts=facts)
    if maca := tables.search(r"MACA Version:[ \t]*([^|\s]+)", text, values.version):
        facts["maca_version"] = maca
    return Report(
        tool="mx-smi",
        version=version,
        driver=tables.search(r"Kernel Mode Driver Version:[ \t]*([^|\s]+)", text, values.version),
        devices=tuple(reading("metax", device) for device in tables.devices(text)),
        facts=facts,
    )
