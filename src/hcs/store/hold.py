"""The file beside a queue that says who writes it, and how many changes that writer was told are safe.

The kernel holds the lock for as long as the process lives, and gives it back however it ends. The number is written
after each change is on disk. Should the queue hold fewer changes than that when it is opened, some were lost: its
write-ahead log was damaged or removed, which sqlite by itself takes for a clean end, or an older copy was put back.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from hcs.store.errors import NotWritableError, StoreBusyError, StoreDamagedError

_WIDTH: Final = 40
"""Bytes of its one line: fixed, so that writing it again needs no room on a full disk."""


class Hold:
    """The right to write a queue, until :meth:`release`."""

    def __init__(self, queue: Path) -> None:
        """
        Raises:
            StoreBusyError: another process has it.
            NotWritableError: the file beside the queue cannot be made.
        """
        self.path = queue.with_name(queue.name + ".lock")
        self._queue = queue
        try:
            self._descriptor: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotWritableError(
                "QueueNotWritable", f"cannot make {self.path}: {error.strerror}; the queue needs a folder it may write"
            ) from error
        words = os.pread(self._descriptor, _WIDTH, 0).decode("ascii", "replace").split()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise StoreBusyError(
                "QueueInUse",
                f"process {words[0] if words else 'unknown'} writes {queue} already; a queue has one writer: end that "
                "one, or ask it over HTTP",
            ) from error
        self.told: int = int(words[1]) if len(words) == 2 and words[1].isdecimal() else 0

    def begin(self, changes: int) -> None:
        """Compare with what the queue holds, and put our name here.

        Raises:
            StoreDamagedError: it holds less than was told to be safe.
        """
        if changes < self.told:
            raise StoreDamagedError(
                "QueueLostChanges",
                f"{self._queue} holds {changes} changes, but {self.told} were written: its -wal file was damaged or "
                "removed, or an older copy was put back; put the newest files back, or remove "
                f"{self.path.name} to go on with what is there",
            )
        self.tell(changes)

    def tell(self, changes: int) -> None:
        """Note that so many changes are on disk."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # it is a means to notice loss, not one to prevent it
                os.pwrite(self._descriptor, f"{os.getpid()} {changes}".ljust(_WIDTH - 1).encode() + b"\n", 0)
            self.told = changes

    def release(self) -> None:
        """Let others write."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
