"""One node's agent on virtual time: emulated cards, the sandbox's API server in-process, and a container runtime.

Everything is real but the sockets and the waiting; vendors are asked in place, as threads know nothing of virtual time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec
from lightkube.types import PatchType
from tests.router.scene import Scene
from tests.router.scene import scene as cluster

from hcs.agent.node import Agent
from hcs.inject.adjustments import Adjustment
from hcs.inject.builtin import builtin_profiles
from hcs.inject.protocol import CONTAINERS, AdjustmentAnswer, ContainerCreation, StartingContainer, container_path
from hcs.kube.resources import ComputeNode
from hcs.kube.writes import bind
from hcs.model import names
from hcs.model.allocations import Allocation, Grant, encode_allocation
from hcs.model.pods import EnvVar, Pod
from hcs.model.refusals import Refusal
from hcs.sandbox.scheduler.inprocess import InProcessTransport
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import emulated
from hcs.vendors.base import Vendor
from hcs.vendors.emulated_vendor import EmulatedVendor

GIB = 1 << 30
NODE = "node-1"
MODEL = "A100-SXM4-80GB"
T = TypeVar("T")


class InPlace:
    """Asks a vendor without a thread."""

    def __init__(self, vendor: Vendor) -> None:
        self.vendor = vendor

    async def ask(self, question: Callable[[], T]) -> T:
        return question()


async def in_place(work: Callable[[], T]) -> T:
    """Does what waits for a disk without a thread."""
    return work()


def uuid(index: int) -> str:
    """The id of the emulated card with this index."""
    return f"GPU-00000000-0000-0000-0000-{index:012}"


class NodeScene:
    """The cluster, the node's cards and its agent."""

    def __init__(self, cluster: Scene, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.cards = folder / "cards"
        self.cards.mkdir()
        self._tasks: list[asyncio.Task[None]] = []
        self.agent: Agent = None  # type: ignore[assignment]  # before the first start
        self._runtime: httpx2.AsyncClient | None = None
        self.interceptor = folder / "libhcs_interceptor.so"

    def add_card(self, index: int) -> Path:
        """Put an emulated A100 into the node."""
        path = self.cards / f"nvidia{index}.card"
        emulated.create_card(
            path, vendor="nvidia", model=MODEL, uuid=uuid(index), index=index, total_bytes=80 * GIB, bus_id=""
        )
        return path

    async def start_agent(self, **settings: Any) -> Agent:
        """Start an agent and wait until it would serve."""
        vendor = EmulatedVendor(self.cards, catalogue=load_catalogue(), profiles=builtin_profiles())
        if not self.interceptor.exists():
            self.interceptor.touch()
        self.agent = Agent(
            NODE,
            client=self.cluster.client,
            state=self.folder / "state",
            now=self.cluster.today,
            clock=self.cluster.loop.time,
            **{
                "vendors": [vendor],
                "interceptor": str(self.interceptor),
                "asker": InPlace,
                "work": in_place,
                **settings,
            },
        )
        self._tasks = [asyncio.create_task(_run(task)) for task in self.agent.tasks()]
        self._runtime = httpx2.AsyncClient(transport=InProcessTransport(self.agent.app), base_url="http://agent")
        await self.agent.prepared()
        return self.agent

    async def stop_agent(self) -> None:
        """End the agent, as a kill would."""
        pending = set(self._tasks)
        while pending:  # one cancellation is lost where it meets the answer that was waited for (asyncio.wait_for)
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=1)
        failures = [e for e in await asyncio.gather(*self._tasks, return_exceptions=True) if isinstance(e, Exception)]
        self._tasks = []
        if failures:
            raise ExceptionGroup("something in the agent failed", failures)

    async def bound_pod(self, name: str, *cards: int, amount: int = 16 * GIB, **changes: Any) -> Pod:
        """A pod bound to the node with shares of these cards; ``changes`` go to the allocation, or to the pod."""
        metadata = {key: changes.pop(key) for key in ("spec", "resources", "annotations") if key in changes}
        pod = await self.cluster.add_pod(name, **metadata)
        facts: dict[str, Any] = {
            "version": "v1",
            "pod": pod.metadata.uid,
            "node": NODE,
            "vendor": "nvidia",
            "model": MODEL,
            "containers": {"main": tuple(Grant(uuid(index), amount, 1000) for index in cards)},
        }
        allocation = Allocation(**{**facts, **changes})
        await bind(
            self.cluster.client,
            namespace="default",
            name=name,
            uid=pod.metadata.uid,
            node=NODE,
            annotations={names.ALLOCATION: encode_allocation(allocation)},
        )
        return await self.cluster.get_pod(name)

    async def ask(self, pod: Pod, container: str = "main", env: dict[str, str] | None = None) -> httpx2.Response:
        """What the runtime hears when it is about to create a container."""
        question = ContainerCreation(
            pod=pod,
            container=StartingContainer(
                name=container, env=tuple(EnvVar(key, value) for key, value in (env or {}).items()), args=("train",)
            ),
        )
        assert self._runtime is not None
        return await self._runtime.post(CONTAINERS, content=msgspec.json.encode(question))

    async def adjusted(self, pod: Pod, container: str = "main", env: dict[str, str] | None = None) -> Adjustment:
        """The adjustment of a container that may start."""
        answer = await self.ask(pod, container, env)
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=AdjustmentAnswer).adjustment

    async def refused(self, pod: Pod, container: str = "main") -> Refusal:
        """The refusal of a container that may not."""
        answer = await self.ask(pod, container)
        assert answer.status_code == 409, answer.text
        return msgspec.json.decode(answer.content, type=Refusal)

    async def removed(self, pod: Pod, container: str = "main") -> None:
        """The runtime has removed a container."""
        assert self._runtime is not None
        answer = await self._runtime.delete(container_path(pod.metadata.uid, container))
        assert answer.status_code == 204

    async def fetch(self, path: str) -> httpx2.Response:
        """Another page of the agent."""
        assert self._runtime is not None
        return await self._runtime.get(path)

    async def published(self) -> ComputeNode:
        """What the cluster knows about the node."""
        node: ComputeNode = await self.cluster.client.get(ComputeNode, NODE)
        return node

    async def quarantine(self, *devices: str) -> None:
        """Put cards into quarantine, and wait until the agent has heard."""
        entries = [{"device": device, "reason": "Maintenance"} for device in devices]
        await self.cluster.client.patch(
            ComputeNode, NODE, {"spec": {"quarantine": entries}}, patch_type=PatchType.MERGE
        )
        await self.settle()

    async def settle(self) -> None:
        """Let everything that is under way arrive."""
        await asyncio.sleep(0.1)

    def container_files(self, pod: Pod, container: str = "main") -> Path:
        """Where the files behind a container's mounts lie."""
        return self.folder / "state" / "containers" / pod.metadata.uid / container


@contextlib.asynccontextmanager
async def scene(folder: Path, *, cards: int = 2) -> AsyncIterator[NodeScene]:
    """A cluster with one node, whose agent is not started yet."""
    async with cluster(folder / "api") as api:
        await api.add_node(NODE)
        made = NodeScene(api, folder)
        for index in range(cards):
            made.add_card(index)
        try:
            yield made
        finally:
            await made.stop_agent()


async def _run(task: Callable[[], Any]) -> None:
    await task()
