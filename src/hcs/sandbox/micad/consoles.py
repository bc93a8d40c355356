"""A guest's console: a pts with echo on, as the daemon leaves it, a link to it, and a pump to and from the guest."""

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

PIECE = 256
"""Bytes of input that reach a guest at once."""


class Console:
    """One running guest's console."""

    def __init__(self, link: Path, reader: int, writer: int, *, delay: float, ended: Callable[[], int]) -> None:
        """Open the pts and begin to pump; the link appears after ``delay`` seconds.

        Args:
            link: where the link to the pts goes.
            reader: what the guest says.
            writer: what the guest hears.
            delay: seconds until the guest announces its terminal.
            ended: waits for the guest's end and gives its status.
        """
        self.link = link
        self._reader, self._writer, self._ended = reader, writer, ended
        self._master, self._slave = os.openpty()
        self._woken, self._wake = os.pipe()
        self._closed = threading.Event()
        self._announcing = threading.Lock()
        self.announced = threading.Event()
        self._timer = threading.Timer(delay, self._announce)
        self._timer.daemon = True
        self._timer.start()
        self._threads = [threading.Thread(target=pump, daemon=True) for pump in (self._from_guest, self._to_guest)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Take the console away."""
        with self._announcing:
            self._closed.set()
        self._timer.cancel()
        if self.announced.is_set():
            self.link.unlink(missing_ok=True)
        # The numbers of closed files are given to others at once, so nobody may still look at them.
        os.write(self._wake, b"!")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1.0)
        for end in (self._slave, self._master, self._reader, self._writer, self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(end)

    def _announce(self) -> None:
        with self._announcing:
            if self._closed.is_set():
                return
            self.link.parent.mkdir(parents=True, exist_ok=True)
            self.link.unlink(missing_ok=True)
            self.link.symlink_to(os.ttyname(self._slave))
            self.announced.set()

    def _from_guest(self) -> None:
        import select

        while not self._closed.is_set():
            try:
                if self._reader not in select.select([self._reader, self._woken], [], [])[0]:
                    continue
                said = os.read(self._reader, 4096)
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                return
            if not said:
                self._tell_end()
                return
            self._show(said.replace(b"\n", b"\r\n"))

    def _tell_end(self) -> None:
        """The last thing an emulated guest says is how it ended, in the sequence that ``docs/rtos.md`` gives."""
        status = self._ended()
        if status >= 0:
            self._show(b"\x1b]7770;exit=%d\x07" % status)

    def _show(self, raw: bytes) -> None:
        while raw and not self._closed.is_set():
            try:
                raw = raw[os.write(self._master, raw) :]
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    return

    def _to_guest(self) -> None:
        import select

        while not self._closed.is_set():
            try:
                if self._master not in select.select([self._master, self._woken], [], [])[0]:
                    continue
                heard = os.read(self._master, PIECE)
                if heard:
                    os.write(self._writer, heard)
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                return
