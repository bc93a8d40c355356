"""PCIe errors (AER) as the kernel reports them: by BPF, else from a trace pipe, else from counters in sysfs.

The tracepoint ``ras:aer_event`` says which device, how grave, and which bits of its status register were set; where
these stand in a record is read from the tracepoint's ``format``. Kernels without AER have no such tracepoint, and then
sysfs may still count. Which source is in use is published, so that none takes over silently.
"""

import asyncio
import errno
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from hcs.agent.bpf import Format, TracepointListener, TracingUnavailableError, close_tracefs, open_tracefs
from hcs.agent.tracepipe import TracePipe

log = logging.getLogger(__name__)

GROUP, NAME = "ras", "aer_event"
Severity = Literal["corrected", "nonfatal", "fatal"]
Source = Literal["bpf", "trace_pipe", "sysfs", "none"]

_SEVERITIES: Final[Mapping[int, Severity]] = {0: "nonfatal", 1: "fatal", 2: "corrected"}
"""The kernel's numbers in this tracepoint (``include/ras/ras_event.h``)."""
_CORRECTED_BITS: Final = {
    0: "Receiver Error",
    6: "Bad TLP",
    7: "Bad DLLP",
    8: "Replay Number Rollover",
    12: "Replay Timer Timeout",
    13: "Advisory Non-Fatal",
}
_ONLY_CORRECTED: Final = frozenset({*_CORRECTED_BITS.values(), "RELAY_NUM Rollover"})
_UNCORRECTED_BITS: Final = {
    4: "Data Link Protocol",
    12: "Poisoned TLP",
    13: "Flow Control Protocol",
    14: "Completion Timeout",
    15: "Completer Abort",
    16: "Unexpected Completion",
    17: "Receiver Overflow",
    18: "Malformed TLP",
    19: "ECRC",
    20: "Unsupported Request",
}
_PIPE_LINE: Final = re.compile(
    r"aer_event: ([0-9a-fA-F:.]+) PCIe Bus Error: severity=(Corrected|Uncorrected, non-fatal|Fatal)[^,]*(?:, (.*))?"
)
_COUNTERS: Final[Mapping[str, tuple[Severity, str]]] = {
    "aer_dev_correctable": ("corrected", "TOTAL_ERR_COR"),
    "aer_dev_nonfatal": ("nonfatal", "TOTAL_ERR_NONFATAL"),
    "aer_dev_fatal": ("fatal", "TOTAL_ERR_FATAL"),
}


class PcieError(msgspec.Struct, frozen=True):
    """One report: the device's PCI address, how grave, which errors, and how many at once."""

    bus_id: str
    severity: Severity
    errors: tuple[str, ...] = ()
    count: int = 1


def decode(layout: Format, record: bytes) -> PcieError | None:
    """Read a record of the tracepoint; None where it lacks what makes a report."""
    bus, status, number = layout.text(record, "dev_name"), layout.integer(record, "status"), None
    number = layout.integer(record, "severity")
    severity = _SEVERITIES.get(number) if number is not None else None
    if not bus or severity is None:
        return None
    names = _CORRECTED_BITS if severity == "corrected" else _UNCORRECTED_BITS
    bits = [bit for bit in range(32) if (status or 0) >> bit & 1]
    return PcieError(bus, severity, tuple(names.get(bit, f"bit {bit}") for bit in bits))


def read_pipe_line(line: str) -> PcieError | None:
    """Read a line of ``trace_pipe``; None for any other line."""
    match = _PIPE_LINE.search(line)
    if match is None:
        return None
    words: Mapping[str, Severity] = {"Corrected": "corrected", "Uncorrected, non-fatal": "nonfatal", "Fatal": "fatal"}
    texts = re.split(r",|\|", (match.group(3) or "").split(", TLP Header")[0])
    errors = tuple(text.strip() for text in texts if text.strip())
    # Some kernels write "Uncorrected, non-fatal" before errors that only ever are corrected ones; the names are right.
    severity = "corrected" if errors and _ONLY_CORRECTED.issuperset(errors) else words[match.group(2)]
    return PcieError(match.group(1), severity, errors)


