"""One resource on the kubelet's device-plugin socket: served, registered, and registered again.

A kubelet that starts removes every socket in its directory and makes its own anew, and does not call anybody. So the
directory is looked at twice a second (the identity of two files; four system calls): when our socket is gone or the
kubelet's is another one, we serve and register from the beginning. Capacity is 0 until then; running pods keep what
they have.

The list is sent complete at each change, but never more than once a second, however often health changes.
"""

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from hcs.deviceplugin.messages import API_VERSION, DEVICE_PLUGIN, MESSAGES, REGISTRATION
from hcs.deviceplugin.podresources import PodResources, PodResourcesError, holder_of
from hcs.deviceplugin.resource import MANY_UNITS, Resource, Unit, check_list, grant_message
from hcs.model.refusals import Refusal, RefusedError

log = logging.getLogger(__name__)

DIRECTORY: Final = Path("/var/lib/kubelet/device-plugins")
KUBELET: Final = "kubelet.sock"
LOOK_SECONDS: Final = 0.5
"""Between two looks at the directory: a restarted kubelet is noticed, and told, well within 2 s."""
ALONE_LOOKS: Final = 6
"""After so many looks at which nobody followed the list, we register again."""
LIST_SECONDS: Final = 1.0
"""Least time between two lists."""
REGISTER_SECONDS: Final = 10.0
"""For the call; the kubelet dials back within it."""
_RETRY_SECONDS: Final = (0.1, 0.2, 0.5, 1.0)

Pause = Callable[[float], Awaitable[None]]
Identity = tuple[int, int, int]


