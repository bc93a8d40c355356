"""The quota file: what a container may take of each card, as the node writes it and the interceptor reads it.

Format 1 is frozen in ``docs/quota-file.md``. It is text that C parses in one pass without allocation, and strict: the
last line counts the cards, so a truncated file is noticed, and every reader refuses a file with a fault rather than
guess at somebody's limit. ``parse(render(quota)) == quota`` for every quota file that can be rendered.
"""

from __future__ import annotations

import re

import msgspec

FORMAT = 1
MAX_CARDS = 32
MAX_QUOTA_BYTES = (1 << 44) - 1
MAX_FILE_BYTES = 16384

_WORD = re.compile(r"[!-~]+")
_VENDOR = re.compile(r"[a-z][a-z0-9-]{0,14}")
_LEDGER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_MAX_COUNTER = (1 << 63) - 1
_MAX_PHYSICAL_ID = (1 << 31) - 1


class QuotaFileError(ValueError):
    """A quota file that no reader would accept; the message shows what was seen and what was expected."""


class QuotaCard(msgspec.Struct, frozen=True, kw_only=True):
    """One card of the container.

    ``quota_bytes`` and ``context_bytes`` are bytes; the latter is charged once per process that allocates on the card.
    ``uuid`` is the card's identity, never an ordinal. ``bus_id`` is the PCI address where it is known. ``physical_id``
    is the N of ``/dev/davinciN``: Ascend's runtime names cards by it and has no UUID, so Ascend cards must carry it.
    """

    vendor: str
    uuid: str
    quota_bytes: int
    context_bytes: int = 0
    bus_id: str | None = None
    physical_id: int | None = None


class QuotaFile(msgspec.Struct, frozen=True, kw_only=True):
    """A container's quota file. ``counter`` rises with every change; ``ledger`` is a file name beside the quota file.
    The cards keep their order and number for the container's life: only quotas and overheads may change."""

    cards: tuple[QuotaCard, ...]
    counter: int = 1
    ledger: str = "ledger"


def render(quota: QuotaFile) -> str:
    """The file's text. Raises QuotaFileError where a value cannot stand in it."""
    _check(quota)
    lines = [f"hcs-quota {FORMAT}", f"counter {quota.counter}", f"ledger {quota.ledger}"]
    for card in quota.cards:
        bus_id = "-" if card.bus_id is None else card.bus_id
        physical_id = "-" if card.physical_id is None else str(card.physical_id)
        lines.append(f"card {card.vendor} {card.uuid} {card.quota_bytes} {card.context_bytes} {bus_id} {physical_id}")
    lines.append(f"end {len(quota.cards)}")
    return "\n".join(lines) + "\n"


def parse(text: str) -> QuotaFile:
    """Read a quota file's text. Raises QuotaFileError; there is no half-read file."""
    lines = text.split("\n")
    if len(lines) < 6 or lines[-1] != "":
        raise QuotaFileError(f"a quota file has at least five whole lines, this has {len(lines) - 1}")
    if lines[0] != f"hcs-quota {FORMAT}":
        raise QuotaFileError(f"expected the first line 'hcs-quota {FORMAT}', found {lines[0]!r}")
    counter = _number(_field(lines[1], "counter"), "counter")
    ledger = _field(lines[2], "ledger")
    cards = tuple(_card(line) for line in lines[3:-2])
    promised = _number(_field(lines[-2], "end"), "end")
    if promised != len(cards):
        raise QuotaFileError(f"the last line promises {promised} cards, the file has {len(cards)}")
    quota = QuotaFile(cards=cards, counter=counter, ledger=ledger)
    _check(quota)
    return quota


def _card(line: str) -> QuotaCard:
    fields = line.split(" ")
    if len(fields) != 7 or fields[0] != "card":
        raise QuotaFileError(f"expected 'card VENDOR UUID QUOTA CONTEXT BUS-ID PHYSICAL-ID', found {line!r}")
    _, vendor, uuid, quota_bytes, context_bytes, bus_id, physical_id = fields
    return QuotaCard(
        vendor=vendor,
        uuid=uuid,
        quota_bytes=_number(quota_bytes, "quota"),
        context_bytes=_number(context_bytes, "context overhead"),
        bus_id=None if bus_id == "-" else bus_id,
        physical_id=None if physical_id == "-" else _number(physical_id, "physical id"),
    )


def _field(line: str, key: str) -> str:
    head, _, value = line.partition(" ")
    if head != key:
        raise QuotaFileError(f"expected a line '{key} ...', found {line!r}")
    return value


def _number(text: str, what: str) -> int:
    if len(text) > 20 or not _NUMBER.fullmatch(text):
        raise QuotaFileError(f"{what} is a decimal number without sign or leading zero, found {text!r}")
    return int(text)


def _check(quota: QuotaFile) -> None:
    """Raise QuotaFileError unless the interceptor would accept the file."""
    if not 1 <= len(quota.cards) <= MAX_CARDS:
        raise QuotaFileError(f"a quota file names 1 to {MAX_CARDS} cards, not {len(quota.cards)}")
    if not 0 <= quota.counter <= _MAX_COUNTER:
        raise QuotaFileError(f"the counter is a number from 0 to 2^63 - 1, not {quota.counter}")
    if not _LEDGER.fullmatch(quota.ledger):
        raise QuotaFileError(f"the ledger is a file name beside the quota file, not {quota.ledger!r}")
    seen: set[str] = set()
    for card in quota.cards:
        _check_card(card)
        if card.uuid in seen:
            raise QuotaFileError(f"the card {card.uuid} stands twice")
        seen.add(card.uuid)


def _check_card(card: QuotaCard) -> None:
    if not _VENDOR.fullmatch(card.vendor):
        raise QuotaFileError(f"a vendor is a short lower-case word, not {card.vendor!r}")
    if not _WORD.fullmatch(card.uuid) or len(card.uuid) > 63:
        raise QuotaFileError(f"a card's UUID is one printable word of at most 63 characters, not {card.uuid!r}")
    if not 1 <= card.quota_bytes <= MAX_QUOTA_BYTES:
        raise QuotaFileError(f"the quota of {card.uuid} must be 1 to 2^44 - 1 bytes, not {card.quota_bytes}")
    if not 0 <= card.context_bytes <= MAX_QUOTA_BYTES:
        raise QuotaFileError(
            f"the context overhead of {card.uuid} must be 0 to 2^44 - 1 bytes, not {card.context_bytes}"
        )
    if card.bus_id is not None and (not _WORD.fullmatch(card.bus_id) or len(card.bus_id) > 31 or card.bus_id == "-"):
        raise QuotaFileError(f"the bus id of {card.uuid} is one word of at most 31 characters, not {card.bus_id!r}")
    if card.physical_id is not None and not 0 <= card.physical_id <= _MAX_PHYSICAL_ID:
        raise QuotaFileError(f"the physical id of {card.uuid} is a number from 0, not {card.physical_id}")
    if card.vendor == "ascend" and card.physical_id is None:
        raise QuotaFileError(f"the Ascend card {card.uuid} needs its physical id, the N of /dev/davinciN")
