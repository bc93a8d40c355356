"""Messages survive any cut, and no frame is ever longer than a runtime reads."""

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.nri.frames import MAX_PAYLOAD, PLUGIN, RUNTIME, Demultiplexer, FrameError, Message, encode

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([PLUGIN, RUNTIME]),
        st.builds(
            Message,
            stream=st.integers(1, (1 << 32) - 1),
            kind=st.sampled_from([1, 2]),
            data=st.binary(max_size=200) | st.just(b"x" * 4086) | st.just(b"y" * 4087) | st.just(b"z" * 9000),
        ),
    ),
    max_size=5,
)


def read(pieces: Iterable[bytes]) -> list[tuple[int, Message]]:
    frames = Demultiplexer()
    return [found for piece in pieces for found in frames.feed(piece)]


def frames_of(content: bytes) -> list[tuple[int, bytes]]:
    found = []
    while content:
        connection, length = struct.unpack(">II", content[:8])
        found.append((connection, content[8 : 8 + length]))
        content = content[8 + length :]
    return found


@given(MESSAGES, st.integers(1, 5000))
def test_what_is_written_is_read_back_however_it_is_cut(messages: list[tuple[int, Message]], cut: int) -> None:
    content = b"".join(encode(connection, message) for connection, message in messages)
    assert read(content[start : start + cut] for start in range(0, len(content), cut)) == messages
    assert all(len(part) <= MAX_PAYLOAD for _, part in frames_of(content))


def test_a_message_may_be_cut_into_frames_of_one_byte_between_those_of_another() -> None:
    first, second = Message(1, 1, b"question"), Message(1, 2, b"answer")
    parts = [encode(PLUGIN, first)[8:], encode(RUNTIME, second)[8:]]
    content = b""
    for place in range(max(map(len, parts))):
        for connection, part in zip((PLUGIN, RUNTIME), parts, strict=True):
            if place < len(part):
                content += struct.pack(">II", connection, 1) + part[place : place + 1]
    assert sorted(read([content])) == [(PLUGIN, first), (RUNTIME, second)]


def test_the_bytes_are_those_of_the_protocol() -> None:
    assert encode(RUNTIME, Message(3, 2, b"")).hex() == "000000020000000a00000000000000030200"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(struct.pack(">II", 0, 1) + b"x", id="reserved-connection"),
        pytest.param(struct.pack(">II", 3, 1) + b"x", id="unknown-connection"),
        pytest.param(struct.pack(">II", 1, 1 << 31), id="endless-frame"),
        pytest.param(struct.pack(">IIIIBB", 1, 10, 0, 1, 7, 0), id="unknown-kind"),
        pytest.param(struct.pack(">IIIIBB", 1, 10, 1 << 31, 1, 1, 0), id="endless-message"),
    ],
)
def test_bytes_that_nobody_means_end_the_connection(content: bytes) -> None:
    with pytest.raises(FrameError, match="expected"):
        read([content])