class DevicePlugin:
    """Serves one resource. Call :meth:`publish`, then keep :meth:`run` running."""

    def __init__(
        self,
        resource: Resource,
        *,
        directory: Path = DIRECTORY,
        pod_resources: PodResources | None = None,
        preference: bool = False,
        pause: Pause = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is listened on.

        Args:
            resource: who decides.
            directory: the kubelet's directory.
            pod_resources: where to learn whose container starts; without it, ``start`` is never told.
            preference: whether the kubelet should ask :meth:`Resource.prefer`.
            pause: how to wait.
            clock: seconds; only differences count.
        """
        self.resource = resource
        self._directory, self._pod_resources, self._preference = directory, pod_resources, preference
        self._pause, self._clock = pause, clock
        self._socket = directory / f"hcs-{resource.name.replace('/', '-')}.sock"
        self._list = MESSAGES["ListAndWatchResponse"]()
        self._ids: frozenset[str] = frozenset()
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()
        self.registered = asyncio.Event()
        """Set while a kubelet knows us, as far as we know."""
        self.watchers = 0
        """How many follow the list: one, where all is well."""

    async def publish(self, units: Sequence[Unit]) -> None:
        """Replace the list of units; whoever watches hears of it.

        Raises:
            RefusedError: the kubelet could not take it; the old list stays.
        """
        message = check_list(self.resource.name, units)
        if len(units) > MANY_UNITS:
            log.warning("many ids, the kubelet will be slow: resource=%s ids=%d", self.resource.name, len(units))
        async with self._changed:
            if message != self._list:
                self._list, self._ids = message, frozenset(unit.id for unit in units)
                self._changed.notify_all()

    async def run(self) -> None:
        """Serve, register, and begin again whenever the kubelet did, until cancelled."""
        attempt = 0
        while True:
            kubelet = _identity(self._directory / KUBELET)
            if kubelet is None:
                attempt = await self._wait(attempt)
                continue
            try:
                async with self._served() as own:
                    await self._register()
                    attempt = 0
                    self.registered.set()
                    log.info("registered: resource=%s ids=%d", self.resource.name, len(self._list.devices))
                    alone = 0
                    while _identity(self._directory / KUBELET) == kubelet and _identity(self._socket) == own:
                        await self._pause(LOOK_SECONDS)
                        alone = 0 if self.watchers else alone + 1
                        if alone >= ALONE_LOOKS:  # it does not come back by itself to a list it has stopped following
                            break
                    log.info("the kubelet has started again, or does not listen: resource=%s", self.resource.name)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, OSError, RuntimeError) as error:
                log.warning("not registered, trying again: resource=%s error=%s", self.resource.name, _words(error))
                attempt = await self._wait(attempt)
            finally:
                self.registered.clear()

    async def _wait(self, attempt: int) -> int:
        await self._pause(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
        return attempt + 1

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[Identity | None]:
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handlers(),))
        if not server.add_insecure_port(f"unix://{self._socket}"):
            raise OSError(f"cannot listen on {self._socket}")
        await server.start()
        try:
            os.chmod(self._socket, 0o600)
            yield _identity(self._socket)
        finally:
            await server.stop(None)

    async def _register(self) -> None:
        address = f"unix://{self._directory / KUBELET}"
        request = MESSAGES["RegisterRequest"](
            version=API_VERSION,
            endpoint=self._socket.name,
            resource_name=self.resource.name,
            options=self._options(),
        )
        async with grpc.aio.insecure_channel(address, options=[("grpc.default_authority", "localhost")]) as channel:
            await channel.unary_unary(
                f"/{REGISTRATION}/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=MESSAGES["Empty"].FromString,
            )(request, timeout=REGISTER_SECONDS)

    def _options(self) -> Any:
        return MESSAGES["DevicePluginOptions"](
            pre_start_required=self._pod_resources is not None,
            get_preferred_allocation_available=self._preference,
        )

    def _handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        def unary(request: str, answer: Callable[[Any], Awaitable[Any]]) -> Any:
            async def handle(message: Any, context: Any) -> Any:
                try:
                    async with self._turn:
                        return await answer(message)
                except RefusedError as error:
                    log.warning("refused: resource=%s %s", self.resource.name, error)
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

            return grpc.unary_unary_rpc_method_handler(
                handle,
                request_deserializer=MESSAGES[request].FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )

        return grpc.method_handlers_generic_handler(
            DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": unary("Empty", self._answer_options),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._lists,
                    request_deserializer=MESSAGES["Empty"].FromString,
                    response_serializer=lambda message: message.SerializeToString(),
                ),
                "GetPreferredAllocation": unary("PreferredAllocationRequest", self._prefer),
                "Allocate": unary("AllocateRequest", self._allocate),
                "PreStartContainer": unary("PreStartContainerRequest", self._start),
            },
        )

    async def _answer_options(self, _: Any) -> Any:
        return self._options()

    async def _lists(self, _: Any, __: Any) -> AsyncIterator[Any]:
        self.watchers += 1
        try:
            while True:
                sent = self._list
                yield sent
                since = self._clock()
                async with self._changed:
                    await self._changed.wait_for(lambda sent=sent: self._list is not sent)  # type: ignore[misc]
                if (early := since + LIST_SECONDS - self._clock()) > 0:
                    await self._pause(early)
        finally:
            self.watchers -= 1

    async def _prefer(self, request: Any) -> Any:
        answer = MESSAGES["PreferredAllocationResponse"]()
        for asked in request.container_requests:
            available, required = tuple(asked.available_deviceIDs), tuple(asked.must_include_deviceIDs)
            chosen = await self.resource.prefer(available, required, asked.allocation_size)
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def _allocate(self, request: Any) -> Any:
        answer = MESSAGES["AllocateResponse"]()
        for asked in request.container_requests:
            ids = tuple(asked.devices_ids)
            self._check_ids(ids)
            answer.container_responses.append(grant_message(await self.resource.allocate(ids)))
        return answer

    async def _start(self, request: Any) -> Any:
        ids = tuple(request.devices_ids)
        holder = None
        if self._pod_resources is not None:
            try:
                holder = holder_of(await self._pod_resources.list(), self.resource.name, ids)
            except PodResourcesError as error:
                log.warning("whose container starts is unknown: resource=%s error=%s", self.resource.name, error)
        await self.resource.start(ids, holder)
        return MESSAGES["PreStartContainerResponse"]()

    def _check_ids(self, ids: tuple[str, ...]) -> None:
        unknown = set(ids) - self._ids
        if unknown:
            raise RefusedError(
                Refusal("UnknownUnit", f"{self.resource.name} has no {min(unknown)[:80]}; it was given out before")
            )


def _identity(path: Path) -> Identity | None:
    """What tells one socket file from the next at the same path, None where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None


def _words(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
