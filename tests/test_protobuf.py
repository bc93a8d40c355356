"""Messages made from a table mean the same as the other side's bytes, and unknown fields do no harm."""

import pytest
from tests.protobuf import Fields, read_map, string_map, text, texts, write

from hcs.protobuf import define

TABLE = {
    "Inner": {"name": "1 string", "big": "2 int64"},
    "Outer": {"words": "1 repeated string", "inner": "2 Inner", "many": "3 repeated Inner", "labels": "4 map"},
}


def test_fields_are_read_by_number() -> None:
    fields: Fields = [
        (1, "a"),
        (1, "b"),
        (2, [(1, "x"), (2, -5), (99, "unknown")]),
        (3, [(1, "y")]),
        (77, 12),
        *string_map(4, {"k": "v"}),
    ]
    message = define("test", TABLE)["Outer"].FromString(write(fields))
    assert list(message.words) == ["a", "b"]
    assert (message.inner.name, message.inner.big) == ("x", -5)
    assert [inner.name for inner in message.many] == ["y"]
    assert dict(message.labels) == {"k": "v"}


def test_what_is_written_is_found_by_number() -> None:
    messages = define("test", TABLE)
    content = messages["Outer"](words=["a"], labels={"k": "v"}, inner=messages["Inner"](name="x")).SerializeToString()
    assert texts(content, 1) == ["a"]
    assert read_map(content, 4) == {"k": "v"}
    assert text(content, 2) == "\n\x01x"


def test_presence_is_meaning() -> None:
    message = define("test", TABLE)["Outer"].FromString(b"")
    assert not message.HasField("inner")


def test_a_type_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="field name of Wrong has no type 'strin'"):
        define("test", {"Wrong": {"name": "1 strin"}})
