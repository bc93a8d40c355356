"""A container runtime's side of NRI, true to the wire and to the faults of the real ones, without containers.

Written from what was seen of containerd (``docs/verified.md``), and with :mod:`tests.protobuf` alone, so that client
and runtime share no table and no code. What matters most here is what the real ones do badly: they hand one mux frame
to a read of 4096 bytes; they drop a plugin that fails or is late, and go on *without* it; they ignore what they do not
know.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from tests.protobuf import Fields, every, one, read_map, string_map, text, texts, write

PLUGIN, RUNTIME = 1, 2
SERVICE = "nri.pkg.api.v1alpha1"
METHODS = {
    1: "RunPodSandbox",
    2: "StopPodSandbox",
    3: "RemovePodSandbox",
    4: "CreateContainer",
    5: "PostCreateContainer",
    6: "StartContainer",
    10: "StopContainer",
    11: "RemoveContainer",
    14: "ValidateContainerAdjustment",
}
BY_STATE_CHANGE = {1, 2, 3, 5, 6, 11}
REQUIRED = "required-plugins.noderesource.dev"


class Kind(msgspec.Struct, frozen=True):
    """A runtime's version, and what follows from it."""

    name: str = "containerd"
    version: str = "v2.3.4"
    nri: str = "v0.12.2"
    cdi: bool = True
    args: bool = True
    validates: bool = True
    named_events: bool = True

    @property
    def known(self) -> int:
        """The mask of all events."""
        return (1 << 14) - 1 if self.validates else (1 << 11) - 1


NEW = Kind()
BEFORE_NAMES = Kind(version="v2.2.7", nri="", named_events=False)
WITHOUT_ARGS = Kind(version="2.1.9+unknown", nri="", args=False, validates=False, named_events=False)
OLD = Kind(version="1.7.24~ds1", nri="", cdi=False, args=False, validates=False, named_events=False)


class CreationError(Exception):
    """The container is not created; the text is what a kubelet would see."""


class Sandbox(msgspec.Struct, frozen=True):
    """A pod as the runtime knows it: its annotations are a copy from when it came."""

    id: str
    name: str
    uid: str
    namespace: str = "default"
    annotations: dict[str, str] = {}

    def fields(self) -> Fields:
        """Its message."""
        return [
            (1, self.id),
            (2, self.name),
            (3, self.uid),
            (4, self.namespace),
            *string_map(5, {"app": self.name}),
            *string_map(6, self.annotations),
            (8, [(3, "/kubepods")]),
            (9, 4711),
            (10, "10.0.0.7"),
        ]


class Container(msgspec.Struct):
    """A container, and what came of it."""

    id: str
    sandbox: Sandbox
    name: str
    args: list[str] = msgspec.field(default_factory=lambda: ["train"])
    env: dict[str, str] = {}
    mounts: dict[str, tuple[str, list[str]]] = {}
    devices: dict[str, tuple[str, int, int]] = {}
    annotations: dict[str, str] = {}
    cdi: list[str] = []
    state: int = 1

    def fields(self) -> Fields:
        """Its message."""
        return [
            (1, self.id),
            (2, self.sandbox.id),
            (3, self.name),
            (4, self.state),
            *string_map(6, self.annotations),
            *((7, word) for word in self.args),
            *((8, f"{key}={value}") for key, value in self.env.items()),
            *((9, [(1, path), (2, "bind"), (3, m[0]), *((4, o) for o in m[1])]) for path, m in self.mounts.items()),
            (11, [(5, "/kubepods/x")]),
            (22, [(1, "image")]),
        ]


