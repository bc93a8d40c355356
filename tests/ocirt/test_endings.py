"""The exit code a guest tells on its console."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hcs.ocirt.endings import Endings


@given(st.binary(max_size=40), st.integers(0, 255), st.binary(max_size=10), st.lists(st.integers(0, 80), max_size=6))
def test_the_sequence_is_taken_out_wherever_the_stream_is_cut(
    before: bytes, code: int, after: bytes, cuts: list[int]
) -> None:
    before, after = before.replace(b"\x1b", b""), after.replace(b"\x1b", b"")
    stream = before + b"\x1b]7770;exit=%d\x07" % code + after
    endings, shown = Endings(), b""
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for begin, end in itertools.pairwise(edges):
        shown += endings.feed(stream[begin:end])
    assert shown + endings.rest() == before + after
    assert endings.code == code


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_everything_else_passes_unchanged(pieces: list[bytes]) -> None:
    endings = Endings()
    shown = b"".join(endings.feed(piece) for piece in pieces) + endings.rest()
    assert shown == b"".join(pieces)
    assert endings.code is None


def test_a_beginning_that_comes_to_nothing_is_shown() -> None:
    endings = Endings()
    assert endings.feed(b"a\x1b]77") == b"a"
    assert endings.feed(b"71;title\x07b") == b"\x1b]7771;title\x07b"
