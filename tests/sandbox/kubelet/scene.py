"""A node without a cluster: real images, real processes, and an API server that only remembers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hcs.model import pods
from hcs.sandbox.images import PLAIN, ImageStore
from hcs.sandbox.kubelet.agent import Agent
from hcs.sandbox.kubelet.cluster import PodGoneError
from hcs.sandbox.kubelet.pods import BoundPod
from hcs.sandbox.kubelet.restarts import BackOff
from hcs.sandbox.kubelet.workers import PodWorker, Surroundings

NODE = "node-1"
UID = "0a1b2c3d"


def pod_with(*containers: Mapping[str, Any], **spec: Any) -> BoundPod:
    """A bound pod; each container gets the plain image unless it names one."""
    filled = [{"name": f"c{number}", "image": PLAIN, **given} for number, given in enumerate(containers)]
    return msgspec.convert(
        {
            "metadata": {"name": "web", "namespace": "default", "uid": UID, "annotations": spec.pop("annotations", {})},
            "status": spec.pop("status", {}),
            "spec": {"nodeName": NODE, "containers": filled, **spec},
        },
        BoundPod,
    )


def shell(script: str, **more: Any) -> dict[str, Any]:
    """A container that runs a shell script."""
    return {"command": ["sh", "-c", script], **more}


def deleted(pod: BoundPod, grace: int) -> BoundPod:
    """The pod as it looks once its deletion was asked for."""
    metadata = msgspec.structs.replace(
        pod.metadata, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace
    )
    return msgspec.structs.replace(pod, metadata=metadata)


class RememberingCluster:
    """An emulated API server for one pod: keeps every status written, and can be made to fail."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.removed = False
        self.gone = False
        self.config_maps: dict[str, dict[str, str]] = {}
        self.failures: list[Exception] = []
        self._changed = asyncio.Condition()

    async def write_status(self, pod: pods.Pod, status: Mapping[str, Any]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if self.gone:
            raise PodGoneError(pod.key)
        async with self._changed:
            self.statuses.append(msgspec.json.decode(msgspec.json.encode(status)))
            self._changed.notify_all()

    async def remove(self, pod: pods.Pod) -> None:
        self.removed = True

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        return self.config_maps.get(name)

    async def token(self, pod: pods.Pod, source: Mapping[str, Any]) -> str:
        return f"a token of {pod.metadata.name} for {source.get('audience', 'the API server')}"

    async def tell(self, pod: pods.Pod, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append((reason, message))

    async def until(self, look: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a written status satisfies ``look``; also an earlier one does."""
        seen = 0
        async with asyncio.timeout(60), self._changed:
            while True:
                for status in self.statuses[seen:]:
                    if look(status):
                        return status
                seen = len(self.statuses)
                await self._changed.wait()


class Ground:
    """Where one pod is run."""

    def __init__(self, directory: Path, images: ImageStore, socket: str | None = None) -> None:
        self.directory, self.images, self.socket = directory, images, socket
        self.cluster = RememberingCluster()
        self.logs = directory / "logs"

    @contextlib.asynccontextmanager
    async def running(self, pod: BoundPod, back_off: BackOff | None = None) -> AsyncIterator[PodWorker]:
        """The worker of a pod, running; at the end it is abandoned."""
        agent = Agent(self.socket)
        around = Surroundings(self.cluster, self.images, back_off or BackOff(0.01, 0.02))
        worker = PodWorker(pod, around, agent, self.directory / "pod", self.logs)
        life = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.abandon()
            await life
            await agent.close()

    def log(self, container: str = "c0") -> str:
        """What a container wrote."""
        return (self.logs / f"{container}.log").read_text()


def over(status: Mapping[str, Any]) -> bool:
    """Whether the pod is in a final phase."""
    return status["phase"] in ("Succeeded", "Failed")


def state(status: Mapping[str, Any], container: str = "c0") -> tuple[str, dict[str, Any]]:
    """A container's state: its word and what belongs to it."""
    found = next(entry for entry in status["containerStatuses"] if entry["name"] == container)
    (word, facts), *_ = found["state"].items()
    return word, facts


@contextlib.asynccontextmanager
async def answering(socket: Path, answer: Callable[[str, str, bytes], tuple[int, Any]]) -> AsyncIterator[None]:
    """A server on a Unix socket that speaks the agent's protocol; ``answer(method, path, body)`` is code and JSON."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                length = next(
                    (int(line[15:]) for line in head.lower().split("\r\n") if line[:15] == "content-length:"), 0
                )
                code, reply = answer(method, path, await reader.readexactly(length))
                body = b"" if reply is None else msgspec.json.encode(reply)
                writer.write(f"HTTP/1.1 {code} x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, str(socket))
    try:
        yield
    finally:
        server.close()
