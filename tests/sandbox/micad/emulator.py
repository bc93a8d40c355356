"""An emulated micad for tests: in a thread, or as a process that can be killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.waiting import SECONDS

from hcs.sandbox.micad.daemon import Daemon
from hcs.sandbox.micad.domains import recorded

ECHO = """#!/bin/sh
echo "booted $MICA_GUEST"
while read -r line; do
  case "$line" in
    exit*) exit ${line#exit } ;;
    *) echo "got $line" ;;
  esac
done
"""
"""Firmware that answers: a real program, run by the emulated hypervisor."""


class Micad:
    """One emulated daemon and its directories, short enough for socket paths."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="micad-"))
        self.sockets, self.state = self.home / "run", self.home / "hv"
        self.state.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._left: set[int] = set()

    def firmware(self, text: str = ECHO, name: str = "firmware.elf") -> Path:
        """A firmware file."""
        path = self.home / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def faults(self, *rules: dict[str, Any]) -> None:
        """Let things go wrong from now on; nothing without rules."""
        partial = self.state / "faults.new"
        partial.write_text(json.dumps(rules))
        partial.replace(self.state / "faults.json")

    def commands(self, prefix: str = "set") -> list[str]:
        """What was asked of the daemon, in order."""
        return [line for line in recorded(self.state, "request") if line.startswith(prefix)]

    def xl(self) -> list[str]:
        """The commands the hypervisor was given."""
        return recorded(self.state, "xl")

    def begin(self) -> None:
        """Start it as a process."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hcs.sandbox.micad", "--directory", str(self.sockets)),
                *("--state", str(self.state), "--console-delay", "0.02", "--boot-seconds", "0.2"),
            ],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().endswith(b"ready\n")

    def kill(self) -> None:
        """Kill it; its guests go on and its sockets stay, stale."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._left |= self._guests()  # the next daemon knows nothing of them
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def close(self) -> None:
        """End it, and every guest it ever left behind."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
        for pid in self._left | self._guests():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def _guests(self) -> set[int]:
        """Processes of the guests that the present or last daemon runs."""
        try:
            return {domain["pid"] for domain in json.loads((self.state / "domains.json").read_text())}
        except FileNotFoundError:
            return set()


@contextlib.contextmanager
def in_thread(**options: Any) -> Iterator[Micad]:
    """An emulated daemon in a thread."""
    micad = Micad()
    daemon = Daemon(micad.sockets, state=micad.state, links=micad.state / "dev", console_delay=0.01, **options)
    ending = threading.Event()
    thread = threading.Thread(target=daemon.serve, args=(ending,), daemon=True)
    thread.start()
    try:
        yield micad
    finally:
        ending.set()
        thread.join(10)
        daemon.close()
        micad.close()


@contextlib.contextmanager
def as_process() -> Iterator[Micad]:
    """An emulated daemon as a process."""
    micad = Micad()
    try:
        micad.begin()
        yield micad
    finally:
        micad.close()


def until(condition: Callable[[], object]) -> None:
    """Look again and again until a condition holds; its failure is the test's."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
