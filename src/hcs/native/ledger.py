"""The interceptor's ledger, read from outside: what a container uses of each card, and by which process.

Layout 1, frozen in ``docs/quota-file.md`` and laid out in C by ``native/interceptor/ledger.h``; a test compares.
Reading takes no lock. A process that has died stays in the ledger until a check fails inside the container, so readers
who can see the container's processes leave the dead out by themselves.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec

LEDGER_MAGIC = b"HCSLEDG1"
LEDGER_LAYOUT = 1
CARD_SLOTS = 32
PROCESS_SLOTS = 1024
QUOTA_COUNTER_OFFSET = 24
CARDS_OFFSET = 64
CARD_BYTES = 128
SLOTS_OFFSET = 8192
SLOT_BYTES = 320
SLOT_CHARGES_OFFSET = 32
LEDGER_BYTES = SLOTS_OFFSET + PROCESS_SLOTS * SLOT_BYTES

BYTES_MASK = (1 << 44) - 1
PID_MASK = 0x7FFFFFFF
CLAIMING = 0x80000000

_HEADER = struct.Struct("<8s4I")
_CARD = struct.Struct("<QQ64s")
_SLOT = struct.Struct("<QQQI")


class LedgerError(ValueError):
    """The file is not a ledger of this layout; the message says what was found."""


class LedgerCard(msgspec.Struct, frozen=True):
    """One card: bytes in use by the whole container, and how many allocations were refused."""

    uuid: str
    used_bytes: int
    refusals: int


class LedgerProcess(msgspec.Struct, frozen=True):
    """One process, by its pid inside the container and its start time (clock ticks since boot), with the bytes it holds
    on each card, in the ledger's order of cards."""

    pid: int
    start_time: int
    used_bytes: tuple[int, ...]


class Ledger(msgspec.Struct, frozen=True):
    """What a ledger said at one moment."""

    cards: tuple[LedgerCard, ...]
    processes: tuple[LedgerProcess, ...]


def parse_ledger(data: bytes) -> Ledger:
    """Read a ledger's bytes. An empty or all-zero one is an empty ledger that no process has opened yet.

    Raises LedgerError.
    """
    if not any(data[: _HEADER.size]):
        return Ledger(cards=(), processes=())
    if len(data) != LEDGER_BYTES:
        raise LedgerError(f"a ledger has {LEDGER_BYTES} bytes, this has {len(data)}")
    magic, layout, cards, slots, slot_bytes = _HEADER.unpack_from(data)
    if (magic, layout, cards, slots, slot_bytes) != (
        LEDGER_MAGIC,
        LEDGER_LAYOUT,
        CARD_SLOTS,
        PROCESS_SLOTS,
        SLOT_BYTES,
    ):
        raise LedgerError(
            f"expected {LEDGER_MAGIC!r} with layout {LEDGER_LAYOUT}, found {magic!r} with layout {layout}"
        )
    found = []
    for index in range(CARD_SLOTS):
        counter, refusals, uuid = _CARD.unpack_from(data, CARDS_OFFSET + index * CARD_BYTES)
        name = uuid.rstrip(b"\0").decode("ascii", "replace")
        if name:
            found.append(LedgerCard(name, counter & BYTES_MASK, refusals))
    processes = []
    for index in range(PROCESS_SLOTS):
        offset = SLOTS_OFFSET + index * SLOT_BYTES
        owner, start_time, _, _ = _SLOT.unpack_from(data, offset)
        if owner & PID_MASK and not owner & CLAIMING:
            charges = struct.unpack_from(f"<{len(found)}Q", data, offset + SLOT_CHARGES_OFFSET)
            processes.append(LedgerProcess(owner & PID_MASK, start_time, charges))
    return Ledger(tuple(found), tuple(processes))


def read_ledger(path: Path) -> Ledger:
    """Read the ledger file. Raises LedgerError, and OSError where it cannot be read."""
    return parse_ledger(path.read_bytes())


def announce_quota(path: Path, counter: int) -> None:
    """Tell the container's processes that the quota file has been replaced by one with this counter: they read it again
    at their next allocation. Raises OSError where the ledger cannot be written."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(file, struct.pack("<Q", counter), QUOTA_COUNTER_OFFSET)
    finally:
        os.close(file)
