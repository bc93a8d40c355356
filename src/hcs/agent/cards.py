"""The cards of this node as they are now: who is there, and how each one is.

Vendors are probed at start and now and then; their health is read several times a second. A card that stops being
listed has failed; a vendor that does not answer makes its cards Unknown, for a silent driver proves nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from hcs.health.casebook import Casebook
from hcs.health.faults import Fault, classify, worst
from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device
from hcs.vendors.base import (
    Asker,
    HealthObservation,
    Partitioner,
    Questioner,
    Vendor,
    VendorError,
    VendorHungError,
)

log = logging.getLogger(__name__)
Pause = Callable[[float], Awaitable[None]]
T = TypeVar("T")

_NOT_READ = Fault("Unknown", "", "")
_MISSING = Fault("Failed", "CardMissing", "the driver no longer lists the card; look at the kernel log")


class Cards:
    """Everything known about the node's cards."""

    def __init__(
        self,
        vendors: Sequence[Vendor],
        *,
        changed: Callable[[], None] = lambda: None,
        asker: Callable[[Vendor], Asker] = Questioner,
        refine: Callable[[Device], Device] = lambda device: device,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is asked before :meth:`probe`.

        Args:
            vendors: where cards come from.
            changed: called after each round in which something is new.
            asker: how a vendor is asked; by default in a thread, with a limit.
            refine: what is known of a card beyond what its vendor says.
            clock: seconds, for how long ago something was told.
        """
        self._refine = refine
        self._askers = [asker(vendor) for vendor in vendors]
        self._changed = changed
        self._devices: dict[str, Device] = {}
        self._vendor_of: dict[str, Vendor] = {}
        self._silent: dict[str, str] = {}
        self._clock = clock
        self._book = Casebook()
        self._foreign: frozenset[str] = frozenset()
        self._read: dict[str, tuple[Fault, ...]] = {}
        self._told: dict[str, Fault] = {}
        self._repairs = 0
        self.figures: dict[str, Mapping[str, Any]] = {}
        """What was last read of each card, by its id; see ``docs/probes.md``."""
        self.driver_versions: dict[str, str] = {}
        self.known = asyncio.Event()
        """Set once every vendor has been asked for its cards and their health."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """All cards with their verdicts, in order of vendor and index."""
        found = sorted(self._devices.values(), key=lambda d: (d.vendor, d.index, d.id))
        return tuple(msgspec.structs.replace(d, foreign=True) if d.id in self._foreign else d for d in found)

    def mark_foreign(self, ids: frozenset[str]) -> None:
        """Note which cards somebody outside HCS holds; all others are free of that."""
        before = self._snapshot()
        self._foreign = ids
        self._compare(before)

    @property
    def silent(self) -> dict[str, str]:
        """Vendors that do not answer, and what was seen instead."""
        return dict(self._silent)

    def files(self, device: Device) -> NodeFiles:
        """What the device's vendor says a container needs for it."""
        vendor = self._vendor_of.get(device.id)
        return vendor.node_files(device) if vendor is not None else NodeFiles()

    def partitioner(self, device: str) -> Partitioner | None:
        """Who can give a part of the device; None where nobody can."""
        vendor = self._vendor_of.get(device)
        return vendor if isinstance(vendor, Partitioner) else None

    @property
    def partitioners(self) -> tuple[Partitioner, ...]:
        """All vendors that can give parts of their cards."""
        return tuple(asker.vendor for asker in self._askers if isinstance(asker.vendor, Partitioner))

    def tell(self, device: str, note: Callable[[Casebook, float], None]) -> None:
        """Take note of something that happened to a card, and judge it at once.

        Args:
            device: the card's id.
            note: writes it into the book; called with the book and the time.
        """
        before = self._snapshot()
        note(self._book, self._clock())
        if device in self._devices:
            self._judge(self._devices[device])
        self._compare(before)

    def fatal(self) -> dict[str, Fault]:
        """The cards with a fault that stays until they are repaired, and the fault."""
        return self._book.fatal()

    def restore(self, faults: Mapping[str, Fault]) -> None:
        """Take up faults that an earlier run wrote down; before the first probe."""
        for device, fault in faults.items():
            self._book.restore(device, fault)

    def repaired(self, device: str, how: str, *, by_person: bool = False) -> None:
        """A card was repaired: what happened to it before is over. What is still read of it goes on counting.

        Args:
            device: the card's id.
            how: what tells so, for the log.
            by_person: whether a person says so; a reset ends less, see :meth:`Casebook.reset`.
        """
        before = self._snapshot()
        self._repairs += 1
        if by_person:
            self._book.repaired(device)
        else:
            self._book.reset(device)
        if device in self._vendor_of:
            self._vendor_of[device].forget(device)
        log.info("card repaired, its history is over: device=%s how=%s", device, how)
        if by_person and self._read.get(device) == (_MISSING,):  # replaced by another: it will not come back
            for known in (self._devices, self._vendor_of, self._read, self._told, self.figures):
                known.pop(device, None)
        read = self._read.get(device)
        if read is not None:
            self._read[device] = tuple(fault for fault in read if fault != self._told.get(device))
        if device in self._devices:
            self._judge(self._devices[device])
        self._compare(before)

    async def probe(self) -> None:
        """Ask every vendor for its cards; identities may change, verdicts stay until health is read."""
        before = self._snapshot()
        for asker in self._askers:
            vendor = asker.vendor
            try:
                found = await _ask(asker, vendor.probe)
                self.driver_versions |= await _ask(asker, vendor.driver_versions)
            except VendorError as error:
                self._note_silence(vendor, error)
                continue
            self._silent.pop(vendor.word, None)
            for device in found:
                self._vendor_of[device.id] = vendor
                known = self._devices.get(device.id, device)
                self._devices[device.id] = msgspec.structs.replace(
                    device,
                    verdict=known.verdict,
                    verdict_reason=known.verdict_reason,
                    verdict_message=known.verdict_message,
                )
        # When all are known: what is known of a card beyond its vendor's words may be about its way to another.
        self._devices = {id: self._refine(device) for id, device in self._devices.items()}
        self._compare(before)

    def refined(self) -> None:
        """What is known beyond the vendors' words has changed."""
        before = self._snapshot()
        self._devices = {id: self._refine(device) for id, device in self._devices.items()}
        self._compare(before)

    async def check(self) -> None:
        """Read every vendor's health and judge the cards."""
        before = self._snapshot()
        await asyncio.gather(*(self._check(asker) for asker in self._askers))
        self.known.set()
        self._compare(before)

    async def watch(self, pause: Pause, *, poll: float, probe: float) -> None:
        """Probe, then read health every ``poll`` seconds and probe every ``probe`` seconds, until cancelled."""
        await self.probe()
        await self.check()
        since = 0.0
        while True:
            await pause(poll)
            since += poll
            if since >= probe:
                since = 0.0
                await self.probe()
            await self.check()

    async def _check(self, asker: Asker) -> None:
        vendor = asker.vendor
        mine = [device for device in self._devices.values() if self._vendor_of[device.id] is vendor]
        repairs = self._repairs
        try:
            seen = {observation.device: observation for observation in await _ask(asker, vendor.read_health)}
        except VendorError as error:
            self._note_silence(vendor, error)
            reason = "VendorHung" if isinstance(error, VendorHungError) else "VendorSilent"
            for device in mine:
                self._read[device.id] = (Fault("Unknown", reason, str(error)),)
                self._judge(device)
            return
        self._silent.pop(vendor.word, None)
        for device in mine:
            observation = seen.get(device.id)
            self.figures[device.id] = observation.figures if observation is not None else {}
            self._read[device.id] = (_MISSING,) if observation is None else _faults(device, observation)
            if observation is not None and observation.told:
                if repairs != self._repairs:  # asked before a card was repaired: old news
                    self._read[device.id] = observation.faults
                else:
                    self._note_told(device, classify(device.vendor, observation.code))
            self._judge(device)

    def _note_told(self, device: Device, fault: Fault) -> None:
        """An event that the vendor remembers; a fatal one is remembered here too, beyond the vendor's life."""
        self._told[device.id] = fault
        if fault.verdict == "Failed" and device.id not in self._book.fatal():
            self._book.restore(device.id, fault)

    def _judge(self, device: Device) -> None:
        """The gravest of what was read and what was told."""
        fault = worst((*self._read.get(device.id, (_NOT_READ,)), self._book.current(device.id, self._clock())))
        if fault.verdict == "Healthy":
            fault = Fault("Healthy", "", "")
        if (device.verdict, device.verdict_reason) == (fault.verdict, fault.reason):
            return
        self._devices[device.id] = msgspec.structs.replace(
            device, verdict=fault.verdict, verdict_reason=fault.reason, verdict_message=fault.message
        )
        log.info(
            "verdict: device=%s model=%s verdict=%s reason=%s", device.id, device.model, fault.verdict, fault.reason
        )

    def _note_silence(self, vendor: Vendor, error: VendorError) -> None:
        if vendor.word not in self._silent:
            log.warning("vendor does not answer: vendor=%s error=%s", vendor.word, error)
        self._silent[vendor.word] = str(error)

    def _snapshot(self) -> object:
        return self.devices, dict(self.driver_versions), frozenset(self._silent), self.known.is_set()

    def _compare(self, before: object) -> None:
        if self._snapshot() != before:
            self._changed()


async def _ask(asker: Asker, question: Callable[[], T]) -> T:
    """Ask a vendor; whatever goes wrong in it is its silence, and no matter for the other vendors' cards.

    Raises:
        VendorError: it has no answer.
    """
    try:
        return await asker.ask(question)
    except VendorError:
        raise
    except Exception as error:
        log.exception("vendor failed: vendor=%s", asker.vendor.word)
        raise VendorError(f"{asker.vendor.word} failed: {error!r}") from error


def _faults(device: Device, observation: HealthObservation) -> tuple[Fault, ...]:
    return (classify(device.vendor, observation.code), *observation.faults)
