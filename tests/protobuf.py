"""Protobuf by hand, for the other side in tests: it shares no table of field numbers with the code it speaks to.

A message is a list of ``(number, value)``; a value is an ``int``, a ``bytes`` or another such list, a ``str`` counts as
its UTF-8. Read back, values are ``int`` or ``bytes``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Fields = list[tuple[int, Any]]


def write(fields: Fields) -> bytes:
    """Encode a message."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, bool | int):
            out += _varint(number << 3) + _varint(int(value) & (1 << 64) - 1)
        else:
            content = value.encode() if isinstance(value, str) else write(value) if isinstance(value, list) else value
            out += _varint(number << 3 | 2) + _varint(len(content)) + content
    return bytes(out)


def string_map(number: int, entries: Mapping[str, str]) -> Fields:
    """A map of strings is a repeated message of key and value."""
    return [(number, [(1, key), (2, value)]) for key, value in entries.items()]


def read(content: bytes) -> Fields:
    """Decode the top level of a message."""
    return list(_read(content))


def every(content: bytes, number: int) -> list[Any]:
    """All values of a field."""
    return [value for found, value in _read(content) if found == number]


def one(content: bytes, number: int) -> Any:
    """The last value of a field, None where it is absent."""
    found = every(content, number)
    return found[-1] if found else None


def text(content: bytes, number: int) -> str:
    """A string field; empty where it is absent."""
    found = one(content, number)
    return "" if found is None else found.decode()


def texts(content: bytes, number: int) -> list[str]:
    """A repeated string field."""
    return [value.decode() for value in every(content, number)]


def read_map(content: bytes, number: int) -> dict[str, str]:
    """A map of strings."""
    return {text(entry, 1): text(entry, 2) for entry in every(content, number)}


def _read(content: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(content):
        key, position = _read_varint(content, position)
        if key & 7 == 0:
            value: Any
            value, position = _read_varint(content, position)
        elif key & 7 == 2:
            length, position = _read_varint(content, position)
            value, position = content[position : position + length], position + length
            assert len(value) == length, "a field is cut off"
        else:
            raise AssertionError(f"wire type {key & 7} is not used by these interfaces")
        yield key >> 3, value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position
