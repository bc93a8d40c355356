"""The record of a virtual DCU: the file by which Hygon's runtime holds a container to a part of a card.

The runtime reads ``/etc/vdev/docker/vdev<N>.conf`` in the container: nine lines, ``key: value``. What it insists on:
``cu_count`` is the number of bits in the two words of ``cu_mask`` (low word first), and ``vdev_id`` is the N of the
file's name; otherwise the container is left without a device. Two containers on one card may both have ``vdev0.conf``;
what must differ is ``pipe_id``. No variable is set and nothing is preloaded.

Sources: dcu-vgpu-device-plugin, ``internal/pkg/dcu/server.go`` (fields, order, pipe and device number); Hygon's user
guide of ``hy-smi virtual`` (file mounted read-only, at most four on a card); the diagnostics of
``libhsa-runtime64.so`` as GPUStack's notes on sliced DCUs quote them, with its measurements on an 80-unit card (two
instances side by side, each held to its own memory and units). Not verified here.
"""

from typing import Final

import msgspec

FOLDER: Final = "/etc/vdev/docker"
"""Where the runtime looks in a container."""

FILE: Final = "vdev0.conf"
MOST_INSTANCES: Final = 4
"""On one card."""

MOST_UNITS: Final = 128
"""The mask is two words of 64 bits."""

_WORD: Final = (1 << 64) - 1
_KEYS: Final = ("PciBusId", "cu_mask", "cu_mask", "cu_count", "mem", "device_id", "vdev_id", "pipe_id", "enable")


class VdcuRecordError(ValueError):
    """A text that is no record the runtime would take; the message says what is wrong."""


class VdcuRecord(msgspec.Struct, frozen=True):
    """A part of the card at a PCI address: compute units, memory in MiB; ``pipe`` is unique on the card, ``device`` the
    card's number on the host."""

    bus_id: str
    mask: int
    mebibytes: int
    device: int
    pipe: int


def render_vdcu(record: VdcuRecord) -> str:
    """The text of the file ``vdev0.conf``.

    Raises:
        VdcuRecordError: the runtime would not take it: no unit or too many, or no memory.
    """
    if not 0 < record.mask < 1 << MOST_UNITS or record.mebibytes < 1:
        raise VdcuRecordError(f"a virtual DCU has 1 to {MOST_UNITS} compute units and at least 1 MiB; got {record}")
    return (
        f"PciBusId: {record.bus_id.upper()}\n"
        f"cu_mask: 0x{record.mask & _WORD:016x}\n"
        f"cu_mask: 0x{record.mask >> 64:016x}\n"
        f"cu_count: {record.mask.bit_count()}\n"
        f"mem: {record.mebibytes} MiB\n"
        f"device_id: {record.device}\n"
        "vdev_id: 0\n"
        f"pipe_id: {record.pipe}\n"
        "enable: 1\n"
    )


def parse_vdcu(text: str) -> VdcuRecord:
    """Read the file ``vdev0.conf`` as strictly as the runtime does.

    Raises:
        VdcuRecordError: it is not one.
    """
    pairs = [line.partition(": ")[::2] for line in text.splitlines()]
    if tuple(key for key, _ in pairs) != _KEYS:
        raise VdcuRecordError(f"the lines are not {', '.join(_KEYS)}")
    values = [value for _, value in pairs]
    try:
        low, high = (int(word.removeprefix("0x"), 16) for word in values[1:3])
        count, device, vdev, pipe, enable = (int(values[at]) for at in (3, 5, 6, 7, 8))
        mebibytes = int(values[4].removesuffix(" MiB"))
    except ValueError as error:
        raise VdcuRecordError(f"a value is no number: {error}") from error
    mask = low | high << 64
    if mask.bit_count() != count:
        raise VdcuRecordError(f"cu_count is {count}, and the masks have {mask.bit_count()} bits")
    if (vdev, enable) != (0, 1):
        raise VdcuRecordError(f"vdev_id {vdev} in {FILE}, enable {enable}")
    return VdcuRecord(values[0], mask, mebibytes, device, pipe)
