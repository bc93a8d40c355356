"""Files that are data and nothing else: a line that says what follows and its SHA-256, then JSON.

A file from elsewhere can be wrong but cannot run anything, unlike a pickle. Bytes in, bytes out: opening files is the
edge's part.
"""

import hashlib
from typing import TypeVar

import msgspec

AGAIN = "train again with `hcs cpn train`"


class ModelFileError(ValueError):
    """A file that is not a predictor's, or not as it was written; the message says what to do."""


T = TypeVar("T")


class _Header(msgspec.Struct, frozen=True):
    format: str
    version: int
    sha256: str


def sealed(format: str, version: int, content: bytes) -> bytes:
    """The file's bytes for a content of one line."""
    header = msgspec.json.encode(_Header(format, version, hashlib.sha256(content).hexdigest()))
    return header + b"\n" + content + b"\n"


def opened(format: str, version: int, data: bytes) -> bytes:
    """The content of a file of this format and version whose checksum is right."""
    first, _, rest = data.partition(b"\n")
    header = read(first, _Header, "this is no predictor's file")
    if header.format != format or header.version != version:
        later = header.format == format and header.version > version
        raise ModelFileError(
            f"the file is {header.format[:40]} version {header.version}; this program reads {format} {version}; "
            + (f"it was written by a later version of this program: update it, or {AGAIN}" if later else AGAIN)
        )
    content = rest.removesuffix(b"\n")
    if hashlib.sha256(content).hexdigest() != header.sha256:
        raise ModelFileError(f"the checksum does not match: the file was cut or changed after it was written; {AGAIN}")
    return content


def read(raw: bytes, shape: type[T], otherwise: str) -> T:
    """JSON of some shape, whatever the bytes are.

    Raises:
        ModelFileError: they are something else; the message begins with ``otherwise``.
    """
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelFileError(f"{otherwise} ({error}); {AGAIN}") from error
