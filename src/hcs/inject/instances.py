"""Parts of a card that its vendor holds a container to: how many units a share is, and which ones.

Some vendors split a card themselves: a virtual DCU of Hygon and an sMLU of Cambricon hold memory and compute, AMD's
mask of compute units holds compute. Their units are whole (a compute unit, a percent), and nobody's may be another's.
So a share is rounded *down* to whole units, at least one: shares that fit on a card together then fit in its units
together, whoever comes first. Which units they are is chosen here too, the lowest that nobody has; the masks of the
containers on a card never overlap.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from hcs.inject.adjustments import DeviceNode, Mount, Variable
from hcs.model.allocations import Grant
from hcs.model.devices import Device
from hcs.model.refusals import Refusal

InstanceKind = Literal["vdcu", "smlu", "cu-mask"]
"""``vdcu``: a virtual DCU, held by Hygon's runtime. ``smlu``: an instance of Cambricon's driver. ``cu-mask``: compute
units that the ROCm runtime keeps to."""

HUNDRED: Final = 100
"""Units of a card that is split by percent."""


class Instance(msgspec.Struct, frozen=True):
    """What one container needs for its part of one card.

    ``percent`` is of the card's compute, rounded down as the units are. ``holds_memory`` tells whether the vendor holds
    the memory too; otherwise the interceptor has to. ``devices`` take the place of the profile's where there are any.
    """

    kind: InstanceKind
    percent: int
    holds_memory: bool
    env: tuple[Variable, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """Units of one device that one container has: a bit for each in ``mask``, and the number of its place on the device
    in ``slot``, which nobody else on the device has."""

    device: str
    mask: int
    slot: int


def units_of(device: Device, grant: Grant, units: int) -> int:
    """How many of a device's units a grant is: by its compute, or by its memory where no compute was asked for.

    >>> card = Device(id="d", index=0, vendor="hygon", model="K100", vram=64)
    >>> units_of(card, Grant("d", 16, 0), 60)
    15
    """
    rate = device.rate()
    part, whole = grant.bytes, device.vram
    if grant.milliacu > 0 and rate is not None and rate.milliacu > 0:
        part, whole = grant.milliacu, rate.milliacu
    return min(units, max(1, part * units // max(1, whole)))


def lowest_free(taken: int, units: int, count: int) -> int | None:
    """The lowest ``count`` of ``units`` bits that are not set in ``taken``, as a mask; None where there are fewer.

    >>> bin(lowest_free(0b1011, 8, 2))
    '0b10100'
    """
    found = 0
    for unit in range(units):
        if count == 0:
            break
        if not taken >> unit & 1:
            found |= 1 << unit
            count -= 1
    return found if count == 0 else None


def in_pairs(mask: int) -> int:
    """Each bit as two adjacent ones: units that only come in pairs.

    >>> bin(in_pairs(0b101))
    '0b110011'
    """
    return sum(0b11 << 2 * bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def choose(held: Iterable[Part], device: Device, units: int, count: int, most: int) -> Part | Refusal:
    """Units for one container more.

    Args:
        held: what others have, on this device or another.
        device: where it is wanted.
        units: how many the device has.
        count: how many are wanted.
        most: how many parts the device can be split into.
    """
    others = [part for part in held if part.device == device.id]
    slots = {part.slot for part in others}
    slot = next((number for number in range(most) if number not in slots), None)
    what = f"{device.model} {device.index}"
    if slot is None:
        return Refusal(
            "TooManyInstances", f"{what} can be split into {most} instances, and all of them are taken; ask for another"
        )
    taken = 0
    for part in others:
        taken |= part.mask
    mask = lowest_free(taken, units, count)
    if mask is None:
        free = units - (taken & ((1 << units) - 1)).bit_count()
        return Refusal(
            "NoComputeLeft",
            f"the share is {count} of the {units} parts that the compute of {what} comes in, and {free} are free: "
            "containers that stated no ACU hold a part of it as large as their part of the memory",
        )
    return Part(device.id, mask, slot)


def ranges(mask: int) -> str:
    """The set bits as a list of ranges.

    >>> ranges(0b110111)
    '0-2,4-5'
    """
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    begins = [bit for bit in bits if bit == 0 or not mask >> (bit - 1) & 1]
    ends = [bit for bit in bits if not mask >> (bit + 1) & 1]
    return ",".join(f"{begin}-{end}" for begin, end in zip(begins, ends, strict=True))
