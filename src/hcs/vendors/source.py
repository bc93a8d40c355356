"""Where a vendor's figures come from: its library where that is present, else its tool.

A vendor's file says which tool answers which question, and which library speaks for it; this file turns either's
answers into devices and health. Tools are slow and their answers age slowly, so they are asked again only after
:data:`TOOL_SECONDS`; in between the last answer stands.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from hcs.health.faults import Fault
from hcs.health.signals import assess, counted
from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device, Link
from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands, pci
from hcs.vendors.base import HealthObservation, VendorError, VendorHungError
from hcs.vendors.parsing.report import FIELDS, Reading, Report
from hcs.vendors.parsing.tools import parse
from hcs.vendors.recognition import recognise

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
TOOL_SECONDS: Final = 10.0
"""How old a tool's answer may be."""
HUNG_PERIODS: Final = 6
"""How many times that long a tool that has hung is left alone."""


class Query(msgspec.Struct, frozen=True):
    """One question to a tool: its executable, its arguments, and the reader of the answer."""

    executable: str
    arguments: tuple[str, ...] = ()
    tool: str = ""

    def ask(self, run: commands.Run) -> Report:
        """Run the tool and read its answer.

        Raises:
            VendorError: it cannot answer, or hangs.
        """
        path = commands.find(self.executable)
        if path is None:
            raise VendorError(f"{self.executable} is not installed")
        return parse(self.tool or self.executable, run((path, *self.arguments)), " ".join(self.arguments))


class Source(Protocol):
    """Something that can be asked for readings: a library or a tool. Calls may block and may raise VendorError."""

    def read(self) -> Sequence[Reading]:
        """Every device, with the keys of :data:`hcs.vendors.parsing.report.FIELDS` and more."""

    def topology(self) -> Report | None:
        """Links between the devices; None where it does not know."""

    def driver(self) -> str | None:
        """The driver's version."""


