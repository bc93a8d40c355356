"""A checksum behind every record, since sqlite checks the structure of its pages and not what they hold.

A record is text with its CRC-32 in hexadecimal on a line of its own behind it, so it stays readable in any tool.
"""

import zlib
from typing import Final

_WIDTH: Final = 9


def seal(raw: bytes) -> bytes:
    """A record with its checksum.

    >>> seal(b"{}")
    b'{}\\na3a6bf43'
    """
    return raw + b"\n" + _sum(raw)


def unseal(record: bytes) -> bytes:
    """The record without its checksum.

    Raises:
        ValueError: the checksum is missing or another one.
    """
    raw, line = record[:-_WIDTH], record[-_WIDTH:]
    if line != b"\n" + _sum(raw):
        raise ValueError("its checksum is wrong")
    return raw


def _sum(raw: bytes) -> bytes:
    return b"%08x" % zlib.crc32(raw)
