"""The kubelet's side of the device-plugin and podresources protocols, true to the wire, with switches for its faults.

It speaks raw bytes through :mod:`tests.protobuf`. What it does at each step follows Kubernetes' device manager: it
dials back while it is asked to register, counts all ids as capacity and the healthy ones as allocatable, asks for a
preference but takes what it likes, gives ids back silently, and at a restart removes every socket of its directory.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from tests.protobuf import Fields, every, one, read_map, text, texts, write
from tests.waiting import until

Raw = bytes


class Answer:
    """What a plugin gave with some ids."""

    def __init__(self, content: bytes) -> None:
        self.env = read_map(content, 1)
        self.mounts = [(text(m, 2), text(m, 1), bool(one(m, 3))) for m in every(content, 2)]
        self.devices = [(text(d, 2), text(d, 1), text(d, 3)) for d in every(content, 3)]
        self.annotations = read_map(content, 4)
        self.cdi = [text(d, 1) for d in every(content, 5)]


class Endpoint:
    """A registered plugin, as the kubelet sees it."""

    def __init__(self, address: str, options: bytes) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
        self.pre_start, self.prefers = bool(one(options, 1)), bool(one(options, 2))
        self.health: dict[str, bool] = {}
        self.numa: dict[str, list[int]] = {}
        self.lists = 0
        self.ended = ""
        self.watching: asyncio.Task[None] | None = None

    def call(self, method: str) -> Any:
        """A unary method, bytes in and out."""
        return self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")

    async def watch(self) -> None:
        """Follow the list until the stream ends; then nothing is allocatable any more."""
        try:
            async for content in self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b""):
                devices = every(content, 1)
                self.health = {text(device, 1): text(device, 2) == "Healthy" for device in devices}
                self.numa = {
                    text(device, 1): [one(node, 1) or 0 for node in every(one(device, 3) or b"", 1)]
                    for device in devices
                }
                self.lists += 1
            self.ended = "the plugin ended the stream"
        except grpc.aio.AioRpcError as error:
            self.ended = f"{error.code().name}: {error.details()}"
        self.health = dict.fromkeys(self.health, False)


class FakeKubelet:
    """One kubelet on a directory. It starts with :meth:`start`."""

    def __init__(self, folder: Path) -> None:
        self.directory, self.pod_resources = folder / "device-plugins", folder / "pod-resources.sock"
        self.directory.mkdir(exist_ok=True)
        self.endpoints: dict[str, Endpoint] = {}
        self.pods: dict[tuple[str, str, str], dict[str, list[str]]] = {}
        self.claims: dict[tuple[str, str, str], list[tuple[str, str, str, list[str]]]] = {}
        self.registrations: list[tuple[str, str, str]] = []
        self.refuse_registrations = 0
        self._server: Any = None

    async def start(self) -> None:
        """Remove every socket, as a kubelet does, and listen."""
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (
                _service("v1beta1.Registration", {"Register": self._register}),
                _service("v1.PodResourcesLister", {"List": self._list}),
            )
        )
        assert self._server.add_insecure_port(f"unix://{self.directory / 'kubelet.sock'}")
        assert self._server.add_insecure_port(f"unix://{self.pod_resources}")
        await self._server.start()

    async def stop(self) -> None:
        """End, as a kill would: connections break; what was allocated survives in the checkpoint."""
        for endpoint in self.endpoints.values():
            if endpoint.watching is not None:
                endpoint.watching.cancel()
                await asyncio.gather(endpoint.watching, return_exceptions=True)
            await endpoint.channel.close(None)
        self.endpoints.clear()
        await self._server.stop(None)

    def capacity(self, resource: str) -> tuple[int, int]:
        """Capacity and allocatable."""
        endpoint = self.endpoints.get(resource)
        health = endpoint.health if endpoint is not None else {}
        return len(health), sum(health.values())

    async def has(self, resource: str, capacity: int, allocatable: int) -> None:
        """Wait until the node has so many units."""
        await until(lambda: self.capacity(resource) == (capacity, allocatable))

    def free(self, resource: str) -> list[str]:
        """Healthy ids that no pod holds."""
        taken = {unit for held in self.pods.values() for unit in held.get(resource, [])}
        return [unit for unit, healthy in self.endpoints[resource].health.items() if healthy and unit not in taken]

    async def admit(self, pod: str, resource: str, size: int, container: str = "main") -> Answer:
        """Give a container its units: choose, ask for a preference, allocate."""
        endpoint, available = self.endpoints[resource], self.free(resource)
        assert len(available) >= size, "Insufficient units"
        chosen = available[:size]
        if endpoint.prefers:
            request: Fields = [(1, [*((1, unit) for unit in available), (3, size)])]
            preferred = await endpoint.call("GetPreferredAllocation")(write(request))
            advice = texts(every(preferred, 1)[0], 1)
            chosen = [*(unit for unit in advice if unit in available), *chosen]
            chosen = list(dict.fromkeys(chosen))[:size]
        answer = await endpoint.call("Allocate")(write([(1, [(1, unit) for unit in chosen])]))
        self.pods.setdefault(("default", pod, container), {})[resource] = chosen
        (content,) = every(answer, 1)
        return Answer(content)

    async def start_container(self, pod: str, resource: str, container: str = "main") -> None:
        """Say that a container starts, for the first time or again."""
        endpoint = self.endpoints[resource]
        if endpoint.pre_start:
            held = self.pods["default", pod, container][resource]
            await endpoint.call("PreStartContainer")(write([(1, unit) for unit in held]))

    def remove(self, pod: str) -> None:
        """A pod is gone. Nobody is told."""
        for key in [key for key in self.pods if key[1] == pod]:
            del self.pods[key]

    async def _register(self, request: Raw, context: Any) -> Raw:
        version, endpoint, resource = text(request, 1), text(request, 2), text(request, 3)
        if self.refuse_registrations > 0:
            self.refuse_registrations -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        if version != "v1beta1":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"requested API version {version!r} is not supported")
        if "/" in endpoint or "/" not in resource:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unusable: {endpoint} {resource}")
        found = Endpoint(f"unix://{self.directory / endpoint}", one(request, 4) or b"")
        async with asyncio.timeout(10):  # it dials back inside the call, and waits
            options = await found.call("GetDevicePluginOptions")(b"", wait_for_ready=True)
        assert (bool(one(options, 1)), bool(one(options, 2))) == (found.pre_start, found.prefers)
        if (before := self.endpoints.pop(resource, None)) is not None and before.watching is not None:
            before.watching.cancel()
        self.endpoints[resource] = found
        found.watching = asyncio.create_task(found.watch())
        self.registrations.append((version, endpoint, resource))
        return b""

    async def _list(self, _: Raw, __: Any) -> Raw:
        pods: Fields = []
        for namespace, pod, container in sorted(self.pods.keys() | self.claims.keys()):
            devices: Fields = []
            for resource, units in self.pods.get((namespace, pod, container), {}).items():
                # One entry for each NUMA node, as the kubelet does it: here every id has its own.
                devices += [(2, [(1, resource), (2, unit), (3, [(1, [(1, 1)])])]) for unit in units]
            for driver, pool, device, cdi in self.claims.get((namespace, pod, container), []):
                part = [*((1, [(1, name)]) for name in cdi), (2, driver), (3, pool), (4, device)]
                devices.append((6 - 1, [(2, "claim"), (3, namespace), (4, part)]))
            pods.append((1, [(1, pod), (2, namespace), (3, [(1, container), *devices, (3, 7)])]))
        return write(pods)


def _service(name: str, methods: dict[str, Callable[[Raw, Any], Any]]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        name, {method: grpc.unary_unary_rpc_method_handler(answer) for method, answer in methods.items()}
    )


@contextlib.asynccontextmanager
async def fake_kubelet(folder: Path, tasks: Sequence[Callable[[], Any]] = ()) -> AsyncIterator[FakeKubelet]:
    """A running kubelet, with plugins running beside it."""
    kubelet = FakeKubelet(folder)
    await kubelet.start()
    running = [asyncio.ensure_future(task()) for task in tasks]
    try:
        yield kubelet
    finally:
        for task in running:
            task.cancel()
        failures = [e for e in await asyncio.gather(*running, return_exceptions=True) if isinstance(e, Exception)]
        await kubelet.stop()
        if failures:
            raise ExceptionGroup("a plugin failed", failures)
