"""Serve an ASGI application beside background tasks, and end cleanly.

The port may be 0; the one that was bound is written to the ready file as soon as the server listens, so that whoever
started the program needs no guessing and no polling of ports. SIGTERM and SIGINT stop the server, cancel the tasks and
return; a task that fails stops everything and raises.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

Task = Callable[[], Awaitable[None]]
GRACE_SECONDS = 1


class Endpoint(msgspec.Struct, frozen=True):
    """Where to listen: ``host`` and ``port`` (0: any free one), or a Unix socket; TLS when both files are given."""

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: str = ""
    certificate: str = ""
    key: str = ""

    def listen(self) -> socket.socket:
        """Bind and listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        if self.unix_socket:
            self.forget()
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(self.unix_socket)
            os.chmod(self.unix_socket, 0o600)  # what comes over it is trusted to be the node's own runtime
        else:
            listener = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
        listener.listen(128)
        return listener

    def forget(self) -> None:
        """Remove the Unix socket's file."""
        if self.unix_socket:
            Path(self.unix_socket).unlink(missing_ok=True)

    def url(self, listener: socket.socket) -> str:
        """The address others use."""
        if self.unix_socket:
            return f"unix://{self.unix_socket}"
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.certificate else 'http'}://{shown}:{port}"


def write_ready(path: Path | None, facts: dict[str, Any]) -> None:
    """Write the ready file in one step: a reader sees all of it or none."""
    if path is None:
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.encode({"pid": os.getpid(), **facts}))
    partial.replace(path)


class _AnnouncingServer(uvicorn.Server):
    """A server that says when it has begun to listen."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._announce()


async def serve(app: Any, endpoint: Endpoint, *, tasks: Sequence[Task] = (), ready: Path | None = None) -> None:
    """Serve ``app`` until SIGTERM or SIGINT, running ``tasks`` beside it.

    Args:
        app: an ASGI application.
        endpoint: where to listen.
        tasks: coroutine functions that run until cancelled.
        ready: file that receives ``{"pid", "url"}`` once the server listens.

    Raises:
        OSError: the address cannot be bound.
        ExceptionGroup: a task failed.
    """
    listener = endpoint.listen()
    server = _AnnouncingServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=endpoint.certificate or None,
            ssl_keyfile=endpoint.key or None,
            timeout_graceful_shutdown=GRACE_SECONDS,
        ),
        lambda: write_ready(ready, {"url": endpoint.url(listener)}),
    )

    async def listening() -> None:
        await server.serve(sockets=[listener])

    try:
        await run_until_stopped([listening, *tasks], leader=listening)
    finally:
        listener.close()
        endpoint.forget()


async def run_until_stopped(tasks: Sequence[Task], *, leader: Task | None = None) -> None:
    """Run tasks together until SIGTERM or SIGINT, or until ``leader`` returns.

    Raises:
        ExceptionGroup: a task failed; the others have been cancelled by then.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    if leader is None:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stopped.set)

    async def lead(task: Task) -> None:
        await task()
        stopped.set()

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(lead(task) if task is leader else _forever(task)) for task in tasks]
        await stopped.wait()
        for task in running:
            task.cancel()
    for signum in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError):
            loop.remove_signal_handler(signum)


async def _forever(task: Task) -> None:
    await task()
