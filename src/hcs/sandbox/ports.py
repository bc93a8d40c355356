"""Ports of loopback that stay ours: chosen before a program starts, and still free when it listens, or listens again.

A port that was merely found free is anybody's until somebody listens on it, and a control plane opens hundreds of
connections while it starts. So each port is bound here, without listening, for as long as it is wanted: the kernel
gives it to no connection, and a program that sets SO_REUSEADDR, as servers do, can listen on it all the same.
"""

import socket


class HeldPorts:
    """Ports of 127.0.0.1."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self) -> int:
        """A port that nobody has.

        Raises:
            OSError: there is none.
        """
        held = socket.socket()
        self._sockets.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port

    def release(self) -> None:
        """Give all of them back."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()
