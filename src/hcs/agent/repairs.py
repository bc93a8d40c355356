"""When a card that failed is whole again: what was told of it is written down until somebody says so.

A fatal event (an Xid, a fatal PCIe error, an Ascend fault) is over when it is told, and the card may look well after
it. So it counts until the card is known to be repaired, also over a restart of the agent. That is known by four things:

* the driver takes its wish back (NVIDIA's Xid 154, "to None"), which :mod:`hcs.agent.alarms` hears;
* the driver was bound to the card anew: it was loaded again, or the card was removed and found again;
* the machine was restarted;
* a person says so: ``hcs devices repaired NODE CARD``, an annotation on the ComputeNode.

Whatever is in doubt is no repair: a card that vanishes and returns, a longer silence, a machine that does not tell its
boot. What a vendor leaves to a person (:data:`hcs.health.faults.OUTLIVES_RESET`) only the last one ends.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.agent.admissions import write_file
from hcs.agent.cards import Cards
from hcs.health.faults import OUTLIVES_RESET, Fault
from hcs.kube.resources import ComputeNode
from hcs.model import names
from hcs.model.devices import Device
from hcs.vendors.pci import SYSFS, normal

log = logging.getLogger(__name__)

SECONDS: Final = 1.0
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Kept(msgspec.Struct, frozen=True):
    """A fatal fault as it is written down; ``binding`` is which binding of the driver it happened under."""

    fault: Fault
    binding: int | None = None


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The file: which boot, what failed, and the last word of a person on each card."""

    boot: str = ""
    faults: dict[str, Kept] = {}
    heeded: dict[str, str] = {}


class Repairs:
    """Writes fatal faults down, and ends them when the card is repaired."""

    def __init__(
        self,
        cards: Cards,
        state: Path,
        *,
        observed: Callable[[], ComputeNode | None],
        work: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        sysfs: Path = SYSFS,
        boot_id: Path = BOOT_ID,
    ) -> None:
        """Read what an earlier run wrote down, and give it to the cards.

        Args:
            cards: the cards.
            state: the agent's directory.
            observed: this node's ComputeNode as the server has it.
            work: how to do what waits for a disk.
            sysfs: where the kernel shows its devices.
            boot_id: where it tells this boot from others.
        """
        self._cards, self._observed, self._work, self._sysfs = cards, observed, work, sysfs
        self._file = state / "faults.json"
        boot = ""
        with contextlib.suppress(OSError):
            boot = boot_id.read_text().strip()
        before = self._load()
        kept = before.faults if before is not None else {}
        if boot and before is not None and before.boot and before.boot != boot:
            ended = [device for device, entry in kept.items() if entry.fault.reason not in OUTLIVES_RESET]
            kept = {device: entry for device, entry in kept.items() if device not in ended}
            for device in ended:
                log.info("card repaired, its history is over: device=%s how=%s", device, "the machine was restarted")
        self._record = Record(boot, kept, before.heeded if before is not None else {})
        self._first = before is None
        self._written = before
        cards.restore({device: entry.fault for device, entry in kept.items()})

    async def watch(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await pause(SECONDS)

    async def look(self) -> None:
        """Look once: at what people said, at the drivers of the cards that failed, and write down what has changed."""
        self._heed()
        self._look_at_drivers()
        fatal, devices = self._cards.fatal(), {device.id: device for device in self._cards.devices}
        faults = {
            device: known
            if (known := self._record.faults.get(device)) and known.fault == fault
            else self._new(devices.get(device), fault)
            for device, fault in fatal.items()
        }
        self._record = msgspec.structs.replace(self._record, faults=faults)
        record = self._record
        if record == self._written:
            return
        try:
            await self._work(lambda: write_file(self._file, msgspec.json.encode(record), 0o600))
            self._written = record
        except OSError as error:
            log.warning("faults not written down, trying again: error=%s", error)

    def _new(self, device: Device | None, fault: Fault) -> Kept:
        return Kept(fault, None if device is None else self._binding(device))

    def _heed(self) -> None:
        """What people said. A word that was there when the agent first came to this node is about an earlier time."""
        node = self._observed()
        if node is None:
            return
        said = read_repaired((node.metadata.annotations or {}).get(names.REPAIRED))
        for device, when in said.items():
            if self._record.heeded.get(device) != when and not self._first:
                self._cards.repaired(device, f"said by a person at {when}", by_person=True)
        self._first = False
        if said != self._record.heeded:
            self._record = msgspec.structs.replace(self._record, heeded=said)

    def _look_at_drivers(self) -> None:
        """A driver that was bound anew has set the card up from the beginning."""
        for device in self._cards.devices:
            entry = self._record.faults.get(device.id)
            if entry is None or entry.binding is None:
                continue
            now = self._binding(device)
            if now is not None and now != entry.binding:
                self._cards.repaired(device.id, "its driver was bound to it anew")
                self._record.faults.pop(device.id)  # a fault that is still there happened under the new binding

    def _binding(self, device: Device) -> int | None:
        """What tells this binding of the card's driver from others: the number of the link that sysfs makes for it."""
        bus = normal(device.bus_id) if device.bus_id and not device.emulated else None
        if bus is None:
            return None
        try:
            return (self._sysfs / "bus/pci/devices" / bus / "driver").lstat().st_ino
        except OSError:
            return None

    def _load(self) -> Record | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("faults of an earlier run cannot be read: file=%s error=%s", self._file, error)
            return None


def read_repaired(text: str | None) -> dict[str, str]:
    """The annotation's content, card to time; nothing where it cannot be read.

    >>> read_repaired('{"GPU-1": "2026-11-21T07:00:00Z"}'), read_repaired("yes")
    ({'GPU-1': '2026-11-21T07:00:00Z'}, {})
    """
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, str])
    except msgspec.MsgspecError:
        return {}
