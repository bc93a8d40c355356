"""A cluster in one process on virtual time: the sandbox's API server, the router and the scheduler driver.

Everything talks through real HTTP requests and real applications; only the sockets and the waiting are left out.
"""

import asyncio
import contextlib
import datetime
import functools
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.types import PatchType

from hcs.kube.resources import ComputeNode, ComputeNodeStatus, Event, Node, NodeStatus, PodStatus, RuntimeProfile
from hcs.kube.resources import Pod as PodResource
from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.devices import Device, Rate
from hcs.model.pods import ObjectMeta, Pod
from hcs.router.app import make_app
from hcs.router.extender import Extender
from hcs.sandbox.apiserver.metadata import Sources
from hcs.sandbox.apiserver.server import ApiServer, Settings
from hcs.sandbox.scheduler.configuration import Configuration, load_configuration
from hcs.sandbox.scheduler.driver import SchedulerDriver
from hcs.sandbox.scheduler.inprocess import Fault, InProcessTransport
from hcs.sandbox.scheduler.virtualtime import run_virtual

GIB = 1 << 30
ROOT = Path(__file__).parents[2]
START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
FACTS = {
    "nvidia": ("A100-SXM4-80GB", 80 * GIB, 100_000),
    "ascend": ("910B3", 64 * GIB, 100_320),
    "cambricon": ("MLU370-X8", 48 * GIB, 30_000),
}


def card(index: int, vendor: str = "nvidia", **changes: Any) -> Device:
    """A healthy card."""
    model, vram, milliacu = FACTS[vendor]
    rate = Rate("gemm", milliacu, "measured")
    whole = Device(
        id=f"{vendor}-{index}", index=index, vendor=vendor, model=model, vram=vram, rates=(rate,), verdict="Healthy"
    )
    return msgspec.structs.replace(whole, **changes)


