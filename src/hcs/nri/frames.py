"""The two layers under NRI, without any I/O: many connections in one stream, and ttrpc in each of them.

The multiplexer puts eight bytes before each payload: connection and length. ttrpc puts ten before each message: length,
stream, type, flags. A payload is never longer than 4096 bytes, because the runtime reads one with a buffer of that size
and drops the connection on a longer one. Cuts may fall anywhere, so both layers are read as streams of bytes.

Sources: ``pkg/net/multiplex`` of containerd/nri, ``PROTOCOL.md`` of containerd/ttrpc (both Apache-2.0).
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

PLUGIN: Final = 1
"""The connection on which the runtime calls us."""
RUNTIME: Final = 2
"""The connection on which we call the runtime."""
MAX_PAYLOAD: Final = 4096
MAX_FRAME: Final = 64 << 20
"""A sanity limit when reading. containerd 1.7 sends its whole Synchronize in one message, however large."""
REQUEST: Final = 1
RESPONSE: Final = 2

_MUX: Final = struct.Struct(">II")
_TTRPC: Final = struct.Struct(">IIBB")


class FrameError(ValueError):
    """Bytes that are not what the protocol says; the connection is of no more use."""


class Message(msgspec.Struct, frozen=True):
    """One ttrpc message: ``kind`` 1 asks, 2 answers with the same ``stream``."""

    stream: int
    kind: int
    data: bytes


class Demultiplexer:
    """Turns what comes from the socket into the messages of each connection."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._streams: dict[int, bytearray] = {PLUGIN: bytearray(), RUNTIME: bytearray()}

    def feed(self, received: bytes) -> Iterator[tuple[int, Message]]:
        """Take bytes in and give every message that is now whole, with its connection.

        Raises:
            FrameError: a connection that does not exist, a length nobody means, a kind that is neither question nor
                answer.
        """
        self._raw += received
        while len(self._raw) >= _MUX.size:
            connection, length = _MUX.unpack_from(self._raw)
            if connection not in self._streams or length > MAX_FRAME:
                raise FrameError(
                    f"expected a frame of connection 1 or 2, found connection {connection}, {length} bytes"
                )
            if len(self._raw) < _MUX.size + length:
                return
            stream = self._streams[connection]
            stream += self._raw[_MUX.size : _MUX.size + length]
            del self._raw[: _MUX.size + length]
            while (message := _take(stream)) is not None:
                yield connection, message


def encode(connection: int, message: Message) -> bytes:
    """The bytes of one message, in as many frames as it needs."""
    content = _TTRPC.pack(len(message.data), message.stream, message.kind, 0) + message.data
    parts = (content[start : start + MAX_PAYLOAD] for start in range(0, len(content), MAX_PAYLOAD))
    return b"".join(_MUX.pack(connection, len(part)) + part for part in parts)


def _take(stream: bytearray) -> Message | None:
    if len(stream) < _TTRPC.size:
        return None
    length, number, kind, _ = _TTRPC.unpack_from(stream)
    if kind not in (REQUEST, RESPONSE) or length > MAX_FRAME:
        raise FrameError(f"expected a question or an answer, found kind {kind}, {length} bytes")
    if len(stream) < _TTRPC.size + length:
        return None
    data = bytes(stream[_TTRPC.size : _TTRPC.size + length])
    del stream[: _TTRPC.size + length]
    return Message(number, kind, data)
