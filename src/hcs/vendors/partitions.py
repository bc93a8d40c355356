"""Which parts of this node's cards containers have: one small file per container, beside its other files.

The file is the truth: it lies in the container's folder under the agent's state directory, a restart of the agent finds
it there, and it goes when the folder goes, once, with the container's pod. Files of pods that no longer hold anything
do not count, even before they are gone. A file that cannot be read makes nobody's units free: whoever asks is refused.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hcs.inject.instances import Part, choose
from hcs.model.devices import Device
from hcs.model.refusals import Refusal, RefusedError
from hcs.vendors.base import Wanted

FILE: Final = "part.json"


class _Written(msgspec.Struct, frozen=True):
    """A part as it is written: the mask in hexadecimal, for JSON's numbers are too small for it."""

    device: str
    mask: str
    slot: int


class Partitions:
    """The parts of one vendor's cards."""

    def __init__(self) -> None:
        """Start with what the disk says, which is read each time."""
        self._choosing = threading.Lock()

    def part(self, wanted: Wanted, device: Device, units: int, count: int, most: int) -> Part:
        """A container's part of a device: the one it has, or a new one, on disk when this returns.

        Args:
            wanted: for whom.
            device: where.
            units: how many the device has.
            count: how many the container is to have.
            most: how many parts the device can be split into.

        Raises:
            RefusedError: no part is left, or a file of another container cannot be read.
            OSError: the part cannot be written.
        """
        path = wanted.folder / FILE
        with self._choosing:  # from looking to writing: two pods may be prepared at once
            mine = _read(path) if path.exists() else None
            if mine is not None and (mine.device, mine.mask.bit_count()) == (device.id, count):
                return mine
            found = choose(self._held(wanted), device, units, count, most)
            if isinstance(found, Refusal):
                raise RefusedError(found)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, msgspec.json.encode(_Written(found.device, f"{found.mask:x}", found.slot)))
            return found

    @staticmethod
    def _held(wanted: Wanted) -> Iterator[Part]:
        live = wanted.live()
        for path in sorted(wanted.folder.parent.parent.glob(f"*/*/{FILE}")):
            if path.parent != wanted.folder and path.parent.parent.name in live:
                yield _read(path)


def write_once(path: Path, content: bytes) -> None:
    """Write a file that others may only read, in one step."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with open(partial, "xb") as file:
        os.fchmod(file.fileno(), 0o444)
        file.write(content)
    partial.replace(path)


def _read(path: Path) -> Part:
    try:
        written = msgspec.json.decode(path.read_bytes(), type=_Written)
        return Part(written.device, int(written.mask, 16), written.slot)
    except (OSError, msgspec.DecodeError, ValueError) as error:
        raise RefusedError(
            Refusal(
                "PartUnknown",
                f"it cannot be read which part of a card the container in {path.parent} has ({error}); delete its pod",
            )
        ) from error
