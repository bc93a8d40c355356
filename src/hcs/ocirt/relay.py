"""The relay: the process that stands for a guest. Its pid is the container's, its end the container's end.

It waits for ``start``, then carries bytes between the container's streams and the guest's console and asks micad how
the guest is, for that is the only way to learn of its end. It never decides that a guest has ended because the daemon
is silent: only after a time, or when a new daemon does not know the guest, it gives up, and says so.
"""

import contextlib
import errno
import os
import select
import signal
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from hcs.mica.client import Mica, MicaError
from hcs.mica.messages import Status
from hcs.ocirt.endings import Endings
from hcs.ocirt.journal import Journal

LOST: Final = 255
"""Exit code of a container whose guest cannot be found any more."""
_FIRST_LOOK: Final = 0.01
_STEP: Final = 0.05
_LOOK: Final = 0.5
_PIECE: Final = 4096
_PENDING: Final = 1 << 16
_AGAIN: Final = frozenset({errno.ENOENT, errno.ENXIO, errno.EIO, errno.EAGAIN})


class Orders(msgspec.Struct, frozen=True):
    """What a relay must know: its container's directory, its guest (empty for a pause container), and time limits in
    seconds; ``close_after`` is None for never.
    """

    directory: str
    guest: str
    close_after: float | None
    console_timeout: float
    daemon_grace: float


