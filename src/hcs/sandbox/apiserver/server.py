"""Starting and stopping the API server: inside an event loop, in a thread for tests, or as a process.

Promises: HTTPS on loopback with a certificate of the data directory's own authority, a free port when asked for port
0, and a stop within a second even with open watches. The data directory holds ``ca.crt``, ``ca.key`` and
``state.db``; starting again on it continues where the last run, however it ended, left off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import uvicorn
import yaml

from hcs.process.certificates import Authority
from hcs.sandbox.apiserver.application import Application
from hcs.sandbox.apiserver.attempts import User
from hcs.sandbox.apiserver.authentication import ADMIN, Tokens
from hcs.sandbox.apiserver.cluster import Cluster
from hcs.sandbox.apiserver.garbage import Collector
from hcs.sandbox.apiserver.metadata import Sources
from hcs.sandbox.apiserver.storage import Store
from hcs.sandbox.apiserver.watching import Watches

log = logging.getLogger(__name__)
NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc")


class Settings(msgspec.Struct, frozen=True):
    """How to run a server. ``services`` maps ``NAMESPACE/NAME`` of webhook services to loopback URLs."""

    data: Path
    port: int = 0
    tokens: Mapping[str, User] | Path | None = None
    pod_logs: Path | None = None
    services: Mapping[str, str] = {}
    history: int = 20_000
    bookmark_seconds: float = 15.0
    sources: Sources | None = None


class ApiServer:
    """One API server. ``await start()``, use ``url`` and ``authority``, ``await stop()``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        settings.data.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.load_or_create(settings.data)
        self._store = Store(settings.data / "state.db", history=settings.history)
        self.cluster = Cluster(
            self._store, sources=settings.sources, services=settings.services, pod_logs=settings.pod_logs
        )
        self.watches = Watches(self._store, bookmark_seconds=settings.bookmark_seconds)
        self.application = Application(self.cluster, _tokens(settings.tokens), self.watches)
        self._tasks: list[asyncio.Task[None]] = []
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def port(self) -> int:
        assert self._socket is not None, "the server has not been started"
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen and serve in the running loop. Raises OSError when the port is taken."""
        self._loop = asyncio.get_running_loop()
        certificate, key = self.authority.issue(NAMES).write(self.settings.data, "apiserver")
        # naming the protocol matters: asyncio sets TCP_NODELAY only then, and without it every answer waits 40 ms
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self.settings.port))
        self.application.address = f"127.0.0.1:{self.port}"
        config = uvicorn.Config(
            self.application, http="h11", ws="none", lifespan="off", log_config=None, access_log=False,
            ssl_certfile=certificate, ssl_keyfile=key, timeout_graceful_shutdown=1, timeout_keep_alive=65,
        )  # fmt: skip
        self._server = _Server(config)
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[self._socket])),
            asyncio.create_task(Collector(self.cluster).run()),
        ]
        while not self._server.started:
            if self._tasks[0].done():
                await self._tasks[0]
                raise RuntimeError("the API server stopped while starting")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """End watches, finish requests (at most a second), close the store."""
        self.watches.close()
        if self._server is not None:
            self._server.should_exit = True
            serving, collecting = self._tasks
            await self._hang_up(self._server)
            await asyncio.wait([serving], timeout=3)
            collecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await collecting
        await self.cluster.webhooks.close()
        if self._socket is not None:
            self._socket.close()
        self._store.close()

    def compact(self) -> None:
        """Forget all history: older versions answer 410, as after compaction in etcd. May be called from any thread."""
        assert self._loop is not None, "the server has not been started"
        asyncio.run_coroutine_threadsafe(self._compact(), self._loop).result()

    async def _compact(self) -> None:
        self._store.compact(self._store.version)

    async def _hang_up(self, server: uvicorn.Server) -> None:
        """Let running requests end, then cut idle connections: their clients would not answer a polite TLS goodbye."""
        for _ in range(16):
            await asyncio.sleep(0.05)
            if not self.application.running:
                break
        for connection in list(server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    def kubeconfig(self, token: str) -> str:
        """A kubeconfig (YAML) that reaches this server with a token and trusts its authority."""
        return kubeconfig(self.url, self.settings.data / "ca.crt", token)


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the owner of the process decides what signals mean."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _tokens(given: Mapping[str, User] | Path | None) -> Tokens:
    if isinstance(given, Path):
        return Tokens.read(given)
    return Tokens(given if given is not None else {"admin-token": ADMIN})


def kubeconfig(url: str, authority: Path, token: str, *, name: str = "hcs-sandbox") -> str:
    """A kubeconfig in YAML for one server, one user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_kubeconfig(path: Path, text: str) -> None:
    """Write a kubeconfig readable by its owner alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


@contextlib.contextmanager
def running(settings: Settings) -> Iterator[ApiServer]:
    """A server in a thread of its own, for tests and synchronous programs.

    >>> with running(Settings(Path("/tmp/x"))) as server: ...  # doctest: +SKIP
    """
    ready, failure = threading.Event(), []  # type: tuple[threading.Event, list[BaseException]]
    held: dict[str, ApiServer] = {}
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            held["server"] = server = ApiServer(settings)
            await server.start()
        except BaseException as error:
            failure.append(error)
            return
        finally:
            ready.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="apiserver", daemon=True)
    thread.start()
    ready.wait()
    try:
        if failure:
            raise failure[0]
        yield held["server"]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=10)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
