"""One plugin's connection to the container runtime: dial, register, answer, and dial again.

Everything the runtime asks is answered by a :class:`Handlers`, which is the whole meaning; here are only its words. A
question is answered on its own, so a slow one holds up no other, and never later than :data:`DEADLINE_SECONDS`: the
runtime gives a plugin 2 s, then drops it and creates the container *unadjusted*. An answer in time that says no is the
only safe one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from hcs.model.refusals import Refusal, RefusedError
from hcs.nri.frames import PLUGIN, REQUEST, RESPONSE, RUNTIME, Demultiplexer, FrameError, Message, encode
from hcs.nri.messages import CREATE, ENVELOPE, EVENTS, MESSAGES, PLUGIN_SERVICE, RUNTIME_SERVICE, VALIDATE
from hcs.nri.runtimes import Runtime, runtime_of, subscription

log = logging.getLogger(__name__)

SOCKET: Final = Path("/var/run/nri/nri.sock")
DEADLINE_SECONDS: Final = 1.0
"""Half of what the runtime grants; the other half is for a busy machine."""
REGISTER_SECONDS: Final = 5.0
"""What the runtime grants for registration (NRI's default)."""
FIRST_RETRY_SECONDS: Final = 0.05
LAST_RETRY_SECONDS: Final = 2.0

OK: Final = 0
DEADLINE_EXCEEDED: Final = 4
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13

_READ_BYTES: Final = 65536


class Handlers(Protocol):
    """What a plugin means. Pods, containers and adjustments are messages of :mod:`hcs.nri.messages`."""

    def connected(self, runtime: Runtime) -> None:
        """The runtime has introduced itself."""

    def disconnected(self) -> None:
        """The connection is gone; nobody asks us any more."""

    def synchronize(self, pods: Sequence[Any], containers: Sequence[Any]) -> None:
        """All pods, and the containers created or running, as at every new connection. Must not wait for anything."""

    async def create(self, pod: Any, container: Any) -> Any | None:
        """The adjustment of a container that is about to be created, None for none.

        Raises:
            RefusedError: it must not be created.
        """

    async def validate(self, request: Any) -> Refusal | None:
        """A last look at what all plugins together made of a container."""

    async def event(self, event: int, pod: Any, container: Any) -> None:
        """Something happened that was subscribed to.

        Raises:
            RefusedError: a container that is about to start must not.
        """

    def must_refuse(self, pod: Any) -> bool:
        """Whether a container of this pod may start only with our answer: then an answer that fails is a no."""


class Plugin:
    """A plugin that keeps itself connected. Run :meth:`run`."""

    def __init__(
        self,
        name: str,
        index: str,
        handlers: Handlers,
        *,
        events: Sequence[int],
        socket: Path = SOCKET,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is dialled.

        Args:
            name: by which admission requires it.
            index: two digits; plugins are asked in ascending order, and a later one wins nothing.
            handlers: what it means.
            events: what it wants to hear of.
            socket: the runtime's.
            pause: how to wait between two attempts.
        """
        self._name, self._index, self._handlers, self._events = name, index, handlers, tuple(events)
        self._socket, self._pause = socket, pause

    async def run(self) -> None:
        """Stay connected until cancelled."""
        attempt, silent = FIRST_RETRY_SECONDS, False
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
            except OSError as error:
                if not silent:
                    log.warning(
                        "the container runtime's NRI socket does not answer: socket=%s error=%s", self._socket, error
                    )
                silent = True
            else:
                connection = Connection(self._name, self._index, self._handlers, self._events, writer)
                try:
                    await connection.serve(reader)
                except (OSError, FrameError, RegistrationError) as error:
                    log.warning("connection to the container runtime lost: error=%s", error or type(error).__name__)
                if connection.runtime is not None:
                    attempt, silent = FIRST_RETRY_SECONDS, False
            await self._pause(attempt)
            attempt = min(attempt * 2, LAST_RETRY_SECONDS)


class RegistrationError(RuntimeError):
    """The runtime does not take the plugin; the message is its own."""


class Connection:
    """One connection, from registration to its end."""

    def __init__(
        self,
        name: str,
        index: str,
        handlers: Handlers,
        events: Sequence[int],
        writer: asyncio.StreamWriter,
    ) -> None:
        self._name, self._index, self._handlers, self._events, self._writer = name, index, handlers, events, writer
        self.runtime: Runtime | None = None
        self._pods: list[Any] = []
        self._containers: list[Any] = []
        self._registration: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Register and answer until the runtime hangs up.

        Raises:
            RegistrationError: it was refused, or not answered in time.
            FrameError: the runtime says something that cannot be read.
            OSError: the connection broke.
        """
        register = MESSAGES["RegisterPlugin"](plugin_name=self._name, plugin_idx=self._index)
        self._send(
            RUNTIME,
            Message(
                1,
                REQUEST,
                ENVELOPE["Request"](
                    service=RUNTIME_SERVICE,
                    method="RegisterPlugin",
                    payload=register.SerializeToString(),
                    timeout_nano=round(REGISTER_SECONDS * 1e9),
                ).SerializeToString(),
            ),
        )
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._registered())
                frames = Demultiplexer()
                while received := await reader.read(_READ_BYTES):
                    for connection, message in frames.feed(received):
                        if connection == PLUGIN and message.kind == REQUEST:
                            group.create_task(self._answer(message))
                        elif connection == RUNTIME and message.kind == RESPONSE and message.stream == 1:
                            self._note_registration(message)
                watch.cancel()
        except* (OSError, FrameError, RegistrationError) as group_error:
            raise group_error.exceptions[0] from group_error
        finally:
            if self.runtime is not None:
                self._handlers.disconnected()
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _registered(self) -> None:
        try:
            async with asyncio.timeout(REGISTER_SECONDS):
                await self._registration
        except TimeoutError as error:
            raise RegistrationError(f"the runtime has not answered within {REGISTER_SECONDS:g} s") from error

    def _note_registration(self, message: Message) -> None:
        answer = ENVELOPE["Response"].FromString(message.data)
        if self._registration.done():
            return
        if answer.status.code != OK:
            self._registration.set_exception(RegistrationError(f"registration refused: {answer.status.message}"))
        else:
            self._registration.set_result(None)

    async def _answer(self, message: Message) -> None:
        try:
            request = ENVELOPE["Request"].FromString(message.data)
        except DecodeError as error:
            raise FrameError("expected a question, found bytes that are none") from error
        response = ENVELOPE["Response"]()
        try:
            content = await self._call(request.service, request.method, request.payload)
            if content is not None:
                response.payload = content.SerializeToString()
        except RefusedError as error:
            response.status.code, response.status.message = FAILED_PRECONDITION, str(error)
        except DecodeError as error:
            raise FrameError(f"expected the message of {request.method}, found bytes that are none") from error
        except _UnimplementedError:
            response.status.code = UNIMPLEMENTED
            response.status.message = f"no method {request.method}"
        except FrameError:
            raise
        except Exception as error:  # the runtime drops us, and we come back; the agent's other work goes on
            log.exception("question of the container runtime not answered: method=%s", request.method)
            response.status.code, response.status.message = INTERNAL, f"the node agent failed: {error!r}"[:500]
        self._send(PLUGIN, Message(message.stream, RESPONSE, response.SerializeToString()))

    async def _call(self, service: str, method: str, payload: bytes) -> Any | None:
        if service != PLUGIN_SERVICE:
            raise _UnimplementedError
        if method == "Configure":
            return self._configure(MESSAGES["Configure"].FromString(payload))
        if method == "Synchronize":
            return self._synchronize(MESSAGES["Synchronize"].FromString(payload))
        if method == "Shutdown":
            return None
        if method == "StateChange":
            change = MESSAGES["StateChange"].FromString(payload)
            return await self._in_time(change.pod, self._handlers.event(change.event, change.pod, change.container))
        if method == EVENTS[CREATE]:
            asked = MESSAGES["Event"].FromString(payload)
            adjustment = await self._in_time(asked.pod, self._handlers.create(asked.pod, asked.container))
            return MESSAGES["Created"](adjust=adjustment) if adjustment is not None else None
        if method == EVENTS[VALIDATE]:
            final = MESSAGES["Validate"].FromString(payload)
            refusal = await self._in_time(final.pod, self._handlers.validate(final))
            return MESSAGES["Validated"](reject=True, reason=str(refusal)) if refusal is not None else None
        event = next((number for number, name in EVENTS.items() if name == method), None)
        if event is None:
            raise _UnimplementedError
        told = MESSAGES["Event"].FromString(payload)
        return await self._in_time(told.pod, self._handlers.event(event, told.pod, told.container))

    async def _in_time(self, pod: Any, answer: Awaitable[Any]) -> Any | None:
        """Wait for an answer, not too long. What goes wrong is a no where a yes could do harm, and no matter else."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await answer
        except RefusedError:
            raise
        except TimeoutError:
            problem = Refusal(
                "AgentSlow", f"the node agent has no answer within {DEADLINE_SECONDS:g} s; it is asked again"
            )
        except Exception as error:
            log.exception("question of the container runtime not answered: pod=%s/%s", pod.namespace, pod.name)
            problem = Refusal("AgentFailed", f"the node agent cannot answer: {error!r}"[:500])
        if self._handlers.must_refuse(pod):
            raise RefusedError(problem)
        return None

    def _configure(self, request: Any) -> Any:
        self.runtime = runtime_of(request.runtime_name, request.runtime_version)
        log.info("connected to the container runtime: runtime=%s nri=%s", self.runtime, request.NRI_version or "-")
        self._handlers.connected(self.runtime)
        return MESSAGES["Configured"](events=subscription(self.runtime, self._events))

    def _synchronize(self, request: Any) -> Any | None:
        self._pods.extend(request.pods)
        self._containers.extend(request.containers)
        if request.more:
            return MESSAGES["Synchronized"](more=True)
        self._handlers.synchronize(self._pods, self._containers)
        self._pods, self._containers = [], []
        return None

    def _send(self, connection: int, message: Message) -> None:
        self._writer.write(encode(connection, message))


class _UnimplementedError(Exception):
    """A method we do not have; a newer runtime then tries an older one."""
