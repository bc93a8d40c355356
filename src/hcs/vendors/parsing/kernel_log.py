"""The kernel's log: NVIDIA's Xid messages, PCIe error reports, Ascend's fault codes.

Lines may come from ``dmesg``, plain or ``-T``, from ``/dev/kmsg`` or from a journal. What NVIDIA's driver prints as a
bus id has no function digit. Ascend's lines have many shapes; one counts only where a word says that the eight
hexadecimal digits are a fault's or event's id, and where they can be one: all of the vendor's begin with the bits 10,
and what its drivers print as error codes of their own does not (not verified on hardware).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hcs.vendors.parsing import values
from hcs.vendors.parsing.report import Report, reading

_STAMP: Final = re.compile(
    r"^(?:\d+,\d+,(\d+),[^;]*;|\[\s*([0-9]+\.[0-9]+|[A-Z][a-z]{2} [A-Z][a-z]{2} [^\]]*[0-9]{4}|[0-9]{4}-[^\]]+)\]\s*)",
    re.ASCII,
)
_XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]+),"
    r"(?: pid='?\"?([^,'\"]*)'?\"?(?:,|$))?(?: name=([^,]*)(?:,|$))?\s*(.*)"
)
_BOARD: Final = re.compile(r"NVRM: GPU at PCI:([0-9a-fA-F:.]+): (GPU-[0-9a-fA-F-]{36})\s*$")
_LOST: Final = re.compile(
    r"NVRM: GPU (?:at PCI:)?([0-9a-fA-F:.]+): GPU has fallen off the bus"
    # One record of several lines, as the driver says it when it is loaded; in /dev/kmsg a line break is \x0a.
    r"|NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+)(?:\\x0a|\s).{0,200}fallen off the bus"
)
_AER: Final = re.compile(
    r"AER: (?:Multiple )?(Corrected|Correctable|Uncorrected|Uncorrectable)(?: \((Non-Fatal|Fatal)\))? "
    r"(?:error|error message) received(?: from)?:? "
    r"([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]|id=[0-9a-fA-F]{4})"
)
_BUS_ERROR: Final = re.compile(
    r"([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: "
    r"severity=(Corrected|Correctable|Uncorrected|Uncorrectable)(?: \((Non-Fatal|Fatal)\))?, type=([^,]+)"
)
_ASCEND: Final = re.compile(r"ascend|davinci|\bnpu\b|\bdms\b|devdrv|drv_", re.IGNORECASE)
_FAULT: Final = re.compile(
    r"(?:event[_ ]?id|fault[_ ]?(?:code|id)|err(?:or)?[_ ]?code)\s*[=:]?\s*[\[(]?"
    r"(?:0x)?([0-9A-Fa-f]{8})(?![0-9A-Fa-f])",
    re.IGNORECASE,
)
_OVER: Final = re.compile(r"\bassert(?:ion)?\s*[=:]\s*(?:0x)?0+\b", re.IGNORECASE)
"""The fault is over: DCMI's word for it is an assertion of 0."""
_FAULT_IDS: Final = 0b10
_NPU: Final = re.compile(r"(?:dev(?:ice)?[_ ]?id|npu[_ ]?id|phy[_ ]?id)\s*[=:]?\s*[\[(]?([0-9]{1,3})\b", re.IGNORECASE)


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault in the log.

    ``kind`` is ``xid``, ``aer``, ``ascend``, or ``lost`` for a card that fell off the bus. ``code`` is the Xid or the
    Ascend fault code; ``severity`` an AER's: ``corrected``, ``nonfatal`` or ``fatal``. ``bus_id`` is as printed;
    ``device`` an Ascend device's number. ``announced``: a port tells that it received an error of a device, which says
    the same once more on a line of its own. ``recovered``: an Ascend fault is over.
    """

    kind: str
    code: int | None = None
    severity: str | None = None
    bus_id: str | None = None
    device: int | None = None
    pid: int | None = None
    process: str | None = None
    message: str = ""
    time: str | None = None
    announced: bool = False
    recovered: bool = False


def read(text: str, command: str = "") -> Report:
    """Every fault in the log, and the cards that it names."""
    cards: dict[str, dict[str, Any]] = {}
    found = []
    for line in text.split("\n"):
        if board := _BOARD.search(line):
            card = cards.setdefault(_slot(board.group(1)), {"bus_id": board.group(1)})
            card["uuid"] = values.identifier(board.group(2))
        event = event_of(line)
        if event is None:
            continue
        found.append(_shown(event))
        if event.kind == "xid" and event.bus_id is not None and event.code is not None:
            codes = cards.setdefault(_slot(event.bus_id), {"bus_id": event.bus_id}).setdefault("xids", [])
            codes += [event.code] if event.code not in codes else []
    return Report(
        tool="kernel-log",
        devices=tuple(reading("nvidia", card) for card in cards.values()),
        events=tuple(found),
    )


def events(text: str) -> Iterator[Event]:
    """Every fault in some lines of the log."""
    for line in text.split("\n"):
        event = event_of(line)
        if event is not None:
            yield event


def event_of(line: str) -> Event | None:
    """The fault that a line tells of; None for any other line."""
    stamp = _STAMP.match(line)
    time = next((group.strip() for group in stamp.groups() if group), None) if stamp else None
    if match := _XID.search(line):
        bus, code, pid, process, message = match.groups()
        return Event(
            "xid",
            code=int(code),
            bus_id=bus,
            pid=values.integer(pid),
            process=values.word(process),
            message=message.strip(),
            time=time,
        )
    if match := _LOST.search(line):
        return Event("lost", bus_id=match.group(1) or match.group(2), message="GPU has fallen off the bus", time=time)
    if match := _BUS_ERROR.search(line):
        bus, kind, weight, layer = match.groups()
        return Event("aer", severity=_severity(kind, weight), bus_id=bus, message=layer.strip(), time=time)
    if match := _AER.search(line):
        kind, weight, bus = match.groups()
        place = None if bus.startswith("id=") else bus
        severity = _severity(kind, weight)
        return Event("aer", severity=severity, bus_id=place, message="error received", time=time, announced=True)
    if _ASCEND.search(line) and (fault := _FAULT.search(line)) and int(fault.group(1), 16) >> 30 == _FAULT_IDS:
        npu = _NPU.search(line)
        return Event(
            "ascend",
            code=int(fault.group(1), 16),
            device=int(npu.group(1)) if npu else None,
            message=line[stamp.end() if stamp else 0 :].strip(),
            time=time,
            recovered=_OVER.search(line) is not None,
        )
    return None


def _slot(bus: str) -> str:
    """A PCI address without its function, in lower case: NVIDIA's messages have it both ways."""
    return bus.lower().partition(".")[0]


def _severity(kind: str, weight: str | None) -> str:
    if kind.startswith(("Corrected", "Correctable")):
        return "corrected"
    return "fatal" if weight == "Fatal" else "nonfatal"


def _shown(event: Event) -> dict[str, Any]:
    shown = msgspec.to_builtins(event)
    shown["code"] = f"{event.code:08X}" if event.kind == "ascend" and event.code is not None else event.code
    return {key: value for key, value in shown.items() if value not in (None, "") and key != "announced"}
