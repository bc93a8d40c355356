"""One container's process, seen from the kubelet: start it, signal it, learn how it ended."""

import asyncio
import contextlib
import datetime
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

SHIM: Final = Path(__file__).with_name("shim.py")


class StartError(RuntimeError):
    """The command could not be executed; the message is the system's."""


class Launch(msgspec.Struct, frozen=True):
    """What to run: ``argv`` begins with the program's path on this machine; ``log`` is appended to."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    parent: int


def find_program(word: str, *, env: Mapping[str, str], root: Path, cwd: Path) -> Path | None:
    """The program that a command's first word means inside the container, or None.

    A word with a slash is a path of the container (or on this machine, once moved), any other is looked for in the
    container's ``PATH``.
    """
    if "/" in word:
        candidates = [Path(word) if word.startswith(f"{root}/") else Path(f"{root}{word}")]
        if not word.startswith("/"):
            candidates = [cwd / word]
    else:
        candidates = [Path(entry or str(cwd), word) for entry in env.get("PATH", "").split(":")]
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


class Process:
    """A running container. ``pid`` is that of its first process, ``started`` when it began."""

    def __init__(self, shim: asyncio.subprocess.Process, pid: int, started: datetime.datetime) -> None:
        self._shim, self.pid, self.started = shim, pid, started

    @classmethod
    async def start(cls, launch: Launch, config: Path) -> "Process":
        """Run it.

        Args:
            launch: what to run; ``parent`` must be this process.
            config: where the file for the shim goes.

        Raises:
            StartError: the command could not be executed.
        """
        config.write_bytes(msgspec.json.encode(launch))
        config.chmod(0o600)
        shim = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(SHIM), str(config)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            word, _, text = (await _line(shim)).partition(" ")
        except asyncio.CancelledError:
            _signal(shim, signal.SIGQUIT)
            raise
        if word != "started":
            await shim.communicate()
            raise StartError(text or f"the container's parent process ended with status {shim.returncode}")
        return cls(shim, int(text), datetime.datetime.now(datetime.UTC))

    async def ended(self) -> int:
        """Wait for the end and return the exit code, 128 + n after signal n. To be awaited once."""
        word, _, text = (await _line(self._shim)).partition(" ")
        await self._shim.communicate()
        return int(text) if word == "exited" else 128 + signal.SIGKILL

    def terminate(self) -> None:
        """Send SIGTERM to the container's first process."""
        _signal(self._shim, signal.SIGTERM)

    def kill(self) -> None:
        """Kill everything in the container, at once."""
        _signal(self._shim, signal.SIGQUIT)


async def _line(shim: asyncio.subprocess.Process) -> str:
    assert shim.stdout is not None
    return (await shim.stdout.readline()).decode(errors="replace").rstrip("\n")


def _signal(shim: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        shim.send_signal(number)
