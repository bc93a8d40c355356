"""How far this node is from named data sources: what ``status.latencies`` says, and the router places by.

A source is a name and a TCP address, given to the agent. The distance is the time that opening a connection takes: one
round trip, whatever is spoken there; nothing is sent. Each source is asked beside the event loop, a few connections a
minute, none for longer than a second. What is published is the middle of the last rounds, and it changes only when the
distance has really changed: times never repeat exactly, and an idle agent must write nothing.
"""

import datetime
import logging
import re
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hcs.agent.admissions import write_file
from hcs.model.devices import Latency
from hcs.vendors.base import Aside, VendorHungError

log = logging.getLogger(__name__)

SECONDS: Final = 60.0
"""Between two rounds."""
CONNECTIONS: Final = 5
CONNECT_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 10.0
"""For one source and round, looking its name up included."""
ROUNDS: Final = 5
"""Rounds whose middle counts."""
SILENT_ROUNDS: Final = 3
"""Rounds without an answer after which the distance is unknown."""
CHANGED: Final = 0.25
CHANGED_MICROSECONDS: Final = 100
"""What is published changes when it is off by more than this part, and by more than so much."""
MOST: Final = 64
"""Sources that a ComputeNode has room for."""

_SOURCE: Final = re.compile(
    r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)=(\[[0-9A-Fa-f:.%]+\]|[^\s\[\]:=]+):([0-9]{1,5})"
)


class DataSource(msgspec.Struct, frozen=True):
    """A named place that data comes from."""

    name: str
    host: str
    port: int


class DataSourceError(ValueError):
    """Not a list of data sources; the message shows how to write one."""


def read_sources(texts: Iterable[str]) -> tuple[DataSource, ...]:
    """Read ``name=host:port``, several in one text separated by commas.

    >>> read_sources(["lake-1=lake.example:9000,disk=[fd00::1]:2049"])[1]
    DataSource(name='disk', host='fd00::1', port=2049)

    Raises:
        DataSourceError: it cannot be read, a name stands twice, or there are too many.
    """
    found: dict[str, DataSource] = {}
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        if not text:
            continue
        match = _SOURCE.fullmatch(text)
        if match is None or not 0 < int(match[4]) < 65536:
            raise DataSourceError(f"cannot read {text[:80]!r} as a data source; write it like lake-1=lake.example:9000")
        if match[1] in found:
            raise DataSourceError(f"data source {match[1]} is named twice; give each place a name of its own")
        found[match[1]] = DataSource(match[1], match[3].strip("[]"), int(match[4]))
    if len(found) > MOST:
        raise DataSourceError(f"{len(found)} data sources are too many; a node has room for {MOST}")
    return tuple(found.values())


def round_trip(source: DataSource, *, connections: int = CONNECTIONS, limit: float = CONNECT_SECONDS) -> int | None:
    """Microseconds to a source: the median of some connections; None where it does not take them. Blocks.

    Looking its name up is not counted. Of several addresses the first that answers is used.
    """
    try:
        addresses = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)
    except OSError:  # socket.gaierror is one
        return None
    for family, kind, protocol, _, address in addresses[:3]:
        taken = []
        for _ in range(connections):
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(limit)
                since = time.perf_counter()
                try:
                    connection.connect(address)
                except OSError:
                    break
                taken.append(time.perf_counter() - since)
        if len(taken) == connections:
            return max(1, round(median(taken) * 1e6))
    return None


Probe = Callable[[DataSource], Awaitable[int | None]]


class DataSources(Collector):
    """Asks the sources again and again, says what to publish, and is their metrics."""

    def __init__(
        self,
        sources: Sequence[DataSource],
        state: Path,
        *,
        probe: Probe | None = None,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """Read which sources an earlier run had.

        Args:
            sources: those of this node.
            state: the agent's directory.
            probe: measures one, beside the event loop; microseconds, None where it does not answer.
            now: the clock for what is written.
        """
        self._sources, self._now = tuple(sources), now
        self._asides = {source.name: Aside(f"data source {source.name}", limit=LIMIT_SECONDS) for source in sources}
        self._probe: Probe = probe or self._ask
        self._file = state / "data-sources.json"
        self._former = _read(self._file) - {source.name for source in sources}
        self._heard: dict[str, deque[int]] = {source.name: deque(maxlen=ROUNDS) for source in sources}
        self._silent: dict[str, int] = dict.fromkeys(self._heard, 0)
        self.changed: Callable[[], None] = lambda: None
        """Called after each round: what is to be published may have changed."""

    async def watch(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Measure again and again, until cancelled."""
        names = sorted(self._former | set(self._heard))
        if names != sorted(_read(self._file)):
            try:
                write_file(self._file, msgspec.json.encode(names), 0o644)
            except OSError as error:
                log.warning("data sources not written down: error=%s", error)
        while self._sources:
            for source in self._sources:
                self._note(source.name, await self._probe(source))
            self.changed()
            await pause(SECONDS)

    def entries(self, observed: tuple[Latency, ...]) -> tuple[Latency, ...]:
        """What ``status.latencies`` should be, given what it is.

        Entries of sources that are not ours stay, and so does one of ours that is about right or not measured yet.
        """
        kept = [entry for entry in observed if entry.source not in self._heard and entry.source not in self._former]
        before = {entry.source: entry for entry in observed}
        for name in self._heard:
            known, old = self.microseconds(name), before.get(name)
            if known is None:
                if old is not None and self._silent[name] < SILENT_ROUNDS:
                    kept.append(old)
            elif old is not None and _same(old.microseconds, known):
                kept.append(old)
            else:
                stamp = self._now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                kept.append(Latency(name, known, stamp))
        wanted = tuple(sorted(kept[:MOST], key=lambda entry: entry.source))
        return observed if set(wanted) == set(observed) else wanted  # another order is no change

    def microseconds(self, name: str) -> int | None:
        """The distance as far as it is known: the middle of the last rounds."""
        heard = self._heard[name]
        return round(median(heard)) if heard else None

    def collect(self) -> Iterable[Metric]:
        """The metrics, from the last rounds."""
        family = GaugeMetricFamily(
            "hcs_agent_data_source_seconds", "Time to open a connection to a data source.", labels=["source"]
        )
        for name in self._heard:
            known = self.microseconds(name)
            if known is not None:
                family.add_metric([name], known / 1e6)
        yield family

    def _note(self, name: str, microseconds: int | None) -> None:
        if microseconds is not None:
            if self._silent[name] >= SILENT_ROUNDS:
                log.info("data source answers again: source=%s", name)
            self._silent[name] = 0
            self._heard[name].append(microseconds)
            return
        self._silent[name] += 1
        if self._silent[name] == SILENT_ROUNDS:
            log.warning("data source does not answer, its distance is unknown: source=%s", name)
            self._heard[name].clear()

    async def _ask(self, source: DataSource) -> int | None:
        try:
            return await self._asides[source.name].ask(lambda: round_trip(source))
        except (VendorHungError, OSError):
            return None


def _same(published: int, known: int) -> bool:
    off = abs(known - published)
    return off <= CHANGED_MICROSECONDS or off <= CHANGED * published


def _read(file: Path) -> set[str]:
    try:
        return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    except (OSError, msgspec.MsgspecError):
        return set()
