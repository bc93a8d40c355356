"""Runs ``hcs demo`` as a person would, in a place of its own, and looks for what it leaves behind."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

SECONDS = 60.0


class Place:
    """A temporary, home and working directory that only one run knows."""

    def __init__(self, folder: Path) -> None:
        self.temporary, self.home, self.working = folder / "t", folder / "h", folder / "w"
        for made in (self.temporary, self.home, self.working):
            made.mkdir()

    def environment(self) -> dict[str, str]:
        """What the run inherits."""
        hidden = {"KUBECONFIG", "XDG_STATE_HOME"}
        kept = {key: value for key, value in os.environ.items() if key not in hidden}
        if "PYTHONPATH" in kept:  # may be relative, and the run has another working directory
            kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
        return {**kept, "TMPDIR": str(self.temporary), "HOME": str(self.home), "PYTHONUNBUFFERED": "1"}

    def sandboxes(self) -> list[Path]:
        """The directories of sandboxes, while they exist."""
        return sorted(self.temporary.glob("hcs-sandbox-*"))

    def processes(self) -> dict[int, str]:
        """Living processes that have our temporary directory in their command line or environment."""
        mark, found = os.fsencode(self.temporary), {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark in command or mark in environment:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def files(self) -> list[Path]:
        """All that was written and not removed."""
        return sorted(path for root in (self.temporary, self.home, self.working) for path in root.rglob("*"))


@contextmanager
def place() -> Iterator[Place]:
    """A place with a short name, for the paths of sockets may not be long; cleared in the end whatever happened."""
    folder = Path(tempfile.mkdtemp(prefix="hcs-", dir="/tmp"))
    here = Place(folder)
    try:
        yield here
    finally:
        for pid in here.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def started(here: Place, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """``hcs demo`` in a session of its own, as a terminal runs it; killed if the story ends before it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hcs",
        "demo",
        *arguments,
        cwd=here.working,
        env=here.environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def finish(process: asyncio.subprocess.Process, seconds: float = SECONDS) -> tuple[int, str, str]:
    """Wait for the end: status, standard output and standard error."""
    output, errors = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


def demo(here: Place, *arguments: str, seconds: float = SECONDS) -> tuple[int, str, str]:
    """Run ``hcs demo`` to its end."""

    async def run() -> tuple[int, str, str]:
        async with started(here, *arguments) as process:
            return await finish(process, seconds)

    return asyncio.run(run())


async def until_said(process: asyncio.subprocess.Process, words: str) -> None:
    """Wait until the story has come to these words."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        async for line in process.stdout:
            if words.encode() in line:
                return
    raise AssertionError(f"the story ended without {words!r}")


async def nothing_runs(here: Place, seconds: float) -> dict[int, str]:
    """Wait until no process is left, at most so long; those that are."""
    deadline = time.monotonic() + seconds
    while True:
        left = here.processes()
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)
