"""Serve an ASGI application beside background tasks, and end cleanly.

The port may be 0; the one that was bound is written to the ready file as soon as the server listens, so that whoever
started the program needs no guessing and no polling of ports. SIGTERM and SIGINT stop the server, cancel the tasks and
return, so that everything in a ``finally`` still runs and the exit status is the caller's; a task that fails stops
everything and raises. Certificate files that change on disk are taken up without a restart.
"""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn

from hcs.process.reloading import keep_current

Task = Callable[[], Awaitable[None]]
GRACE_SECONDS: Final = 1
"""How long running requests may take once the program was asked to end; those that answer nothing, twice as long."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where to listen: ``host`` and ``port`` (0: any free one), or a Unix socket; TLS when both files are given.

    With ``client_authority``, a file of certificates, only clients that show a certificate of one of them are heard.
    """

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: str = ""
    certificate: str = ""
    key: str = ""
    client_authority: str = ""

    def listen(self) -> socket.socket:
        """Bind and listen. A socket file that an earlier run left behind is replaced; any other file is left alone.

        Raises:
            OSError: the address is taken or not ours.
        """
        family = socket.AF_UNIX if self.unix_socket else socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # Only where the protocol is named does asyncio switch Nagle's algorithm off, which costs 40 ms an answer.
        protocol = 0 if self.unix_socket else socket.IPPROTO_TCP
        listener = socket.socket(family, socket.SOCK_STREAM, protocol)
        try:
            if self.unix_socket:
                self.forget()
                listener.bind(self.unix_socket)
                # What comes over it is trusted to be the node's own runtime. Before listen() nobody can connect.
                os.chmod(self.unix_socket, 0o600)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((self.host, self.port))
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        return listener

    def forget(self) -> None:
        """Remove the Unix socket's file, if it is one."""
        if self.unix_socket:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(os.lstat(self.unix_socket).st_mode):
                    os.unlink(self.unix_socket)

    def url(self, listener: socket.socket) -> str:
        """The address others use."""
        if self.unix_socket:
            return f"unix://{self.unix_socket}"
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.certificate else 'http'}://{shown}:{port}"


def write_ready(path: Path | None, facts: dict[str, Any]) -> None:
    """Write the ready file in one step: a reader sees all of it or none. It names our pid, so a stale one shows."""
    if path is None:
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.encode({"pid": os.getpid(), **facts}))
    partial.replace(path)


class _Server(uvicorn.Server):
    """Says when it has begun to listen, and leaves the signals to :func:`run_until_stopped`.

    Uvicorn would raise a caught SIGTERM again once it has stopped, and so end the process before the other tasks, the
    socket file and the callers have been tidied up.
    """

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish; drop idle connections at once, whose TLS peers may never say goodbye.

        An answer that goes on for as long as its client listens, such as a stream of events, ends as if the client had
        gone: its application may tidy up, and nothing is reported as an error.
        """
        self._drop(lambda cycle: cycle is None or cycle.response_complete)
        await asyncio.sleep(0)
        ending = asyncio.create_task(self._end_streams())
        await super().shutdown(sockets)
        ending.cancel()
        self._drop(lambda cycle: True)
        await asyncio.gather(ending, return_exceptions=True)

    async def _end_streams(self) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        self._drop(lambda cycle: cycle.response_started)

    def _drop(self, unwanted: Callable[[Any], bool]) -> None:
        for connection in list(self.server_state.connections):
            if connection.transport is not None and unwanted(getattr(connection, "cycle", None)):
                connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: Any, endpoint: Endpoint, *, tasks: Sequence[Task] = (), ready: Path | None = None) -> None:
    """Serve ``app`` until SIGTERM, SIGINT or cancellation, running ``tasks`` beside it.

    Args:
        app: an ASGI application.
        endpoint: where to listen.
        tasks: coroutine functions that run until cancelled.
        ready: file that receives ``{"pid", "url"}`` once the server listens.

    Raises:
        OSError: the address cannot be bound, or the certificate files cannot be read (``ssl.SSLError`` among them).
        ExceptionGroup: a task failed.
    """
    listener = endpoint.listen()
    try:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=endpoint.certificate or None,
            ssl_keyfile=endpoint.key or None,
            ssl_ca_certs=endpoint.client_authority or None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if endpoint.client_authority else ssl.CERT_NONE,
            timeout_graceful_shutdown=2 * GRACE_SECONDS,
        )
        config.load()
        server = _Server(config, lambda: write_ready(ready, {"url": endpoint.url(listener)}))

        async def listening() -> None:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                server.should_exit = True
                await serving
                raise

        together: list[Task] = [listening, *tasks]
        if config.ssl is not None:
            together.append(functools.partial(keep_current, config.ssl, Path(endpoint.certificate), Path(endpoint.key)))
        await run_until_stopped(together)
    finally:
        listener.close()
        endpoint.forget()


async def run_until_stopped(tasks: Sequence[Task]) -> None:
    """Run tasks together until SIGTERM or SIGINT, or until all of them have returned.

    Outside the main thread there are no signals; there, cancellation is the way to stop.

    Raises:
        ExceptionGroup: a task failed; the others have been cancelled by then.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    caught = []
    for signum in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(signum, stopped.set)
            caught.append(signum)
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_to_the_end(task)) for task in tasks]
            end = asyncio.gather(*running, return_exceptions=True)
            stop = group.create_task(_set(stopped))
            await asyncio.wait((end, stop), return_when=asyncio.FIRST_COMPLETED)
            for task in (*running, stop):
                task.cancel()
    finally:
        for signum in caught:
            loop.remove_signal_handler(signum)


async def _to_the_end(task: Task) -> None:
    await task()


async def _set(event: asyncio.Event) -> None:
    await event.wait()
