"""Start the sandbox's programs, restart those that die, and end them all cleanly.

Every program is an own process, as in a cluster. A program that dies is started again with the same arguments, as a
kubelet would do; so killing one by hand shows what the others make of it. Children are tied to this process by the
kernel (PR_SET_PDEATHSIG): even if it is killed outright, nothing is left running.
"""

import asyncio
import ctypes
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec

import hcs
from hcs.kube.transport import Transport

log = logging.getLogger(__name__)

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG: Final = 1
START_SECONDS: Final = 45.0
STOP_SECONDS: Final = 4.0


class StartError(RuntimeError):
    """A program did not become ready; the message carries the end of its log."""


class Program(msgspec.Struct, frozen=True):
    """One program: ``arguments`` follow the Python interpreter; ``{ready}`` in them becomes the ready file's path.

    A program that is not ours stands in ``executable``. It writes no ready file: it is ready when ``health`` answers
    200, or at once where there is none to ask. ``depth`` says who stands on whom: a program is ended when all those of
    a smaller depth have ended.
    """

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = {}
    executable: str = sys.executable
    health: "Health | None" = None
    depth: int = 0


class Health(msgspec.Struct, frozen=True):
    """An address that answers 200 when a program is ready; ``authority`` (PEM) is who vouches for it."""

    url: str
    authority: bytes


def tie_to_parent() -> None:
    """Ask the kernel to end this process when its parent ends. Runs in the child, before exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Supervisor:
    """All programs of one sandbox; logs and ready files live under ``directory``."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        *,
        start_seconds: float = START_SECONDS,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            directory: where logs and ready files are; its folders ``logs`` and ``ready`` exist.
            environment: of all programs.
            start_seconds: how long a program may take to become ready.
            stop_seconds: how long one may take to end after SIGTERM before it is killed.
        """
        self._directory, self.environment = directory, dict(environment)
        self._start_seconds, self._stop_seconds = start_seconds, stop_seconds
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._depths: dict[str, int] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self.restarts: dict[str, int] = {}

    async def start(self, program: Program) -> dict[str, Any]:
        """Start a program and wait until it is ready.

        Returns:
            What it wrote into its ready file: ``pid`` and, for servers, ``url``.

        Raises:
            StartError: it ended, or was not ready in time.
        """
        process = await self._spawn(program)
        self._watchers[program.name] = asyncio.create_task(self._keep_up(program, process))
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._ready(program, process)
        except TimeoutError as error:
            raise StartError(
                f"{program.name} was not ready after {self._start_seconds:g} s:\n{self.log_tail(program.name)}"
            ) from error

    def pid(self, name: str) -> int | None:
        """The process id of a running program."""
        process = self._running.get(name)
        return process.pid if process is not None else None

    async def stop(self) -> None:
        """Ask all programs to end, the last started first, what others stand on last; none is started again."""
        self._stopping = True
        for watcher in self._watchers.values():
            watcher.cancel()
        for depth in sorted(set(self._depths.values())):
            level = [name for name in reversed(self._running) if self._depths[name] == depth]
            await asyncio.gather(*(self._end(name) for name in level))

    async def _spawn(self, program: Program) -> asyncio.subprocess.Process:
        ready = self.ready_file(program.name)
        ready.unlink(missing_ok=True)
        arguments = [argument.replace("{ready}", str(ready)) for argument in program.arguments]
        with open(self.log_file(program.name), "ab") as output:
            process = await asyncio.create_subprocess_exec(
                program.executable,
                *arguments,
                env={**self.environment, **program.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches only us; we end the others in order
                preexec_fn=tie_to_parent,
            )
        self._running[program.name], self._depths[program.name] = process, program.depth
        return process

    async def _ready(self, program: Program, process: asyncio.subprocess.Process) -> dict[str, Any]:
        path = self.ready_file(program.name)
        while not await _is_ready(program, path):
            if process.returncode is not None:
                raise StartError(f"{program.name} ended with {process.returncode}:\n{self.log_tail(program.name)}")
            await asyncio.sleep(0.02 if program.health is None else 0.1)
        if program.executable != sys.executable:
            return {"pid": process.pid}
        return _facts(path) or {}

    async def _keep_up(self, program: Program, process: asyncio.subprocess.Process) -> None:
        pause = 0.1
        while True:
            code = await process.wait()
            if self._stopping:
                return
            self.restarts[program.name] = self.restarts.get(program.name, 0) + 1
            log.warning("program ended, starting it again: name=%s code=%s", program.name, code)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)
            process = await self._spawn(program)

    async def _end(self, name: str) -> None:
        process = self._running[name]
        if process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._stop_seconds)
        except TimeoutError:
            log.warning("program did not end, killing it: name=%s", name)
            process.kill()
            await process.wait()

    def ready_file(self, name: str) -> Path:
        """Where a program says that it is ready."""
        return self._directory / "ready" / f"{name}.json"

    def log_file(self, name: str) -> Path:
        """Where a program's output goes."""
        return self._directory / "logs" / f"{name}.log"

    def log_tail(self, name: str, lines: int = 12) -> str:
        """The end of a program's output."""
        try:
            return "\n".join(self.log_file(name).read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


def _facts(ready_file: Path) -> dict[str, Any] | None:
    """What a program has said of itself; None while it has not, or has not finished the sentence."""
    try:
        facts: dict[str, Any] = msgspec.json.decode(ready_file.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return facts


async def _is_ready(program: Program, ready_file: Path) -> bool:
    if program.health is None:
        return program.executable != sys.executable or _facts(ready_file) is not None
    trust = ssl.create_default_context(cadata=program.health.authority.decode())
    async with httpx2.AsyncClient(transport=Transport(verify=trust), trust_env=False) as client:
        try:
            return (await client.get(program.health.url, timeout=2)).status_code == 200
        except httpx2.HTTPError:
            return False


async def start_together(
    supervisor: Supervisor, programs: Sequence[Program], said: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Start programs side by side; ``said`` hears the name of each as it becomes ready.

    Raises:
        StartError: one of them did not become ready.
    """
    facts: dict[str, dict[str, Any]] = {}

    async def one(program: Program) -> None:
        facts[program.name] = await supervisor.start(program)
        said(program.name)

    outcomes = await asyncio.gather(*(one(program) for program in programs), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return facts


def inherited_environment() -> dict[str, str]:
    """The environment the programs get: ours, without what would change how a container or a kubeconfig is found.

    They run the code that we run, also where it was not installed but put on the path.
    """
    hidden = {"LD_PRELOAD", "HCS_QUOTA_FILE", "HCS_ROOT", "KUBECONFIG", "CUDA_VISIBLE_DEVICES"}
    code = str(Path(hcs.__file__).parent.parent)
    path = os.pathsep.join(dict.fromkeys([code, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    return {**{key: value for key, value in os.environ.items() if key not in hidden}, "PYTHONPATH": path}
