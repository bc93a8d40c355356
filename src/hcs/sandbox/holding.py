"""Start, find and end the process that holds a sandbox, from another process."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hcs.sandbox.identities import CONTEXT, remove_context
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
        """Whether its process still runs; another one that got the same number later does not count."""
        try:
            return os.fsencode(self.directory) in Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False


class Holding:
    """A sandbox started from here, on a leash or left behind.

    The process is not one of asyncio's: those are ended when the loop that started them is.
    """

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
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
            process = subprocess.Popen(  # noqa: ASYNC220  - only the start is waited for
                [
                    sys.executable,
                    "-m",
                    "hcs.sandbox",
                    "--directory",
                    str(directory),
                    "--fleet",
                    str(fleet.absolute()),
                    *(["--kubernetes", str(kubernetes.absolute())] if kubernetes is not None else []),
                    *(["--leash"] if leash else []),
                ],
                stdin=subprocess.PIPE if leash else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
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
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        try:
            async for line in reader:
                told = msgspec.json.decode(line)
                if "ready" in told:
                    said(told["ready"])
                elif "error" in told:
                    raise StartError(told["error"])
                elif told.get("up"):
                    return Held(str(self.directory), self._process.pid, told["kubeconfig"])
        finally:
            transport.close()
        tail = (self.directory / "sandbox.log").read_text(errors="replace")[-2000:]
        raise StartError(f"the sandbox ended while starting:\n{tail}")

    async def stop(self) -> None:
        """End it, wait until it is gone, and remove its directory."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        try:
            await asyncio.wait_for(self._gone(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._gone()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _gone(self) -> None:
        while self._process.poll() is None:  # noqa: ASYNC110  - nothing tells us; the kernel is asked
            await asyncio.sleep(0.02)


def notes() -> Path:
    """The folder in which sandboxes that were left behind are remembered, each in a note of its own."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "hcs"


def remember(held: Held) -> None:
    """Remember a sandbox that was left behind; the others that are remembered stay so."""
    path = _note(held)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(held))


def recall() -> list[Held]:
    """The remembered sandboxes that still run; of two that were started at once each is remembered.

    Stale notes are removed, with all that their sandboxes have left.
    """
    every = []
    for path in sorted(notes().glob("sandbox-*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            every.append(msgspec.json.decode(path.read_bytes(), type=Held))
    return forget([held for held in every if not held.alive], [held for held in every if held.alive])


def end(ending: Sequence[Held], *, poll: Callable[[Held], None]) -> None:
    """End remembered sandboxes and remove all they left; ``poll`` is called while waiting for one of them."""
    for held in ending:
        if held.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(held.pid, signal.SIGTERM)
    for held in ending:
        while held.alive:
            poll(held)
    forget(ending)


def forget(gone: Sequence[Held], stay: Sequence[Held] = ()) -> list[Held]:
    """Remove notes and directories, and what was changed in kubeconfigs where nobody who stays changed it too.

    The context of before is known to the first who changed a kubeconfig; the others found the sandbox's own there. So
    those who stay inherit it.

    Returns:
        Those who stay, as they are remembered now.
    """
    left = list(stay)
    for config in {held.kubeconfig_changed for held in gone} - {""}:
        alike = (held for held in gone if held.kubeconfig_changed == config)
        before = next((held.context_before for held in alike if held.context_before is not None), None)
        heirs = [place for place, held in enumerate(left) if held.kubeconfig_changed == config]
        if not heirs:
            remove_context(Path(config), CONTEXT, before)
        for place in heirs:
            if left[place].context_before is None and before is not None:
                left[place] = msgspec.structs.replace(left[place], context_before=before)
                remember(left[place])
    for held in gone:
        _note(held).unlink(missing_ok=True)
        shutil.rmtree(held.directory, ignore_errors=True)
    return left


def _note(held: Held) -> Path:
    return notes() / f"sandbox-{Path(held.directory).name.removeprefix('hcs-sandbox-')}.json"