class Peer:
    """One plugin."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: int) -> None:
        self.reader, self.writer, self.cut = reader, writer, cut
        self.name = self.index = ""
        self.mask = 0
        self.closed = False
        self.frames: list[tuple[int, int]] = []
        self._streams = {PLUGIN: b"", RUNTIME: b""}
        self._next = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def send(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        """Send one message, cut into frames."""
        content = struct.pack(">IIBB", len(data), stream, kind, 0) + data
        for start in range(0, len(content), self.cut):
            part = content[start : start + self.cut]
            self.writer.write(struct.pack(">II", connection, len(part)) + part)

    async def receive(self) -> tuple[int, int, int, bytes]:
        """The next message: connection, stream, kind, data."""
        while True:
            for connection, content in self._streams.items():
                if len(content) >= 10:
                    length, stream, kind, _ = struct.unpack(">IIBB", content[:10])
                    if len(content) >= 10 + length:
                        self._streams[connection] = content[10 + length :]
                        return connection, stream, kind, content[10 : 10 + length]
            connection, length = struct.unpack(">II", await self.reader.readexactly(8))
            self.frames.append((connection, length))
            if length > 4096:
                raise ConnectionError("one frame is one read of 4096 bytes; this plugin is dropped")
            self._streams[connection] += await self.reader.readexactly(length)

    async def follow(self) -> None:
        """Hand answers to those who wait, until the connection ends."""
        try:
            while True:
                connection, stream, kind, data = await self.receive()
                if connection == PLUGIN and kind == 2 and stream in self._waiting:
                    self._waiting.pop(stream).set_result(data)
        except (OSError, EOFError):
            self.close()

    def close(self) -> None:
        """The connection has ended, or is ended."""
        self.closed = True
        self.writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("ttrpc: closed"))
        self._waiting.clear()

    async def call(self, method: str, payload: bytes, seconds: float) -> bytes:
        """Ask the plugin.

        Raises:
            CreationError: the plugin says no.
            ConnectionError: it is gone.
            TimeoutError: it is late.
        """
        if self.closed:
            raise ConnectionError("ttrpc: closed")
        stream, self._next = self._next, self._next + 2
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = waiting
        request = write([(1, f"{SERVICE}.Plugin"), (2, method), (3, payload), (4, int(seconds * 1e9))])
        self.send(PLUGIN, stream, 1, request)
        async with asyncio.timeout(seconds):
            answer = await waiting
        status = one(answer, 1)
        if status is not None and one(status, 1):
            raise CreationError(f"rpc error: code = {one(status, 1)} desc = {text(status, 2)}")
        return one(answer, 2) or b""

    def wants(self, event: int) -> bool:
        """Whether it subscribed."""
        return bool(self.mask & 1 << event - 1)


class StubRuntime:
    """A runtime on a socket. ``containers`` are those that exist; a container that starts unadjusted is among them."""

    def __init__(
        self,
        socket: Path,
        kind: Kind = NEW,
        *,
        validator: bool = False,
        request_seconds: float = 2.0,
        part_bytes: int = 4 << 20,
        cut: int = 4096,
    ) -> None:
        """Prepare.

        Args:
            socket: where to listen; its folder must be there.
            kind: which runtime.
            validator: whether the default validator is on.
            request_seconds: what a plugin is given for an answer.
            part_bytes: above this Synchronize comes in parts, where the runtime does so.
            cut: bytes of each frame it sends.
        """
        self.socket, self.kind, self.validator = socket, kind, validator
        self.request_seconds, self.part_bytes, self.cut = request_seconds, part_bytes, cut
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self.started: list[str] = []
        self.peers: list[Peer] = []
        self.joined = asyncio.Condition()
        self.dropped: list[str] = []
        self.refused: list[str] = []
        self._lock = asyncio.Lock()
        self._accepting = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    async def start(self) -> None:
        """Make the socket anew, and listen."""
        self.socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, str(self.socket))

    async def stop(self) -> None:
        """End; every connection breaks, containers go on."""
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.close()
        self.peers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def plugin(self, name: str = "hcs") -> Peer:
        """Wait for a plugin."""
        async with asyncio.timeout(30), self.joined:
            await self.joined.wait_for(lambda: any(peer.name == name and not peer.closed for peer in self.peers))
        return next(peer for peer in self.peers if peer.name == name and not peer.closed)

    async def run_pod(self, name: str, uid: str = "", annotations: Mapping[str, str] | None = None) -> Sandbox:
        """A pod comes."""
        self._count += 1
        sandbox = Sandbox(f"pod{self._count}", name, uid or f"uid-{name}", annotations=dict(annotations or {}))
        await self._tell(1, sandbox, None)
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    async def create(
        self, sandbox: Sandbox, name: str = "main", env: Mapping[str, str] | None = None, **facts: Any
    ) -> Container:
        """Create and start a container.

        Raises:
            CreationError: it is not created, or not started.
        """
        self._count += 1
        container = Container(f"ctr{self._count}", sandbox, name, env=dict(env or {}), **facts)
        try:
            async with self._lock:
                await self._create(container)
        except CreationError:
            await self._tell(10, sandbox, container)
            await self._tell(11, sandbox, container)
            raise
        self.containers[container.id] = container
        await self._tell(5, sandbox, container)
        try:
            await self._tell(6, sandbox, container, refusable=True)
        except CreationError:
            await self.remove(container)
            raise
        container.state = 3
        self.started.append(container.id)
        return container

    async def remove(self, container: Container) -> None:
        """A container ends and is removed."""
        self.containers.pop(container.id, None)
        container.state = 4
        await self._tell(10, container.sandbox, container)
        await self._tell(11, container.sandbox, container)

    async def _create(self, container: Container) -> None:
        asked = write([(1, container.sandbox.fields()), (2, container.fields())])
        before = container.fields()
        whole: Fields = []
        present: list[Peer] = []
        owners: dict[str, str] = {}
        for peer in [peer for peer in self._in_order() if peer.wants(4)]:
            present.append(peer)  # before it is asked: one that dies in this call counts as present
            try:
                answer = await peer.call("CreateContainer", asked, self.request_seconds)
            except (OSError, TimeoutError) as error:
                self._drop(peer, error)
                continue
            except CreationError as error:
                raise CreationError(f"failed to get NRI adjustment for container: {error}") from error
            for adjustment in every(answer, 1):
                whole += self._apply(container, adjustment, peer, owners, whole)
        plugins = [*(["default-validator"] if self.validator else []), *(peer.name for peer in present)]
        if not self.kind.validates:
            return
        if self.validator:
            for required in _required(container):
                if required not in plugins:
                    raise CreationError(f'required plugin "{required}" not present')
        request = write(
            [
                (1, container.sandbox.fields()),
                (2, before),
                (3, whole),
                *((6, [(1, plugin), (2, "00")]) for plugin in plugins),
            ]
        )
        for peer in [peer for peer in self.peers_at_beginning(present) if peer.wants(14)]:
            try:
                answer = await peer.call("ValidateContainerAdjustment", request, self.request_seconds)
            except (OSError, TimeoutError) as error:
                self._drop(peer, error)
                raise CreationError(f"validator plugin {peer.index}-{peer.name} failed: {error}") from error
            if one(answer, 1):
                raise CreationError(f'validator "{peer.name}" rejected container adjustment, reason: {text(answer, 2)}')

    def peers_at_beginning(self, present: Sequence[Peer]) -> list[Peer]:
        """Validators are those that were there when the creation began, also if they have died meanwhile."""
        return list(dict.fromkeys([*present, *self.peers]))

    def _apply(
        self, container: Container, adjustment: bytes, peer: Peer, owners: dict[str, str], whole: Fields
    ) -> Fields:
        def own(what: str) -> None:
            if owners.setdefault(what, peer.name) != peer.name:
                raise CreationError(f'plugins "{owners[what]}" and "{peer.name}" both tried to set {what}')

        kept: Fields = []
        container.annotations |= read_map(adjustment, 2)
        kept += string_map(2, read_map(adjustment, 2))
        for mount in every(adjustment, 3):
            own(f"Mount {text(mount, 1)}")
            container.mounts[text(mount, 1)] = (text(mount, 3), texts(mount, 4))
            kept.append((3, mount))
        for variable in every(adjustment, 4):
            key, value = text(variable, 1), text(variable, 2)
            if key.startswith("-"):  # takes away what plugins before it have set; the image's and the user's stay
                if owners.pop(f"Env {key[1:]}", None):
                    del container.env[key[1:]]
                    whole[:] = [(n, v) for n, v in whole if n != 4 or text(v, 1) != key[1:]]
                continue
            own(f"Env {key}")
            container.env[key] = value
            kept.append((4, variable))
        for device in every(one(adjustment, 6) or b"", 1):
            own(f"Device {text(device, 1)}")
            container.devices[text(device, 1)] = (text(device, 2), one(device, 3) or 0, one(device, 4) or 0)
            kept.append((6, [(1, device)]))
        if self.kind.cdi:
            container.cdi += [text(device, 1) for device in every(adjustment, 8)]
            kept += [(8, device) for device in every(adjustment, 8)]
        if self.kind.args and texts(adjustment, 9):
            own("Args")
            container.args = [word for word in texts(adjustment, 9) if word]
            kept += [(9, word) for word in texts(adjustment, 9)]
        return kept

    def _in_order(self) -> list[Peer]:
        return sorted(self.peers, key=lambda peer: peer.index)

    def _drop(self, peer: Peer, error: BaseException) -> None:
        self.dropped.append(f"{peer.name}: {error or type(error).__name__}")
        peer.close()
        if peer in self.peers:
            self.peers.remove(peer)

    async def _tell(self, event: int, sandbox: Sandbox, container: Container | None, refusable: bool = False) -> None:
        parts: Fields = [(1, sandbox.fields())]
        if container is not None:
            parts.append((2, container.fields()))
        async with self._lock:
            for peer in [peer for peer in self._in_order() if peer.wants(event)]:
                method, payload = METHODS[event], write(parts)
                if not self.kind.named_events and event in BY_STATE_CHANGE:
                    method = "StateChange"
                    payload = write([(1, event), *((number + 1, value) for number, value in parts)])
                try:
                    await peer.call(method, payload, self.request_seconds)
                except (OSError, TimeoutError) as error:
                    self._drop(peer, error)
                except CreationError:
                    if refusable:
                        raise

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, self.cut)
        async with self._accepting:  # serial: a silent peer holds back the next one
            try:
                async with asyncio.timeout(5):
                    connection, stream, kind, data = await peer.receive()
                assert (connection, stream, kind) == (RUNTIME, 1, 1)
                assert (text(data, 1), text(data, 2)) == (f"{SERVICE}.Runtime", "RegisterPlugin")
                registration = one(data, 3)
                peer.name, peer.index = text(registration, 1), text(registration, 2)
                problem = "" if len(peer.index) == 2 and peer.index.isdecimal() else f"invalid index {peer.index!r}"
                peer.send(RUNTIME, stream, 2, write([(1, [(1, 3), (2, problem)])]) if problem else b"")
                if problem:
                    self.refused.append(problem)
                    writer.close()
                    return
                follow = asyncio.create_task(peer.follow())
                self._tasks.add(follow)
                follow.add_done_callback(self._tasks.discard)
                await self._introduce(peer)
            except (OSError, EOFError, TimeoutError, CreationError):
                peer.close()
                return
        async with self.joined:
            self.peers.append(peer)
            self.joined.notify_all()

    async def _introduce(self, peer: Peer) -> None:
        about: Fields = [(2, self.kind.name), (3, self.kind.version)]
        if self.kind.nri:
            about += [(4, 5000), (5, 2000), (6, self.kind.nri)]
        answer = await peer.call("Configure", write(about), self.request_seconds)
        mask = one(answer, 2) or 0
        if mask & ~self.kind.known:
            raise ConnectionError("invalid plugin events")
        peer.mask = mask or self.kind.known
        pods = [(1, sandbox.fields()) for sandbox in self.sandboxes.values()]
        running = [(2, container.fields()) for container in self.containers.values()]
        parts: list[Fields] = [[]]
        for entry in (*pods, *running):
            if self.kind.named_events and len(write([*parts[-1], entry])) > self.part_bytes:
                parts.append([])
            parts[-1].append(entry)
        for number, part in enumerate(parts, start=1):
            more: Fields = [(3, 1)] if number < len(parts) else []
            answer = await peer.call("Synchronize", write([*part, *more]), self.request_seconds)
            if more and not one(answer, 2):
                raise ConnectionError("the plugin does not collect the parts")


def _required(container: Container) -> list[str]:
    for key in (f"{REQUIRED}/container.{container.name}", f"{REQUIRED}/pod", REQUIRED):
        if key in container.sandbox.annotations:
            return list(yaml.safe_load(container.sandbox.annotations[key]))
    return []


@contextlib.asynccontextmanager
async def stub_runtime(
    folder: Path, kind: Kind = NEW, tasks: Sequence[Callable[[], Any]] = (), **settings: Any
) -> AsyncIterator[StubRuntime]:
    """A running runtime, with plugins running beside it."""
    runtime = StubRuntime(folder / "nri.sock", kind, **settings)
    await runtime.start()
    running = [asyncio.ensure_future(task()) for task in tasks]
    try:
        yield runtime
    finally:
        for task in running:
            task.cancel()
        failures = [e for e in await asyncio.gather(*running, return_exceptions=True) if isinstance(e, Exception)]
        await runtime.stop()
        if failures:
            raise ExceptionGroup("a plugin failed", failures)
