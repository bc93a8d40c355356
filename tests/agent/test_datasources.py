"""How far the node is from its data: measured by opening connections, published when it has really changed."""

import asyncio
import datetime
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube.types import PatchType
from prometheus_client import CollectorRegistry, generate_latest
from tests.agent.scene import NODE, NodeScene, scene

from hcs.agent.datasources import (
    MOST,
    SECONDS,
    SILENT_ROUNDS,
    DataSource,
    DataSourceError,
    DataSources,
    read_sources,
    round_trip,
)
from hcs.kube.resources import ComputeNodeStatus
from hcs.model.devices import Latency
from hcs.sandbox.scheduler.virtualtime import run_virtual

LAKE, DISK = DataSource("lake-1", "lake.example", 9000), DataSource("disk", "disk.example", 2049)
DOCUMENT = Path(__file__).parents[2] / "docs/metrics.md"


class Far:
    """Answers with what each source is said to be away; None does not answer."""

    def __init__(self, **microseconds: int | None) -> None:
        self.microseconds, self.asked = microseconds, 0

    async def __call__(self, source: DataSource) -> int | None:
        self.asked += 1
        return self.microseconds[source.name.replace("-", "_")]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(["lake-1=lake.example:9000"], [("lake-1", "lake.example", 9000)], id="one"),
        pytest.param(["a=10.0.0.1:1, b=[fd00::1]:2"], [("a", "10.0.0.1", 1), ("b", "fd00::1", 2)], id="several-in-one"),
        pytest.param([], [], id="none"),
    ],
)
def test_sources_are_read(texts: list[str], expected: list[tuple[str, str, int]]) -> None:
    assert [(s.name, s.host, s.port) for s in read_sources(texts)] == expected


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["lake-1"], "write it like"),
        (["lake 1=h:1"], "write it like"),
        (["lake=h:0"], "write it like"),
        (["lake=h:70000"], "write it like"),
        (["lake=fd00::1:80"], "write it like"),
        (["=h:1"], "write it like"),
        (["a=h:1", "a=i:1"], "named twice"),
        ([f"s{n}=h:1" for n in range(MOST + 1)], "too many"),
    ],
)
def test_what_is_no_source_says_how_to_write_one(texts: list[str], why: str) -> None:
    with pytest.raises(DataSourceError, match=why):
        read_sources(texts)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port of the loopback that takes connections and counts on nobody to speak."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(1):
                        return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        with socket.create_connection(server.getsockname()) as last:
            last.send(b"x")
        thread.join()


def test_a_source_on_the_loopback_is_near(listening: int) -> None:
    found = round_trip(DataSource("here", "127.0.0.1", listening))
    assert found is not None
    assert 1 <= found < 5_000_000  # five connections of a second each are the most there can be


def test_a_source_that_takes_no_connection_has_no_distance() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        assert round_trip(DataSource("closed", "127.0.0.1", bound.getsockname()[1])) is None


def test_an_address_that_cannot_be_has_no_distance() -> None:
    """One that no name server is asked for."""
    assert round_trip(DataSource("nowhere", "fe80::1%no-such-interface", 1)) is None


def test_the_agent_asks_in_a_thread_of_its_own(tmp_path: Path, listening: int) -> None:
    sources = DataSources((DataSource("here", "127.0.0.1", listening),), tmp_path)

    async def once(_: float) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sources.watch(once))
    assert sources.microseconds("here") is not None


async def latencies(node: NodeScene) -> dict[str, int]:
    return {entry.source: entry.microseconds for entry in (await node.published()).status.latencies}


def test_distances_are_published_and_an_idle_agent_writes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            far = Far(lake_1=400, disk=90)
            sources = DataSources((LAKE, DISK), node.folder, probe=far, now=node.cluster.today)
            await node.start_agent(data_sources=sources)
            await node.settle()
            assert await latencies(node) == {"lake-1": 400, "disk": 90}
            assert (await node.published()).inventory().latency("lake-1") == 400
            before = (await node.published()).metadata.resourceVersion
            far.microseconds = {"lake_1": 490, "disk": 170}  # noise
            await asyncio.sleep(10 * SECONDS)
            assert far.asked > 10
            assert (await node.published()).metadata.resourceVersion == before
            far.microseconds = {"lake_1": 900, "disk": 170}  # one round is no change yet, several are
            await asyncio.sleep(SECONDS)
            assert (await node.published()).metadata.resourceVersion == before
            await asyncio.sleep(5 * SECONDS)
            assert await latencies(node) == {"lake-1": 900, "disk": 90}

    run_virtual(story())


def test_a_source_that_falls_silent_is_unknown_after_a_while(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            far = Far(lake_1=400)
            sources = DataSources((LAKE,), node.folder, probe=far, now=node.cluster.today)
            await node.start_agent(data_sources=sources)
            await node.settle()
            far.microseconds = {"lake_1": None}
            await asyncio.sleep((SILENT_ROUNDS - 1) * SECONDS)
            assert await latencies(node) == {"lake-1": 400}
            await asyncio.sleep(SECONDS)
            await node.settle()
            assert await latencies(node) == {}
            far.microseconds = {"lake_1": 1000}
            await asyncio.sleep(SECONDS)
            await node.settle()
            assert await latencies(node) == {"lake-1": 1000}

    run_virtual(story())


def test_entries_of_others_stay_and_our_own_go_when_they_are_not_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            sources = DataSources((LAKE, DISK), node.folder, probe=Far(lake_1=400, disk=90), now=node.cluster.today)
            await node.start_agent(data_sources=sources)
            await node.settle()
            theirs = [{"source": "theirs", "microseconds": 7}]
            mine = [{"source": name, "microseconds": us} for name, us in (await latencies(node)).items()]
            await node.cluster.client.patch(
                ComputeNodeStatus, NODE, {"status": {"latencies": mine + theirs}}, patch_type=PatchType.MERGE
            )
            await node.settle()
            await node.stop_agent()
            again = DataSources((LAKE,), node.folder, probe=Far(lake_1=401), now=node.cluster.today)
            await node.start_agent(data_sources=again)
            await node.settle()
            assert await latencies(node) == {"lake-1": 400, "theirs": 7}
            await node.stop_agent()
            await node.start_agent()
            await node.settle()
            assert await latencies(node) == {"lake-1": 400, "theirs": 7}  # nobody measures, nobody takes away

    run_virtual(story())


def test_another_order_is_no_change(tmp_path: Path) -> None:
    observed = (Latency("z", 5), Latency("a", 9))
    assert DataSources((), tmp_path).entries(observed) is observed


def test_the_metric_is_documented_and_absent_where_unknown(tmp_path: Path) -> None:
    sources = DataSources((LAKE, DISK), tmp_path, probe=Far(lake_1=400, disk=None))

    async def once(_: float) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sources.watch(once))
    registry = CollectorRegistry()
    registry.register(sources)
    text = generate_latest(registry).decode()
    assert 'hcs_agent_data_source_seconds{source="lake-1"} 0.0004' in text
    assert 'source="disk"' not in text
    assert "| `hcs_agent_data_source_seconds` | gauge | `source` |" in DOCUMENT.read_text()
    (entry,) = sources.entries(())
    assert datetime.datetime.fromisoformat(entry.measured_at).tzinfo is not None
