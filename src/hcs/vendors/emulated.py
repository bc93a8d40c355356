"""Emulated cards: small files that stand in for accelerators where there are none.

A card file says what the card is, holds the books of its memory, and carries an injected fault. The emulated drivers in
``native/emulated`` map it; the sandbox creates it and links device nodes to it; the agent reads it as it would read a
vendor's management library. The layout is also in ``native/emulated/card.h``, and a test compares the two.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hcs.model.devices import Link

MAGIC = b"HCSCARD1"
LAYOUT = 1
PROCESS_SLOTS = 512
SLOTS_OFFSET = 4096
SLOT_BYTES = 64
CARD_FILE_BYTES = SLOTS_OFFSET + PROCESS_SLOTS * SLOT_BYTES
FAULT_CODE_OFFSET = 196
FAULT_NAME_OFFSET = 200
COUNTER_OFFSET = 264
CONTEXT_BYTES_OFFSET = 272

VENDORS = frozenset({"nvidia", "ascend", "cambricon", "hygon", "mthreads"})

_HEADER = struct.Struct("<8sII16s64s64s32sIi56sQQQ")
_SLOT = struct.Struct("<QQQIIQ")
_BYTES_MASK = (1 << 44) - 1
_PID_MASK = 0x7FFFFFFF
_CLAIMING = 0x80000000
_START_TIME_FIELD = 22
_THREADS_FIELD = 20
_PLACE = ".place"


class EmulatedCardError(ValueError):
    """Not a card file of this layout, or values that cannot stand in one; the message says which."""


class EmulatedProcess(msgspec.Struct, frozen=True):
    """A living process and the bytes it holds on the card. ``start_time`` is in clock ticks since boot."""

    pid: int
    start_time: int
    used_bytes: int


class EmulatedCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a card file said at one moment. ``used_bytes`` counts living processes only. ``fault_code`` 0 is healthy;
    otherwise it is the vendor's own number for the fault, such as an NVIDIA Xid."""

    vendor: str
    model: str
    uuid: str
    bus_id: str
    index: int
    total_bytes: int
    used_bytes: int
    fault_code: int
    fault_name: str
    processes: tuple[EmulatedProcess, ...]


def create_card(
    path: Path,
    *,
    vendor: str,
    model: str,
    uuid: str,
    index: int,
    total_bytes: int,
    bus_id: str = "",
    context_bytes: int = 0,
) -> None:
    """Create a healthy card with empty memory.

    ``total_bytes`` is the card's memory in bytes, ``context_bytes`` what each context of a program takes of it;
    ``index`` the number of its device node on the host. The drivers add
    "(emulated)" to the model's name. Raises EmulatedCardError for values that do not fit, FileExistsError where the
    file exists.
    """
    if vendor not in VENDORS:
        raise EmulatedCardError(f"no emulated vendor {vendor!r}; there are {', '.join(sorted(VENDORS))}")
    if not 0 < total_bytes <= _BYTES_MASK:
        raise EmulatedCardError(f"a card has 1 to 2^44 - 1 bytes of memory, not {total_bytes}")
    if not 0 <= index < 1 << 16:
        raise EmulatedCardError(f"a card's index is a small number from 0, not {index}")
    header = _HEADER.pack(
        MAGIC,
        LAYOUT,
        PROCESS_SLOTS,
        _text(vendor, 16),
        _text(model, 64),
        _text(uuid, 64),
        _text(bus_id, 32),
        index,
        0,
        b"",
        total_bytes,
        0,
        context_bytes,
    )
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(file, CARD_FILE_BYTES)
        os.pwrite(file, header, 0)
    finally:
        os.close(file)


class EmulatedPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an emulated card is said to sit: its NUMA node, and its links to others."""

    numa: int | None = None
    links: tuple[Link, ...] = ()


def write_place(path: Path, *, numa: int | None, links: Iterable[Link]) -> None:
    """Say where the card of a card file sits; nothing is written where there is nothing to say."""
    place = EmulatedPlace(numa, tuple(links))
    if place != EmulatedPlace():
        path.with_suffix(_PLACE).write_bytes(msgspec.json.encode(place))


def read_place(path: Path) -> EmulatedPlace:
    """What was said about the card's place; nothing where nobody said anything that can be read."""
    try:
        return msgspec.json.decode(path.with_suffix(_PLACE).read_bytes(), type=EmulatedPlace)
    except (OSError, msgspec.DecodeError):
        return EmulatedPlace()


def read_card(path: Path) -> EmulatedCard:
    """Read a card's state. Raises EmulatedCardError where the file is no card, OSError where it cannot be read."""
    data = path.read_bytes()
    if len(data) != CARD_FILE_BYTES or data[:8] != MAGIC:
        raise EmulatedCardError(f"{path} is not an emulated card: {len(data)} bytes beginning with {data[:8]!r}")
    _, layout, slots, vendor, model, uuid, bus_id, index, fault, fault_name, total, _, _ = _HEADER.unpack_from(data)
    if (layout, slots) != (LAYOUT, PROCESS_SLOTS):
        raise EmulatedCardError(
            f"{path} has layout {layout} with {slots} slots, expected {LAYOUT} with {PROCESS_SLOTS}"
        )
    processes = []
    for slot in range(PROCESS_SLOTS):
        owner, start_time, _, _, _, charged = _SLOT.unpack_from(data, SLOTS_OFFSET + slot * SLOT_BYTES)
        pid = owner & _PID_MASK
        if pid and not owner & _CLAIMING and charged and _is_alive(pid, start_time):
            processes.append(EmulatedProcess(pid, start_time, charged))
    return EmulatedCard(
        vendor=_word(vendor),
        model=_word(model),
        uuid=_word(uuid),
        bus_id=_word(bus_id),
        index=index,
        total_bytes=total,
        used_bytes=sum(process.used_bytes for process in processes),
        fault_code=fault,
        fault_name=_word(fault_name),
        processes=tuple(processes),
    )


def inject_fault(path: Path, code: int, name: str) -> None:
    """Break the card: from now on every driver call that needs it fails as on a dead card.

    ``code`` is the vendor's number of the fault (not 0), e.g. Xid 79; ``name`` is a short text.
    Raises EmulatedCardError.
    """
    if code == 0 or not -(1 << 31) <= code < 1 << 31:
        raise EmulatedCardError(f"a fault has a number other than 0 that fits 32 bits, not {code}")
    _write(path, FAULT_NAME_OFFSET, struct.pack("56s", _text(name, 56)))
    _write(path, FAULT_CODE_OFFSET, struct.pack("<i", code))


def clear_fault(path: Path) -> None:
    """Make the card healthy again. Raises EmulatedCardError where the file is no card."""
    _write(path, FAULT_CODE_OFFSET, struct.pack("<i", 0))
    _write(path, FAULT_NAME_OFFSET, bytes(56))


def _write(path: Path, offset: int, data: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.pread(file, 8, 0) != MAGIC:
            raise EmulatedCardError(f"{path} is not an emulated card")
        os.pwrite(file, data, offset)
    finally:
        os.close(file)


def _text(value: str, size: int) -> bytes:
    encoded = value.encode()
    if len(encoded) >= size or "\0" in value:
        raise EmulatedCardError(f"{value!r} does not fit into {size - 1} bytes of the card file")
    return encoded


def _word(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def _is_alive(pid: int, start_time: int) -> bool:
    """Whether this very process lives: the same start time, and not a zombie without threads."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The name may hold blanks and parentheses; count fields after the last one. The state is field 3.
    fields = stat[stat.rindex(")") + 2 :].split()
    gone = fields[0] in "ZX" and int(fields[_THREADS_FIELD - 3]) <= 1
    return not gone and start_time in (0, int(fields[_START_TIME_FIELD - 3]))