def counters(devices: Path, buses: Iterator[str] | list[str]) -> dict[tuple[str, Severity], int]:
    """The counters of some devices and of the ports above them; what has no counter is left out.

    Args:
        devices: ``/sys/bus/pci/devices``, or its like.
        buses: PCI addresses as sysfs writes them.
    """
    found: dict[tuple[str, Severity], int] = {}
    for bus in buses:
        for place in (devices / bus, (devices / bus).resolve().parent):
            for file, (severity, total) in _COUNTERS.items():
                try:
                    text = (place / file).read_text()
                except OSError:
                    continue
                match = re.search(rf"^{total} ([0-9]+)$", text, re.MULTILINE | re.ASCII)
                if match is not None:
                    key = (bus, severity)
                    found[key] = found.get(key, 0) + int(match.group(1))
    return found


class AerWatch:
    """Tells of PCIe errors from the best source there is."""

    def __init__(
        self,
        seen: Callable[[PcieError], None],
        *,
        sysfs: Path = Path("/sys"),
        buses: Callable[[], list[str]] = list,
    ) -> None:
        """Prepare.

        Args:
            seen: called for each report, in the event loop.
            sysfs: where sysfs is.
            buses: the cards' PCI addresses, for the counters.
        """
        self._seen, self._devices, self._buses = seen, sysfs / "bus/pci/devices", buses
        self._listener: TracepointListener | None = None
        self._pipe: TracePipe | None = None
        self._tracefs: Path | None = None
        self._counted: dict[tuple[str, Severity], int] | None = None
        self.source: Source = "none"
        self.problem = ""

    def start(self) -> Source:
        """Begin with the best source that works; must be called in the event loop."""
        try:
            self._tracefs = open_tracefs()
            self._listen(self._tracefs)
        except OSError as error:
            self.problem = str(error)
            self._counted = counters(self._devices, self._buses())
            self.source = "sysfs" if self._counted else "none"
            log.info("PCIe errors are read from %s: %s", self.source, self.problem)
        return self.source

    def _listen(self, tracefs: Path) -> None:
        """By a program, else by a pipe.

        Raises:
            OSError: by neither.
        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = TracepointListener(tracefs, GROUP, NAME)
            loop.add_reader(self._listener, self._drain)
            self.source = "bpf"
        except TracingUnavailableError as error:
            if error.errno == errno.ENOENT:
                raise
            self.problem = str(error)
            self._pipe = TracePipe(tracefs, GROUP, NAME)
            loop.add_reader(self._pipe, self._read_pipe)
            self.source = "trace_pipe"
            log.warning("PCIe errors are read from %s: %s", self.source, self.problem)

    def poll(self) -> None:
        """Read the counters, where they are the source; elsewhere this does nothing. A dozen small reads a card."""
        if self.source in ("bpf", "trace_pipe"):
            return
        now = counters(self._devices, self._buses())
        before = self._counted if self._counted is not None else now
        for (bus, severity), count in now.items():
            grown = count - before.get((bus, severity), count)
            if grown > 0:
                self._seen(PcieError(bus, severity, count=grown))
        self._counted = now
        self.source = "sysfs" if now else "none"

    def stop(self) -> None:
        """Listen no longer."""
        loop = asyncio.get_running_loop()
        if self._listener is not None:
            loop.remove_reader(self._listener)
            self._listener.close()
        if self._pipe is not None:
            loop.remove_reader(self._pipe)
            self._pipe.close()
        if self._tracefs is not None:
            close_tracefs(self._tracefs)
        self._listener = self._pipe = self._tracefs = None

    def _drain(self) -> None:
        assert self._listener is not None
        for record in self._listener.records():
            error = decode(self._listener.format, record)
            if error is not None:
                self._seen(error)

    def _read_pipe(self) -> None:
        assert self._pipe is not None
        for line in self._pipe.lines():
            error = read_pipe_line(line)
            if error is not None:
                self._seen(error)
