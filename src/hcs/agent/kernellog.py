"""The kernel's log as it is written: Xids, PCIe errors and Ascend faults within milliseconds.

Reads ``/dev/kmsg`` from its end on, without ever waiting: the event loop says when there is something. A burst that
overruns the kernel's buffer loses the oldest lines, which the next read says; what was lost is shown by the cards'
counters. Where the device cannot be opened, nothing is followed, and :attr:`KernelLog.problem` says why.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from typing import Final

from hcs.vendors.parsing.kernel_log import Event, event_of

log = logging.getLogger(__name__)

DEVICE: Final = "/dev/kmsg"
_LINE_BYTES: Final = 8192
_AT_ONCE: Final = 1000
"""Records read before the event loop gets its turn."""


class KernelLog:
    """Follows the kernel's log and tells of each fault in it."""

    def __init__(self, seen: Callable[[Event], None], *, device: str = DEVICE) -> None:
        """Prepare.

        Args:
            seen: called for each fault, in the event loop.
            device: the log, or a named pipe with lines of the same form.
        """
        self._seen, self._device = seen, device
        self._file: int | None = None
        self.problem = ""
        self.lost = 0
        """How often lines were overwritten before they were read."""

    def start(self) -> bool:
        """Begin to follow the log; must be called in the event loop. False where it cannot be read."""
        try:
            self._file = os.open(self._device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if self._device == DEVICE:
                os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self.problem = f"{self._device}: {error.strerror}"
            log.warning("kernel log not followed: %s", self.problem)
            return False
        asyncio.get_running_loop().add_reader(self._file, self._read)
        return True

    def stop(self) -> None:
        """Follow it no longer."""
        if self._file is not None:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _read(self) -> None:
        assert self._file is not None
        for _ in range(_AT_ONCE):
            try:
                record = os.read(self._file, _LINE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten; the next read gives what is left
                    self.lost += 1
                    continue
                self.problem = f"{self._device}: {error.strerror}"
                self.stop()
                return
            if not record:
                return
            for line in record.decode("utf-8", "replace").split("\n"):
                event = event_of(line)
                if event is not None:
                    self._seen(event)
