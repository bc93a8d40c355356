"""Byte for byte what a plugin said to real runtimes: their recorded frames go in, ours must be the recorded answers."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.nri.plugins import RECORDED, Scripted
from tests.samples import SAMPLES, recorded

from hcs.inject.adjustments import Adjustment
from hcs.nri.frames import Demultiplexer, encode
from hcs.nri.plugin import Plugin

EVERYTHING_RECORDED = (1, 2, 3, 4, 5, 6, 10, 11, 14)


class Line(msgspec.Struct, frozen=True, rename={"sender": "from", "content": "hex"}):
    """One payload: who sent it, on which connection."""

    sender: str
    conn: int
    content: str

    def framed(self) -> bytes:
        """With the eight bytes of the multiplexer."""
        payload = bytes.fromhex(self.content)
        return self.conn.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


class Always(Scripted):
    """Adjusts every container, as the recorded plugin did."""

    def __init__(self, adjustment: Adjustment) -> None:
        super().__init__(adjustment)

    def must_refuse(self, pod: object) -> bool:
        return True


def lines(name: str) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in (SAMPLES / name).read_bytes().splitlines()]


@recorded
@pytest.mark.parametrize("cut", [pytest.param(0, id="as-recorded"), pytest.param(1, id="byte-by-byte")])
@pytest.mark.parametrize(
    ("name", "runtime", "validates"),
    [
        pytest.param("nri-containerd-2.3.4.jsonl", "containerd v2.3.4", True, id="2.3.4"),
        pytest.param("nri-containerd-1.7.24.jsonl", "containerd 1.7.24~ds1", False, id="1.7.24"),
    ],
)
def test_a_whole_pods_life(folder: Path, name: str, runtime: str, validates: bool, cut: int) -> None:
    handlers = Always(RECORDED)
    done = asyncio.Event()
    problems: list[str] = []

    async def replay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, line in enumerate(lines(name), start=1):
            wanted = line.framed()
            if line.sender == "runtime":
                step = cut or len(wanted)
                writer.writelines(wanted[start : start + step] for start in range(0, len(wanted), step))
                await writer.drain()
            else:
                got = await reader.readexactly(len(wanted))
                if got != wanted:
                    problems.append(f"line {number}: expected {wanted.hex()}, got {got.hex()}")
        writer.close()
        done.set()

    async def whole() -> None:
        server = await asyncio.start_unix_server(replay, str(folder / "nri.sock"))
        plugin = Plugin("hcs", "50", handlers, events=EVERYTHING_RECORDED, socket=folder / "nri.sock")
        running = asyncio.create_task(plugin.run())
        await asyncio.wait_for(done.wait(), 30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()

    asyncio.run(whole())
    assert problems == []
    assert str(handlers.runtime) == runtime
    assert [word.partition(" ")[0] for word in handlers.heard if word != "disconnected"] == [
        "connected",
        "RunPodSandbox",
        "create",
        *(["validate"] if validates else []),
        "PostCreateContainer",
        "StartContainer",
        "StopContainer",
        "StopPodSandbox",
        "RemoveContainer",
        "RemovePodSandbox",
    ]


@recorded
@pytest.mark.parametrize("name", ["nri-containerd-2.3.4.jsonl", "nri-containerd-1.7.24.jsonl"])
def test_every_recorded_message_is_written_as_it_was_read(name: str) -> None:
    frames = Demultiplexer()
    for line in lines(name):
        ((connection, message),) = frames.feed(line.framed())
        assert encode(connection, message) == line.framed()