def pod_manifest(
    name: str,
    *,
    resources: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = names.SCHEDULER,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A pod that asks for 16Gi of a card unless told otherwise."""
    limits = {names.VRAM: "16Gi"} if resources is None else dict(resources)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {}), **metadata},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "example.invalid/train:1", "resources": {"limits": limits}}],
            **(spec or {}),
        },
    }


class Scene:
    """The running cluster and what a test does with it."""

    def __init__(self, data: Path, *, history: int = 20_000) -> None:
        self.loop = asyncio.get_running_loop()
        numbers = iter(range(1, 1 << 30))
        self.server = ApiServer(
            Settings(
                data=data,
                history=history,
                sources=Sources(now=self.today, uid=lambda: str(uuid.UUID(int=next(numbers)))),
            )
        )
        self.api = InProcessTransport(self.server.application)
        self.client = self.connect(self.api)
        self.calls: list[tuple[str, dict[str, Any], Any]] = []
        """Every call of the scheduler to the extender: verb, request, answer."""
        self.extender_fault: Fault | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def connect(self, transport: httpx2.AsyncBaseTransport) -> AsyncClient:
        """A client of the API server over some transport."""
        config = KubeConfig.from_one(
            cluster=Cluster(server="http://kubernetes", insecure=True),  # else each client reads all authorities
            user=User(token="admin-token"),
            namespace="default",
        ).get()
        return AsyncClient(config=config, transport=transport, trust_env=False, field_manager="test")

    def today(self) -> datetime.datetime:
        """The wall clock, which goes with virtual time."""
        return START + datetime.timedelta(seconds=self.loop.time())

    async def define(self) -> None:
        """Create the custom resource definitions."""
        for plural in ("computenodes", "exchangerates", "runtimeprofiles"):
            await self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(plural))

    async def post(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create anything."""
        async with httpx2.AsyncClient(transport=self.api, base_url="https://kubernetes") as http:
            answer = await http.post(
                path, content=msgspec.json.encode(manifest), headers={"Authorization": "Bearer admin-token"}
            )
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def merge(self, path: str, body: Mapping[str, Any]) -> None:
        """Change anything."""
        async with httpx2.AsyncClient(transport=self.api, base_url="https://kubernetes") as http:
            headers = {"Authorization": "Bearer admin-token", "Content-Type": "application/merge-patch+json"}
            answer = await http.patch(path, content=msgspec.json.encode(body), headers=headers)
        assert answer.status_code == 200, answer.text

    async def pods(self) -> dict[str, Pod]:
        """All pods by name."""
        return {pod.metadata.name: pod async for pod in self.client.list(PodResource, namespace="default")}

    async def add_node(
        self, name: str, *cards: Device, cpu: str = "64", labels: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Create a node and what its agent says of it."""
        allocatable = {"cpu": cpu, "memory": "512Gi", "pods": "110"}
        await self.post(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": dict(labels or {})},
                "spec": spec,
                "status": {"allocatable": allocatable, "capacity": allocatable},
            },
        )
        if cards:
            await self.add_cards(name, *cards)

    async def add_cards(self, name: str, *cards: Device) -> None:
        """Create a node's ComputeNode."""
        body = ComputeNode(
            apiVersion=f"{names.GROUP}/{names.VERSION}", kind="ComputeNode", metadata=ObjectMeta(name=name)
        )
        await self.client.create(body)
        await self.set_cards(name, *cards)

    async def set_cards(self, name: str, *cards: Device) -> None:
        """What the agent of a node finds now."""
        await self.client.patch(
            ComputeNodeStatus, name, {"status": {"devices": msgspec.to_builtins(cards)}}, patch_type=PatchType.MERGE
        )

    async def quarantine(self, name: str, *entries: Mapping[str, Any]) -> None:
        """Put devices of a node into quarantine; with none, lift it."""
        await self.client.patch(ComputeNode, name, {"spec": {"quarantine": list(entries)}}, patch_type=PatchType.MERGE)

    async def add_profile(self, name: str, **spec: Any) -> None:
        """Create a RuntimeProfile."""
        await self.client.create(
            RuntimeProfile(
                apiVersion=f"{names.GROUP}/{names.VERSION}",
                kind="RuntimeProfile",
                metadata=ObjectMeta(name=name),
                spec=spec,
            )
        )

    async def add_pod(self, name: str, **changes: Any) -> Pod:
        """Create a pod; see :func:`pod_manifest`."""
        made = await self.post("/api/v1/namespaces/default/pods", pod_manifest(name, **changes))
        return msgspec.convert(made, Pod)

    async def get_pod(self, name: str) -> Pod:
        """A pod as it is now."""
        pod: Pod = await self.client.get(PodResource, name, namespace="default")
        return pod

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        await self.client.delete(PodResource, name, namespace="default", grace_period=0)

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of a pod."""
        body = {"metadata": {"annotations": dict(annotations)}}
        await self.client.patch(PodResource, name, body, namespace="default", patch_type=PatchType.MERGE)

    async def set_status(self, name: str, **status: Any) -> None:
        """Change the status of a pod."""
        await self.client.patch(PodStatus, name, {"status": status}, namespace="default", patch_type=PatchType.MERGE)

    async def pod_patch(self, name: str, body: Mapping[str, Any]) -> None:
        """Change a pod."""
        await self.client.patch(PodResource, name, dict(body), namespace="default", patch_type=PatchType.MERGE)

    async def strategic(self, name: str, body: Mapping[str, Any]) -> None:
        """Change a pod by a strategic merge patch."""
        await self.client.patch(PodResource, name, dict(body), namespace="default", patch_type=PatchType.STRATEGIC)

    async def node_patch(self, name: str, body: Mapping[str, Any], *, subresource: str = "") -> None:
        """Change a node, or its status."""
        kind = NodeStatus if subresource == "status" else Node
        await self.client.patch(kind, name, dict(body), patch_type=PatchType.MERGE)

    async def events(self, name: str) -> list[tuple[str, str]]:
        """(reason, message) of the events about a pod that HCS told, in the order of names."""
        return [
            (event.reason, event.message)
            async for event in self.client.list(Event, namespace="default")
            if event.involvedObject.name == name and event.source == {"component": "router"}
        ]

    async def allocations(self) -> dict[str, Allocation]:
        """What all pods hold."""
        found = {}
        async for pod in self.client.list(PodResource, namespace="default"):
            held = allocation_of(pod)
            if held is not None:
                found[pod.metadata.name] = held
        return found

    async def until(self, condition: Callable[[], Any], *, seconds: float = 60.0) -> None:
        """Let time pass until a condition holds.

        Raises:
            TimeoutError: it does not within so many virtual seconds.
        """
        async with asyncio.timeout(seconds):
            while True:
                found = condition()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.05)

    async def bound(self, name: str, *, seconds: float = 60.0) -> Pod:
        """Wait for a pod to be bound."""

        async def is_bound() -> bool:
            with contextlib.suppress(ApiError):
                return bool((await self.get_pod(name)).spec.nodeName)
            return False

        await self.until(is_bound, seconds=seconds)
        return await self.get_pod(name)

    async def waiting(self, name: str) -> str:
        """Wait for a pod to be refused; the message of its condition."""
        found: list[str] = []

        async def is_refused() -> bool:
            pod = await self.get_pod(name)
            found[:] = [c.message or "" for c in pod.status.conditions or () if c.type == "PodScheduled"]
            return bool(found)

        await self.until(is_refused)
        return found[0]

    def count(self, verb: str, name: str) -> int:
        """How often the scheduler called a verb for a pod."""
        found = [request for called, request, _ in self.calls if called == verb]
        return sum(
            (request["Pod"]["metadata"]["name"] if verb == "filter" else request["PodName"]) == name
            for request in found
        )

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Run something beside the test until the scene ends."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    def faulty(self, fault: Fault) -> InProcessTransport:
        """Another way to the API server, on which things go wrong."""
        return InProcessTransport(self.server.application, fault=fault)

    def make_extender(self, transport: httpx2.AsyncBaseTransport | None = None, **settings: Any) -> Extender:
        """A router's heart that is not running yet."""
        client = self.connect(transport or self.api)
        return Extender(client, now=self.loop.time, today=self.today, **settings)

    async def start_extender(self, transport: httpx2.AsyncBaseTransport | None = None, **settings: Any) -> Extender:
        """A running router, synced."""
        extender = self.make_extender(transport, **settings)
        self.spawn(extender.run())
        await extender.view.wait_synced()
        return extender

    def http(self, extender: Extender) -> httpx2.AsyncClient:
        """How the scheduler reaches a router; every call is noted in :attr:`calls`."""
        return httpx2.AsyncClient(transport=_Noting(self, make_app(extender)), base_url="http://router", timeout=30)

    async def filter(self, http: httpx2.AsyncClient, name: str, *nodes: str) -> dict[str, Any]:
        """Call ``filter`` for a pod as kube-scheduler does."""
        async with httpx2.AsyncClient(transport=self.api, base_url="https://kubernetes") as api:
            answer = await api.get(
                f"/api/v1/namespaces/default/pods/{name}", headers={"Authorization": "Bearer admin-token"}
            )
        return await ask(http, "filter", {"Pod": answer.json(), "Nodes": None, "NodeNames": list(nodes)})

    async def bind(self, http: httpx2.AsyncClient, pod: Pod, node: str) -> str:
        """Call ``bind`` as kube-scheduler does; the error, empty when bound."""
        answer = await ask(
            http,
            "bind",
            {"PodName": pod.metadata.name, "PodNamespace": "default", "PodUID": pod.metadata.uid, "Node": node},
        )
        return str(answer.get("Error", ""))

    async def start_driver(
        self, http: httpx2.AsyncClient, *, configuration: Configuration | None = None, seed: int = 1
    ) -> SchedulerDriver:
        """A running scheduler, synced."""
        driver = self.make_driver(http, configuration=configuration, seed=seed)
        self.spawn(driver.run())
        await driver.ready.wait()
        return driver

    def make_driver(
        self, http: httpx2.AsyncClient, *, configuration: Configuration | None = None, seed: int = 1
    ) -> SchedulerDriver:
        """A scheduler that is not running yet."""
        return SchedulerDriver(
            self.client,
            configuration or shipped_configuration(),
            http=http,
            rng=random.Random(seed),
            now=self.loop.time,
            today=self.today,
        )

    async def close(self) -> None:
        """Stop everything."""
        for task in self._tasks:
            task.cancel()
        failures = [
            failure
            for failure in await asyncio.gather(*self._tasks, return_exceptions=True)
            if isinstance(failure, Exception)
        ]
        await self.server.stop()
        if failures:
            raise ExceptionGroup("something that ran beside the test failed", failures)


class _Noting(httpx2.AsyncBaseTransport):
    def __init__(self, scene: Scene, application: Any) -> None:
        self._scene, self._inner = scene, InProcessTransport(application, fault=self._fault)

    def _fault(self, request: httpx2.Request) -> str | None:
        return self._scene.extender_fault(request) if self._scene.extender_fault else None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        verb = request.url.path.rpartition("/")[2]
        body = await request.aread()
        noted = [verb, msgspec.json.decode(body) if body else None, None]
        self._scene.calls.append(noted)  # type: ignore[arg-type]
        response = await self._inner.handle_async_request(request)
        content = await response.aread()
        noted[2] = msgspec.json.decode(content) if response.status_code == 200 else response.status_code
        return response


@functools.cache
def definition(plural: str) -> dict[str, Any]:
    """A custom resource definition as it is shipped."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "config" / "crds" / f"{plural}.yaml").read_text())
    return found


def definition_of(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """A definition of somebody else's namespaced kind, with any fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@functools.cache
def shipped_configuration() -> Configuration:
    """The configuration a cluster would use, with another address of the extender."""
    return load_configuration(ROOT / "config" / "router.yaml", extender_url="http://router")


async def ask(http: httpx2.AsyncClient, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """One call to an extender."""
    response = await http.post(f"/{verb}", content=msgspec.json.encode(body))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def virtual(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, told on virtual time."""

    @functools.wraps(story)
    def told(*arguments: Any, **more: Any) -> None:
        run_virtual(story(*arguments, **more))

    return told


@contextlib.asynccontextmanager
async def scene(data: Path, **settings: Any) -> AsyncIterator[Scene]:
    """A cluster with nothing in it but the definitions."""
    made = Scene(data, **settings)
    try:
        await made.define()
        yield made
    finally:
        await made.close()
