"""Start, find and end the process that holds a sandbox, from another process."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from hcs.sandbox.supervisor import StartError

STOP_SECONDS = 15.0


class Held(msgspec.Struct, frozen=True):
    """A running sandbox: its directory, its process and an administrator's kubeconfig."""

    directory: str
    pid: int
    kubeconfig: str
    context_before: str | None = None
    kubeconfig_changed: str = ""

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Holding:
    """A sandbox started from here, on a leash or left behind."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process, self.directory = process, directory

    @classmethod
    async def start(
        cls, fleet: Path, *, kubernetes: Path | None = None, leash: bool, said: Callable[[str], None]
    ) -> tuple["Holding", Held]:
        """Start a sandbox in a new private directory and wait until it is up.

        Args:
            fleet: the fleet file.
            kubernetes: folder with the programs of a real control plane; None takes the embedded one.
            leash: whether it ends with us.
            said: hears of each part that is ready.

        Raises:
            StartError: it did not come up; nothing is left behind.
        """
        directory = Path(tempfile.mkdtemp(prefix="hcs-sandbox-"))
        with open(directory / "sandbox.log", "ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hcs.sandbox",
                "--directory",
                str(directory),
                "--fleet",
                str(fleet.absolute()),
                *(["--kubernetes", str(kubernetes.absolute())] if kubernetes is not None else []),
                *(["--leash"] if leash else []),
                stdin=asyncio.subprocess.PIPE if leash else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        holding = cls(process, directory)
        try:
            return holding, await holding._come_up(said)
        except BaseException:
            await holding.stop()
            raise

    async def _come_up(self, said: Callable[[str], None]) -> Held:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = msgspec.json.decode(line)
            if "ready" in told:
                said(told["ready"])
            elif "error" in told:
                raise StartError(told["error"])
            elif told.get("up"):
                return Held(str(self.directory), self._process.pid, told["kubeconfig"])
        tail = (self.directory / "sandbox.log").read_text(errors="replace")[-2000:]
        raise StartError(f"the sandbox ended while starting:\n{tail}")

    async def stop(self) -> None:
        """End it, wait until it is gone, and remove its directory."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(self._process.wait()), STOP_SECONDS)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)


def state_file() -> Path:
    """Where the sandbox of ``hcs sandbox up`` is remembered."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "hcs" / "sandbox.json"


def remember(held: Held) -> None:
    """Remember a sandbox that was left behind."""
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(held))


def recall() -> Held | None:
    """The remembered sandbox if it still runs; a stale note is removed."""
    path = state_file()
    try:
        held = msgspec.json.decode(path.read_bytes(), type=Held)
    except (OSError, msgspec.DecodeError):
        return None
    if held.alive:
        return held
    path.unlink(missing_ok=True)
    shutil.rmtree(held.directory, ignore_errors=True)
    return None


def end(held: Held, *, poll: Callable[[], None]) -> None:
    """End a remembered sandbox and remove its directory; ``poll`` is called while waiting for it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(held.pid, signal.SIGTERM)
    while held.alive:
        poll()
    shutil.rmtree(held.directory, ignore_errors=True)
    state_file().unlink(missing_ok=True)
