"""The messages of micad's control protocol as bytes.

A create message is one struct of fixed size, a control message bare words, a reply text glued to a marker. Nothing is
ever cut to fit: what does not fit is refused before anything is sent, because micad would cut it and report success.

Layouts are those of ``mica_client.h`` of openEuler's mcs repository; there is no version on the wire, so the node's
configuration names the layout.
"""

import re
import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError

MAX_CONTROL: Final = 31
"""Bytes of a control message: micad's buffer has 32, the last one NUL."""
SUCCESS: Final = b"MICA-SUCCESS"
FAILED: Final = b"MICA-FAILED"
NOT_GIVEN: Final = -1
STATES: Final = ("Offline", "Configured", "Ready", "Running", "Suspended", "Error", "Stopped")
_RESERVED: Final = "mica-create"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_SET_KEYS: Final = ("cpucapacity", "cpuweight", "cpu", "vcpu", "memory", "maxmemory")
_STATUS: Final = re.compile(rf"\s*([0-9,-]*)\s*({'|'.join(STATES)})\s*(.*)", re.DOTALL)
_SERVICE: Final = re.compile(r"([^\s(]+)(?:\(([^)]*)\))?")


class CreateMessage(msgspec.Struct, frozen=True):
    """What a guest is created with. Numbers are -1 where nothing is given; memory is MiB, capacity in percent."""

    name: str
    path: str
    ped: str = "xen"
    ped_cfg: str = ""
    debug: bool = False
    cpu_str: str = ""
    vcpu_num: int = NOT_GIVEN
    max_vcpu_num: int = NOT_GIVEN
    cpu_weight: int = NOT_GIVEN
    cpu_capacity: int = NOT_GIVEN
    memory: int = NOT_GIVEN
    max_memory: int = NOT_GIVEN
    iomem: str = ""
    network: str = ""


class Layout(msgspec.Struct, frozen=True):
    """One layout: the struct's format in the host's byte order, and its fields in order."""

    format: str
    fields: tuple[str, ...]


_TEXTS: Final = ("name", "path", "ped", "ped_cfg", "debug", "cpu_str")
LAYOUTS: Final[Mapping[str, Layout]] = {
    "current": Layout(
        "@66s256s16s256s?128siiiiii512s512s",
        (
            *_TEXTS,
            *("vcpu_num", "max_vcpu_num", "cpu_weight", "cpu_capacity", "memory", "max_memory", "iomem", "network"),
        ),
    ),
    "2025-09": Layout(
        "@32s128s32s128s?128siiii512s", (*_TEXTS, "vcpu_num", "cpu_weight", "cpu_capacity", "memory", "network")
    ),
}
"""Layouts by the name the configuration uses: 1772 bytes, and 980 bytes of September 2025."""


def layout_named(name: str) -> Layout:
    """A layout by its name.

    Raises:
        RefusedError: ``UnknownLayout``.
    """
    found = LAYOUTS.get(name)
    if found is None:
        raise RefusedError(
            Refusal("UnknownLayout", f"there is no layout {name!r:.40} of micad's messages; use {' or '.join(LAYOUTS)}")
        )
    return found


def encode_create(message: CreateMessage, layout: Layout = LAYOUTS["current"]) -> bytes:
    """The bytes of a create message, to be sent in one write.

    Raises:
        RefusedError: ``MalformedName``, ``TooLong`` or ``TooLarge``, with the field.
    """
    check_name(message.name)
    values: list[bytes | bool | int] = []
    sizes = iter(re.findall(r"([0-9]+)s", layout.format))
    for field in layout.fields:
        value = getattr(message, field)
        if isinstance(value, str):
            value = _text(field, value, int(next(sizes)))
        elif not isinstance(value, bool) and not NOT_GIVEN <= value < 2**31:
            raise RefusedError(
                Refusal("TooLarge", f"{field} is {value}; micad's message holds -1 to 2147483647, ask for less")
            )
        values.append(value)
    if message.iomem and "iomem" not in layout.fields:
        raise RefusedError(Refusal("UnknownField", "this layout of micad's messages has no iomem; leave it out"))
    return struct.pack(layout.format, *values)


def check_name(name: str) -> None:
    """Refuse a guest's name that micad would mistake.

    Raises:
        RefusedError: ``MalformedName``.
    """
    if not _NAME.fullmatch(name) or name == _RESERVED:
        raise RefusedError(
            Refusal(
                "MalformedName",
                f"guest name {name!r:.80}: use letters, digits, and _ . + - behind the first; "
                f"{_RESERVED} is micad's own",
            )
        )


def encode_control(*words: str) -> bytes:
    """The bytes of a control message: words with one blank between, no terminator.

    Raises:
        RefusedError: ``MalformedCommand`` or ``TooLong``.
    """
    if not words or not all(word and word.isprintable() and " " not in word for word in words):
        raise RefusedError(Refusal("MalformedCommand", f"{' '.join(words)!r:.60} is not words with one blank between"))
    raw = " ".join(words).encode()
    if len(raw) > MAX_CONTROL:
        raise RefusedError(
            Refusal("TooLong", f"{raw.decode()!r} has {len(raw)} bytes; micad would cut it after {MAX_CONTROL}")
        )
    return raw


def encode_set(key: str, value: str) -> bytes:
    """The bytes of ``set``.

    Raises:
        RefusedError: an unknown key, or as :func:`encode_control`.
    """
    if key not in _SET_KEYS:
        raise RefusedError(Refusal("UnknownKey", f"micad cannot set {key!r:.40}; it knows {', '.join(_SET_KEYS)}"))
    return encode_control("set", key, value)


class Reply(msgspec.Struct, frozen=True):
    """micad's answer: whether it was a yes, and the text before the marker."""

    success: bool
    text: str


def read_reply(received: bytes) -> Reply | None:
    """What was received so far as a reply; None while no marker stands at its end."""
    for marker, success in ((SUCCESS, True), (FAILED, False)):
        if received.endswith(marker):
            return Reply(success, received[: -len(marker)].decode(errors="replace"))
    return None


class Status(msgspec.Struct, frozen=True):
    """A guest as micad sees it: its CPU list, its state, and its services with their devices (empty for none)."""

    cpu: str
    state: str
    services: tuple[tuple[str, str], ...] = ()

    @property
    def console(self) -> str:
        """The device of the guest's console; empty as long as it has none."""
        return next((device for name, device in self.services if name.startswith("rpmsg-tty") and device), "")


def read_status(text: str, name: str) -> Status | None:
    """Read a status line; None when it is none.

    The columns are 30, 20 and 20 wide, and a text that is longer pushes the rest to the right.

    Args:
        text: the reply's text.
        name: the guest's name, to know where its column ends.
    """
    shown = name if len(name) <= 31 else f"{name[:12]}...{name[-1]}"
    match = _STATUS.fullmatch(text[max(30, len(shown)) :])
    if match is None:
        return None
    services = tuple((name, device) for name, device in _SERVICE.findall(match[3]))
    return Status(match[1], match[2], services)


def _text(field: str, value: str, size: int) -> bytes:
    raw = value.encode()
    if len(raw) >= size:
        raise RefusedError(
            Refusal("TooLong", f"{field} has {len(raw)} bytes; micad's message holds {size - 1}, shorten it")
        )
    if b"\0" in raw:
        raise RefusedError(Refusal("MalformedText", f"{field} has a NUL character inside; micad would end it there"))
    return raw