class ToolSource:
    """A tool's answers, merged: the first query names the devices, the others add to them."""

    def __init__(
        self,
        queries: Sequence[Query],
        *,
        topology: Query | None = None,
        run: commands.Run = commands.run,
        clock: Callable[[], float] = time.monotonic,
        period: float = TOOL_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            queries: what to ask; what the first does not list is no device.
            topology: what to ask about links.
            run: how a tool is run.
            clock: seconds.
            period: how long an answer stands.
        """
        self._queries, self._topology, self._run = tuple(queries), topology, run
        self._clock, self._period = clock, period
        self._answer: tuple[float, tuple[Reading, ...]] | None = None
        self._refusal: tuple[float, VendorError] | None = None
        self._driver: str | None = None
        self._links: Report | None = None

    def read(self) -> Sequence[Reading]:
        """The devices; asked anew when the last answer is too old, or the last failure.

        Raises:
            VendorError: a query cannot be answered, or could not be a moment ago.
        """
        now = self._clock()
        if self._answer is not None and now - self._answer[0] < self._period:
            return self._answer[1]
        if self._refusal is not None and now < self._refusal[0]:
            raise self._refusal[1]
        try:
            self._answer = (now, self._ask())
        except VendorError as error:
            # Each tool that hangs in a driver may stay for ever: do not add another one soon.
            pause = HUNG_PERIODS if isinstance(error, VendorHungError) else 1
            self._refusal = (self._clock() + pause * self._period, error)
            raise
        return self._answer[1]

    def _ask(self) -> tuple[Reading, ...]:
        first, *others = self._queries
        report = first.ask(self._run)
        if not report.devices and report.errors:
            raise VendorError(f"{first.executable} says: {report.errors[0]}")
        devices = list(report.devices)
        self._driver = report.driver
        for query in others:
            more = query.ask(self._run)
            self._driver = self._driver or more.driver
            devices = [merged(device, more.devices) for device in devices]
        return tuple(devices)

    def topology(self) -> Report | None:
        """The links; asked once, for they are soldered."""
        if self._links is None and self._topology is not None:
            try:
                self._links = self._topology.ask(self._run)
            except VendorError:
                self._topology = None  # this release's tool does not know the question
        return self._links

    def driver(self) -> str | None:
        """As the last answer said."""
        return self._driver


class FilledSource:
    """A library whose gaps a tool fills."""

    def __init__(self, library: Source, tool: Source) -> None:
        """Take both."""
        self._library, self._tool = library, tool

    def read(self) -> Sequence[Reading]:
        """The library's devices with what the tool adds.

        Raises:
            VendorError: either cannot answer.
        """
        more = self._tool.read()
        return [merged(device, more) for device in self._library.read()]

    def topology(self) -> Report | None:
        """The library's, else the tool's."""
        return self._library.topology() or self._tool.topology()

    def driver(self) -> str | None:
        """The library's, else the tool's."""
        return self._library.driver() or self._tool.driver()


def merged(device: Reading, others: Sequence[Reading]) -> Reading:
    """A device with what another answer knows about the same one; what is known stays."""
    for key in ("uuid", "bus_id", "index"):
        same = [other for other in others if device[key] is not None and other[key] == device[key]]
        if len(same) == 1:
            known = {name: value for name, value in device.items() if value is not None}
            return {**same[0], **known} | {field: known.get(field, same[0][field]) for field in FIELDS}
    return device


_OFF_THE_BUS: Final = Fault("Failed", "NotOnBus", "the tool lists the card, but it is not on the PCIe bus")


class _Assessed(msgspec.Struct, frozen=True):
    """A reading, the same with its counts, and what it says."""

    reading: Reading
    counted: Mapping[str, Any]
    faults: tuple[Fault, ...]


class SourcedVendor:
    """A vendor whose cards are what its source lists."""

    def __init__(self, word: str, source: Source, catalogue: Catalogue) -> None:
        """Prepare; nothing is asked before the first probe."""
        self._word, self._source, self._catalogue = word, source, catalogue
        self._before: dict[str, _Assessed] = {}
        self._lost: frozenset[str] = frozenset()

    @property
    def word(self) -> str:
        """The vendor word."""
        return self._word

    def probe(self) -> Sequence[Device]:
        """Every device the source lists, with its links.

        Raises:
            VendorError: the source cannot answer.
        """
        readings = self._source.read()
        lost = pci.unlisted(reading["bus_id"] for reading in readings if reading["bus_id"])
        if lost != self._lost:
            self._lost = lost
            log.warning("cards on the bus that the tool does not list: vendor=%s bus=%s", self._word, sorted(lost))
        ids = [identity(self._word, reading) for reading in readings]
        links, nearness = _links(self._source.topology(), readings, ids)
        devices = []
        for position, (reading, id) in enumerate(zip(readings, ids, strict=True)):
            index = reading["index"]
            device = recognise(
                self._catalogue,
                vendor=reading["vendor"],
                name=reading["name"] or "unknown",
                id=id,
                index=index if index is not None else int(reading.get("minor_number", position)),
                vram=int((reading["memory_total_mib"] or 0) * MIB),
                bus_id=reading["bus_id"],
                numa=nearness.get(id),
            )
            devices.append(msgspec.structs.replace(device, links=links.get(id, ())))
        return pci.with_places(devices)

    def read_health(self) -> Sequence[HealthObservation]:
        """What every device's figures say; a device that is no longer listed is left out.

        Raises:
            VendorError: the source cannot answer.
        """
        seen: list[HealthObservation] = []
        now: dict[str, _Assessed] = {}
        readings = self._source.read()
        gone: frozenset[str] | None = None
        for reading in readings:
            id = identity(self._word, reading)
            before = self._before.get(id)
            if before is not None and before.reading is reading:  # the tool was not asked anew
                now[id] = before
            else:
                past = before.counted if before is not None else None
                counts = counted(pci.with_link(reading), past)
                if gone is None:
                    gone = pci.absent(other["bus_id"] for other in readings if other["bus_id"])
                faults = assess(reading["vendor"], counts, past)
                now[id] = _Assessed(reading, counts, (*faults, *([_OFF_THE_BUS] if reading["bus_id"] in gone else [])))
            seen.append(HealthObservation(id, faults=now[id].faults, figures=now[id].counted))
        self._before = now
        return seen

    def node_files(self, device: Device) -> NodeFiles:
        """Nothing beyond the profile."""
        return NodeFiles()

    def forget(self, device: str) -> None:
        """Nothing: what a tool says is read anew each time."""

    def driver_versions(self) -> dict[str, str]:
        """The driver's version, where the source knows it."""
        version = self._source.driver()
        return {self._word: version} if version else {}


def identity(word: str, reading: Reading) -> str:
    """A device's stable name on its node: its UUID, else its place on the bus, else its number.

    Two chips may share a bus id, so the chip's number goes with it where there is one.
    """
    if reading["uuid"]:
        return str(reading["uuid"])
    chip = f"-{reading['chip_id']}" if reading["chip_id"] is not None else ""
    if reading["bus_id"]:
        return f"{word}-{reading['bus_id'].lower()}{chip}"
    if reading["index"] is not None:
        return f"{word}-{reading['index']}"
    return f"{word}-npu{reading['npu_id']}{chip}"


def _links(
    topology: Report | None, readings: Sequence[Reading], ids: Sequence[str]
) -> tuple[dict[str, tuple[Link, ...]], dict[str, int]]:
    """Links by device id, from a matrix whose labels count the devices in order; and NUMA nodes."""
    if topology is None or topology.gpus is None or len(topology.gpus) != len(readings):
        return {}, {}
    id_of = dict(zip(topology.gpus, ids, strict=True))
    found: dict[str, list[Link]] = {id: [] for id in ids}
    for pair, kind in (topology.links or {}).items():
        for one in id_of:
            other = pair.removeprefix(f"{one}-")  # a label may hold a dash itself: Phy-ID3
            if other != pair and other in id_of:
                found[id_of[one]].append(Link(id_of[other], kind))
                found[id_of[other]].append(Link(id_of[one], kind))
    nodes = {
        id_of[label]: near["numa"]
        for label, near in (topology.numa or {}).items()
        if label in id_of and isinstance(near.get("numa"), int)
    }
    return {id: tuple(links) for id, links in found.items()}, nodes
