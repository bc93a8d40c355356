"""A tracepoint's lines from a trace instance of our own: what is left where BPF programs may not be loaded.

An instance has its own buffer and its own switches, so nobody else's tracing is disturbed; it is taken away at the end.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class TracePipe:
    """One enabled tracepoint and the lines it has written. Close it when done."""

    def __init__(self, tracefs: Path, group: str, name: str) -> None:
        """Make the instance and enable the tracepoint in it.

        Raises:
            OSError: no such tracepoint, or it is not allowed.
        """
        self._instance = tracefs / "instances" / f"hcs-{os.getpid()}-{name}"
        self._instance.mkdir(exist_ok=True)
        self._rest = b""
        self._pipe = -1
        try:
            (self._instance / "events" / group / name / "enable").write_text("1")
            self._pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Readable while lines wait; for ``asyncio.loop.add_reader``."""
        return self._pipe

    def lines(self) -> Iterator[str]:
        """The lines that wait; each is taken out."""
        while True:
            try:
                data = os.read(self._pipe, 65536)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)

    def close(self) -> None:
        """Take the instance away."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        with contextlib.suppress(OSError):
            self._instance.rmdir()
