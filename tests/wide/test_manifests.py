"""A manifest as somebody sent it: read as kubectl would, or refused with a place and a sentence; never a traceback."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.refusals import RefusedError
from hcs.wide.manifests import MAX_BYTES, check_plain, read_manifest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: 20", 20, id="whole"),
        pytest.param("a: '20'", "20", id="quoted"),
        pytest.param("a: 1e3", 1000.0, id="exponent"),
        pytest.param("a: .5", 0.5, id="no-leading-zero"),
        pytest.param("a: 0x10", 16, id="hexadecimal"),
        pytest.param("a: 1:30", "1:30", id="a-time-is-text-and-not-ninety"),
        pytest.param("a: 2030-01-31T18:00:00Z", "2030-01-31T18:00:00Z", id="a-moment-stays-as-written"),
        pytest.param("a: " + "9" * 5000, "9" * 5000, id="digits-without-end-stay-text"),
        pytest.param("a: yes", True, id="yes"),
        pytest.param("a: ~", None, id="nothing"),
        pytest.param("# c\n---\na: 1\n---\n", 1, id="empty-documents-around-it"),
        pytest.param('\ufeff{"a": [1, null]}', [1, None], id="json-with-a-mark"),
    ],
)
def test_values_are_read_as_they_were_meant(text: str, expected: Any) -> None:
    assert read_manifest(text.encode()) == {"a": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "NotAJob: the manifest is nothing", id="empty"),
        pytest.param("- 1", "NotAJob: the manifest is a list", id="list"),
        pytest.param("hello", "NotAJob: the manifest is a text", id="text"),
        pytest.param("a: 1\na: 2", "BrokenYaml: line 2, column 1: key 'a' stands twice", id="key-twice"),
        pytest.param('{"b": [{"a": 1, "a": 2}]}', "BrokenYaml: key 'a' stands twice", id="key-twice-in-json"),
        pytest.param("a: b: c", "BrokenYaml: line 1, column 5", id="broken"),
        pytest.param("\t- a", "BrokenYaml: line 1", id="tabulator"),
        pytest.param("a: &x [1]\nb: *x", "YamlAlias: line 2", id="alias"),
        pytest.param("a: " + "[" * 70 + "]" * 70, "TooDeep", id="deep"),
        pytest.param("[" * 100_000, "TooDeep", id="deep-and-open"),
        pytest.param("a: 1\n---\nb: 2", "SeveralDocuments: a second document begins at line 2", id="two-documents"),
        pytest.param("a: !!python/object:os.system x", "BrokenYaml.*constructor", id="object"),
        pytest.param("a: !!bool foo", "BrokenYaml: a value", id="tag-that-does-not-suit"),
        pytest.param("a: !!timestamp foo", "BrokenYaml: a value", id="another"),
        pytest.param("a: !!int ''", "BrokenYaml: a value", id="a-third"),
        pytest.param("a: !!binary aGk=", "BadValue: a is of type bytes", id="bytes"),
        pytest.param("a: !!timestamp 2020-01-01", "BadValue: a is of type date", id="date"),
        pytest.param("1: x", "BadValue: key 1 of the manifest is not text", id="key-that-is-a-number"),
        pytest.param("a: [{b: .nan}]", r"BadValue: a\[0\].b is nan", id="not-a-number"),
        pytest.param("a: 1e999", "BadValue: a is inf", id="endless"),
        pytest.param('a: "\\0"', "BadValue: a holds letters that are no text", id="nul"),
        pytest.param("x" * (MAX_BYTES + 1), f"TooLarge: the manifest has {MAX_BYTES + 1} bytes", id="large"),
        pytest.param("a: [" + "1," * 120_000 + "]", "TooLarge: the manifest has more than", id="many-parts"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read_manifest(text.encode())
    (refusal,) = refused.value.refusals
    assert re.match(expected, str(refusal)), refusal
    assert len(refusal.message) < 500


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(RefusedError, match="NotText: byte 3"):
        read_manifest(b"a: \xff")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2**63, "64 bits"), ("\ud800", "no text"), (float("inf"), "is inf"), (b"", "of type bytes"), ({1: 2}, "key 1")],
)
def test_data_that_no_json_holds_is_refused_whoever_built_it(value: Any, expected: str) -> None:
    with pytest.raises(RefusedError, match=expected):
        check_plain({"a": [value]})


@given(
    st.one_of(st.binary(max_size=200), st.text(alphabet="ab:-[]{}&*!#|>'\"\n \t~0.e%@`,?", max_size=80).map(str.encode))
)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        found = read_manifest(raw)
    except RefusedError:
        return
    check_plain(found)
