"""Faults that are told rather than read: the kernel's log and PCIe errors, brought to the card they are about.

An Xid reaches the card's verdict in the turn of the event loop in which the kernel's line is read. What cannot be tied
to a card of this node is counted and otherwise let go.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from hcs.agent.aer import AerWatch, PcieError
from hcs.agent.cards import Cards
from hcs.agent.kernellog import DEVICE, KernelLog
from hcs.health.casebook import Casebook
from hcs.model.devices import Device
from hcs.vendors.parsing.kernel_log import Event

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 10.0
FELL_OFF: Final = 79
RECOVERY: Final = 154
"""NVIDIA's driver says that what it wants done to the card has changed."""
_NOTHING_WANTED: Final = re.compile(r"changed from 0x[0-9a-fA-F]+ \([^)]*\) to 0x0+ \(None\)")


class Alarms:
    """Follows both sources and tells the cards."""

    def __init__(self, cards: Cards, *, kernel_log: str = DEVICE, sysfs: Path = Path("/sys")) -> None:
        """Prepare; nothing is opened before :meth:`watch`."""
        self._cards = cards
        self.kernel_log = KernelLog(self.heard, device=kernel_log)
        self.aer = AerWatch(self.struck, sysfs=sysfs, buses=self._buses)
        self.strays = 0
        """Events about no card of this node."""

    async def watch(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Follow both until cancelled."""
        self.kernel_log.start()
        self.aer.start()
        try:
            while True:
                await pause(POLL_SECONDS)
                self.aer.poll()
        finally:
            self.kernel_log.stop()
            self.aer.stop()

    def heard(self, event: Event) -> None:
        """The kernel's log tells of a fault."""
        if event.kind == "aer":
            # Corrected ones are counted: once, so not where sysfs counts them, nor when they are but announced.
            again = event.severity == "corrected" and (self.aer.source == "sysfs" or event.announced)
            if self.aer.source not in ("bpf", "trace_pipe") and event.bus_id and event.severity and not again:
                self._pcie(event.bus_id, event.severity, 1, event.message)
            return  # else the same report comes from there
        if event.kind == "lost":  # the same that Xid 79 says, and sometimes said alone
            event = msgspec.structs.replace(event, kind="xid", code=FELL_OFF)
        vendor = "nvidia" if event.kind == "xid" else "ascend"
        device = self._find(event.bus_id) if event.bus_id else self._numbered(vendor, event.device)
        if device is None or event.code is None:
            self.strays += 1
            log.warning("fault of no card known here: kind=%s code=%s bus=%s", event.kind, event.code, event.bus_id)
            return
        if event.kind == "xid" and event.code == RECOVERY and _NOTHING_WANTED.search(event.message):
            self._cards.repaired(device.id, "the driver says that nothing needs to be done to it any more")
            return
        program = str(event.pid or event.process or "")
        self._cards.tell(device.id, lambda book, now: _note(book, device.id, event, program, now))

    def struck(self, error: PcieError) -> None:
        """The kernel reports a PCIe error."""
        self._pcie(error.bus_id, error.severity, error.count, ", ".join(error.errors))

    def _pcie(self, bus: str, severity: str, count: int, detail: str) -> None:
        device = self._find(bus)
        if device is None:
            self.strays += 1
            return

        def note(book: Casebook, now: float) -> None:
            for _ in range(min(count, 256)):
                book.pcie(device.id, severity, now, detail)

        self._cards.tell(device.id, note)

    def _find(self, bus: str) -> Device | None:
        wanted = plain_bus(bus)
        return next((card for card in self._real() if card.bus_id and plain_bus(card.bus_id) == wanted), None)

    def _numbered(self, vendor: str, number: int | None) -> Device | None:
        return next((card for card in self._real() if card.vendor == vendor and card.index == number), None)

    def _real(self) -> list[Device]:
        """The kernel knows nothing of emulated cards, whatever address they play."""
        return [card for card in self._cards.devices if not card.emulated]

    def _buses(self) -> list[str]:
        return [f"{plain_bus(card.bus_id)}.0" for card in self._real() if card.bus_id]


def plain_bus(bus: str) -> str:
    """A PCI address in one spelling, without its function: ``00000000:9B:00.0`` and ``9b:00`` are ``0000:9b:00``."""
    parts = bus.lower().partition(".")[0].split(":")
    domain = parts[0][-4:] if len(parts) == 3 else "0000"
    return ":".join((domain.rjust(4, "0"), *parts[-2:]))


def _note(book: Casebook, device: str, event: Event, program: str, now: float) -> None:
    assert event.code is not None
    if event.kind == "xid":
        book.xid(device, event.code, program, now)
    else:
        book.ascend(device, event.code, now, recovered=event.recovered)
