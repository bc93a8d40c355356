"""Files that are data and nothing else: a line that says what follows and its SHA-256, then JSON.

A file from elsewhere can be wrong but cannot run anything, unlike a pickle. Bytes in, bytes out: opening files is the
edge's part.
"""

import hashlib

import msgspec

AGAIN = "train again with `hcs cpn train`"


class ModelFileError(ValueError):
    """A file that is not a predictor's, or not as it was written; the message says what to do."""


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
    try:
        header = msgspec.json.decode(first, type=_Header)
    except msgspec.DecodeError as error:
        raise ModelFileError(f"this is no predictor's file ({error}); {AGAIN}") from error
    if header.format != format or header.version != version:
        raise ModelFileError(
            f"the file is {header.format} version {header.version}; this program reads {format} {version}; {AGAIN}"
        )
    content = rest.removesuffix(b"\n")
    if hashlib.sha256(content).hexdigest() != header.sha256:
        raise ModelFileError(f"the checksum does not match: the file was cut or changed after it was written; {AGAIN}")
    return content
