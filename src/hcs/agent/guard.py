"""``hcs guard``: the second opinion on nodes whose container runtime validates nothing; see :mod:`hcs.nri.guard`.

While the runtime asks it, it holds a lock on a file beside the agent's socket. The agent looks at the lock to know
whether the node fails closed; a lock goes with its process, whatever ends it.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from hcs.nri.guard import INDEX, NAME, Guard
from hcs.nri.plugin import SOCKET, Plugin
from hcs.nri.runtimes import GUARD_EVENTS
from hcs.process import logs


def run(
    nri_socket: Annotated[Path, typer.Option(help="The container runtime's NRI socket.")] = SOCKET,
    lock: Annotated[Path, typer.Option(help="File that is locked while the runtime asks us.")] = Path(
        "/run/hcs/guard.lock"
    ),
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Refuse to start containers that needed the node agent's adjustment and did not get it.

    Needed where the container runtime validates nothing: containerd before 2.2, CRI-O before 1.34.
    """
    logs.configure(log_level)
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with open(lock, "wb") as file:
            asyncio.run(_run(nri_socket, file.fileno()))
    except OSError as error:
        raise typer.BadParameter(f"{lock} cannot be written: {error.strerror}", param_hint="--lock") from error


async def _run(nri_socket: Path, lock: int) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    guard = Guard(lambda alive: _mark(lock, alive))
    with contextlib.suppress(asyncio.CancelledError):
        await Plugin(NAME, INDEX, guard, events=GUARD_EVENTS, socket=nri_socket).run()


def _mark(descriptor: int, alive: bool) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX if alive else fcntl.LOCK_UN)


def guarded(lock: Path) -> bool:
    """Whether a guard lives and is asked."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
