"""``lspci``, plain or filtered: which accelerators are on the bus at all, whatever their drivers say."""

import re
from typing import Final

from hcs.vendors.parsing import values
from hcs.vendors.parsing.report import Report, reading

_LINE: Final = re.compile(
    r"^[ \t]*((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"(Processing accelerators|3D controller|Display controller|VGA compatible controller|Co-processor): "
    r"(\S.*?)[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_MAKERS: Final = (
    ("nvidia", "NVIDIA"),
    ("ascend", "Huawei"),
    ("cambricon", "Cambricon"),
    ("hygon", "Haiguang|Hygon"),
    ("mthreads", "Moore Threads"),
    ("iluvatar", "Iluvatar"),
    ("metax", "MetaX|Muxi"),
    ("enflame", "Enflame"),
    ("kunlunxin", "Kunlun"),
    ("amd", r"Advanced Micro Devices|\[AMD"),
    ("intel", "Intel|Habana"),
)
_REVISION: Final = re.compile(r"\(rev ([0-9a-f]{2})\)", re.IGNORECASE)
_DEVICE: Final = re.compile(r"Device ([0-9a-f]{4})\b", re.IGNORECASE)


def is_lspci(text: str) -> bool:
    """Whether the text has lines of lspci about accelerators."""
    return _LINE.search(text) is not None


def read(text: str, command: str = "", *, tool: str = "lspci") -> Report:
    """Every accelerator of a vendor we know, in bus order as printed."""
    devices = []
    for bus, kind, words in _LINE.findall(text):
        vendor = next((maker for maker, spelled in _MAKERS if re.search(spelled, words)), None)
        if vendor is None:
            continue
        device, revision = _DEVICE.search(words), _REVISION.search(words)
        facts = {
            "bus_id": values.bus_id(bus),
            "pci_class": kind,
            "pci_device_id": device.group(1) if device else None,
            "pci_revision": revision.group(1) if revision else None,
        }
        devices.append(reading(vendor, facts))
    return Report(tool=tool, devices=tuple(devices))
