"""A client of micad: one connection, one request, one reply.

Every way to fail has a reason, and none looks like success: a daemon that is gone, a socket nobody listens on, silence,
a connection that ends without a marker, and a plain no with micad's own words.
"""

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Final

import msgspec

from hcs.mica.messages import (
    LAYOUTS,
    CreateMessage,
    Layout,
    Reply,
    Status,
    check_name,
    encode_control,
    encode_create,
    encode_set,
    read_reply,
    read_status,
)
from hcs.model.refusals import Refusal

MAX_REPLY: Final = 1 << 16
_CREATE_SOCKET: Final = "mica-create.socket"
_LINGER: Final = 0.2
"""Seconds to wait for more behind a marker: the text may contain one, and the daemon closes at once after the last."""
_UNLINK_SECONDS: Final = 2.0


class MicaError(Exception):
    """A request that did not succeed. ``refusal`` says why; ``reached`` whether micad itself said no."""

    def __init__(self, reason: str, message: str, *, reached: bool = False) -> None:
        super().__init__(message)
        self.refusal = Refusal(reason, message)
        self.reached = reached


class Limits(msgspec.Struct, frozen=True):
    """Seconds to wait for each receive; a start waits for the hypervisor, and one daemon thread serves everybody."""

    request: float = 10.0
    start: float = 30.0


class Mica:
    """The daemon behind a directory of sockets."""

    def __init__(
        self,
        directory: str = "/run/mica",
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        layout: Layout = LAYOUTS["current"],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            directory: where the daemon keeps its sockets.
            limits: how long to wait.
            layout: of create messages.
            pause: how to wait between looks at a file.
        """
        self._directory, self._limits, self._layout, self._pause = directory, limits, layout, pause

    def is_up(self) -> bool:
        """Whether the daemon's create socket exists; it may still be stale."""
        return os.path.exists(self._path(_CREATE_SOCKET))

    def has(self, name: str) -> bool:
        """Whether the daemon keeps a socket for this guest."""
        return os.path.exists(self._path(f"{name}.socket"))

    def check(self, message: CreateMessage) -> None:
        """Find out whether a guest's message can be sent whole, without sending it.

        Raises:
            RefusedError: it cannot.
        """
        encode_create(message, self._layout)

    def create(self, message: CreateMessage) -> None:
        """Make a guest known; it does not run yet.

        Raises:
            MicaError: it did not work.
            RefusedError: the message cannot be sent as it is; nothing was sent.
        """
        self._request(_CREATE_SOCKET, encode_create(message, self._layout), f"create {message.name}")

    def start(self, name: str) -> None:
        """Start a guest.

        Raises:
            MicaError: it did not work.
        """
        self._control(name, encode_control("start"), self._limits.start)

    def stop(self, name: str) -> None:
        """Stop a guest; its state is lost.

        Raises:
            MicaError: it did not work.
        """
        self._control(name, encode_control("stop"))

    def remove(self, name: str) -> None:
        """Make the daemon forget a guest, stopping it if need be, and wait until its socket is gone.

        Raises:
            MicaError: it did not work.
        """
        self._control(name, encode_control("rm"))
        waited = 0.0
        while self.has(name):  # the reply comes before the socket is removed
            if waited >= _UNLINK_SECONDS:
                raise MicaError("SocketLeft", f"micad removed {name} but not its socket; look at micad's log")
            self._pause(0.005)
            waited += 0.005

    def status(self, name: str) -> Status:
        """Ask how a guest is. Asking is also what makes the daemon notice that it has powered itself off.

        Raises:
            MicaError: it did not work, or the answer is no status line.
        """
        reply = self._control(name, encode_control("status"))
        status = read_status(reply.text, name)
        if status is None:
            raise MicaError("MalformedReply", f"micad's status of {name} cannot be read: {reply.text[:120]!r}")
        return status

    def set(self, name: str, key: str, value: str) -> None:
        """Change one resource of a running guest.

        Raises:
            MicaError: it did not work.
            RefusedError: the command cannot be sent whole; nothing was sent.
        """
        self._control(name, encode_set(key, value))

    def _control(self, name: str, raw: bytes, limit: float | None = None) -> Reply:
        check_name(name)
        return self._request(f"{name}.socket", raw, f"{raw.decode()} ({name})", limit)

    def _request(self, file: str, raw: bytes, what: str, limit: float | None = None) -> Reply:
        path = self._path(file)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(limit or self._limits.request)
            try:
                connection.connect(path)
                if connection.send(raw) != len(raw):  # a second write would be taken for another message
                    raise MicaError("ShortWrite", f"{what}: micad took a part of the message; it was not carried out")
                reply = _receive(connection, limit or self._limits.request)
            except TimeoutError as error:
                raise MicaError(
                    "NoAnswer",
                    f"{what}: micad did not answer within {limit or self._limits.request:g} s; whether it was carried "
                    "out is not known",
                ) from error
            except OSError as error:
                raise _unreachable(error, path, what) from error
        if reply is None:
            raise MicaError(
                "NoMarker", f"{what}: micad closed the connection without an answer; whether it was done is not known"
            )
        if not reply.success:
            reason = reply.text.strip() or "micad gave no reason; look at its log"
            raise MicaError("MicaFailed", f"{what}: {reason[:400]}", reached=True)
        return reply

    def _path(self, file: str) -> str:
        return os.path.join(self._directory, file)


def _receive(connection: socket.socket, limit: float) -> Reply | None:
    """Read until the peer closes, or a marker stands at the end and nothing follows."""
    received = b""
    while len(received) < MAX_REPLY:
        reply = read_reply(received)
        if reply is not None and not select.select([connection], [], [], min(_LINGER, limit))[0]:
            return reply
        with contextlib.suppress(ConnectionResetError):  # what it left unread does not undo its answer
            if piece := connection.recv(4096):
                received += piece
                continue
        break
    return read_reply(received)


def _unreachable(error: OSError, path: str, what: str) -> MicaError:
    if error.errno == errno.ECONNREFUSED:
        return MicaError("StaleSocket", f"{what}: nobody listens on {path}; micad died, restart it")
    if error.errno == errno.ENOENT:
        return MicaError("NoSocket", f"{what}: there is no {path}; micad is not running, or does not know the guest")
    if error.errno in (errno.EPIPE, errno.ECONNRESET):
        return MicaError(
            "NoMarker", f"{what}: micad closed the connection without an answer; whether it was done is not known"
        )
    return MicaError("Unreachable", f"{what}: {path}: {error.strerror or error}")