class Relay:
    """One guest's relay; :meth:`run` ends the process."""

    def __init__(self, orders: Orders, mica: Mica, journal: Journal, start: int) -> None:
        """Prepare.

        Args:
            orders: what to do.
            mica: the daemon.
            journal: where to say what went wrong.
            start: the FIFO in which one byte means that the guest has started.
        """
        self._orders, self._mica, self._journal, self._start = orders, mica, journal, start
        self._endings = Endings()
        self._console = -1
        self._pending = b""
        self._stdin_open = not _is_null(0)
        self._had_stdin = self._stdin_open
        self._stdin_left: float | None = None
        self._trouble: float | None = None
        self._began = 0.0
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._told_to_end = False

    def run(self) -> NoReturn:
        """Stand for the guest until it ends."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._end)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        code = LOST
        try:
            code = self._wait_for_start()
            if code < 0:
                code = self._carry()
        finally:
            with contextlib.suppress(OSError):
                _write(1, self._endings.rest())
            os._exit(code)

    def _end(self, *_: object) -> None:
        self._told_to_end = True

    def _wait_for_start(self) -> int:
        """-1 once the guest has started; the exit code where the container ends before, or has no guest."""
        while True:
            ready = select.select([self._start, self._woken], [], [])[0]
            if self._woken in ready:
                os.read(self._woken, _PIECE)
            if self._told_to_end:
                return self._asked() or 0
            if self._start in ready and os.read(self._start, 1) and self._orders.guest:
                return -1

    def _carry(self) -> int:
        self._began = time.monotonic()
        look, step = self._began, _FIRST_LOOK
        while True:
            now = time.monotonic()
            if now >= look:
                status = self._look(now)
                if isinstance(status, int):
                    return status
                if self._console < 0:
                    self._find_console(status, now)
                step = min(step * 1.5, _STEP) if self._console < 0 else _LOOK
                look = now + step
            self._close_if_left(now)
            if self._move(max(0.0, look - time.monotonic())):
                look = 0.0  # something says that the guest has ended: look at once

    def _look(self, now: float) -> Status | int | None:
        """The guest's status; None while the daemon is silent; the exit code once the guest has ended."""
        try:
            status = self._mica.status(self._orders.guest)
        except MicaError as error:
            return self._doubt(error, now)
        self._trouble = None
        if status.state in ("Offline", "Stopped", "Error"):
            self._drain()
            asked = self._asked()
            if asked is not None:
                return asked
            if self._endings.code is not None:
                return self._endings.code
            return 1 if status.state == "Error" else 0
        return status

    def _doubt(self, error: MicaError, now: float) -> int | None:
        if error.refusal.reason == "NoSocket" and self._mica.is_up():
            asked = self._asked()
            if asked is None:
                self._journal.note("error", f"micad does not know guest {self._orders.guest}: it was restarted")
            return LOST if asked is None else asked
        if self._trouble is None:
            self._trouble = now
            self._journal.note("warning", f"guest {self._orders.guest}: {error}")
        if now - self._trouble < self._orders.daemon_grace:
            return None
        self._journal.note("error", f"guest {self._orders.guest} given up: micad was silent for too long: {error}")
        return LOST

    def _find_console(self, status: Status | None, now: float) -> None:
        if status is None or not status.console or now - self._began > self._orders.console_timeout:
            return
        try:
            console = os.open(status.console, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _AGAIN:
                self._journal.note("error", f"console {status.console}: {error.strerror}")
            return
        with contextlib.suppress(termios.error):
            tty.setraw(console, termios.TCSANOW)  # at once: it echoes the guest's output back to it until then
            termios.tcflush(console, termios.TCOFLUSH)  # and what it has echoed shall not reach the guest
        self._console = console

    def _move(self, patience: float) -> bool:
        """Carry what is there, waiting for it at most so long; whether the guest seems to have ended."""
        reading, writing = [self._woken], []
        if self._console >= 0:
            reading.append(self._console)
            if self._pending:
                writing.append(self._console)
        if self._stdin_open and len(self._pending) < _PENDING:
            reading.append(0)
        ready, able, _ = select.select(reading, writing, [], min(patience, _LOOK))
        ended = False
        if self._woken in ready:
            os.read(self._woken, _PIECE)
            ended = True
        if self._console in ready:
            ended |= not self._hear()
        if 0 in ready:
            self._read_stdin()
        if self._console in able and self._pending:
            with contextlib.suppress(OSError):
                self._pending = self._pending[os.write(self._console, self._pending) :]
        return ended

    def _hear(self) -> bool:
        """Pass on what the guest says; False once it has said its last."""
        try:
            said = os.read(self._console, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            said = b""
        if not said:
            os.close(self._console)
            self._console = -1
            return False
        _write(1, self._endings.feed(said))
        return self._endings.code is None

    def _drain(self) -> None:
        while self._console >= 0:
            try:
                said = os.read(self._console, _PIECE)
            except OSError:
                return
            if not said:
                return
            _write(1, self._endings.feed(said))

    def _read_stdin(self) -> None:
        try:
            typed = os.read(0, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            typed = b""
        if typed:
            self._pending += typed
        else:
            self._stdin_open, self._stdin_left = False, time.monotonic()

    def _close_if_left(self, now: float) -> None:
        after = self._orders.close_after
        if after is None or not self._had_stdin or self._stdin_left is None or now - self._stdin_left < after:
            return
        self._stdin_left = None
        self._journal.note("info", f"guest {self._orders.guest} is stopped: its stdin side left {after:g} s ago")
        try:
            self._mica.stop(self._orders.guest)
        except MicaError as error:
            self._journal.note("error", f"guest {self._orders.guest} cannot be stopped: {error}")
            self._stdin_left = now

    def _asked(self) -> int | None:
        """The exit code that a ``kill`` has left for us."""
        try:
            return int((Path(self._orders.directory) / "exit").read_text())
        except (OSError, ValueError):
            return None


def spawn(
    orders: Orders, mica: Mica, journal: Journal, *, terminal: int = -1, prepare: Callable[[], None] = lambda: None
) -> int:
    """Make the relay a child of this process, with this process's streams or a terminal's, and wait until it listens.

    Args:
        orders: what to do.
        mica: the daemon.
        journal: where to say what went wrong.
        terminal: a pts that becomes its streams.
        prepare: run in the child first; what it raises ends the child.

    Returns:
        The relay's pid.

    Raises:
        OSError: it did not come up.
    """
    fifo = Path(orders.directory) / "start"
    os.mkfifo(fifo, 0o600)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.chdir("/")
            prepare()
            start = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
            if terminal >= 0:
                for stream in (0, 1, 2):
                    os.dup2(terminal, stream)
            _close_others({0, 1, 2, start, writer})
            relay = Relay(orders, mica, journal, start)
            os.write(writer, b"1")
            os.close(writer)
            relay.run()
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(writer, f"0{error}".encode()[:400])
        finally:
            os._exit(LOST)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read()
    if said[:1] != b"1":
        os.waitpid(pid, 0)
        raise OSError(f"the relay did not come up: {said[1:].decode(errors='replace') or 'it died'}")
    return pid


def open_terminal(size: tuple[int, int] | None) -> tuple[int, int]:
    """A raw terminal: its master, for the caller's console socket, and its slave, for the relay."""
    master, slave = os.openpty()
    tty.setraw(slave, termios.TCSANOW)
    if size is not None:
        with contextlib.suppress(termios.error, AttributeError):
            termios.tcsetwinsize(slave, size)
    return master, slave


def _close_others(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _is_null(stream: int) -> bool:
    """Whether a stream is closed or ``/dev/null``: then nobody ever had a stdin side."""
    try:
        return os.fstat(stream).st_rdev == os.stat("/dev/null").st_rdev
    except OSError:
        return True


def _write(stream: int, raw: bytes) -> None:
    while raw:
        try:
            raw = raw[os.write(stream, raw) :]
        except BlockingIOError:
            select.select([], [stream], [], 1.0)
        except OSError:
            return  # nobody reads any more; the guest goes on
