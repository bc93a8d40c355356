"""What is done to any tool's output before it is read.

Terminals' escape sequences and stray control characters go; lines end as they end anywhere. Text that does not end with
a line break may have been cut off in the middle of a figure, so of its last line only what is visibly whole is kept.
"""

import re
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
_CLOSED: Final = re.compile(r"[|)\]}>+=]\s*$|-{4,}\s*$")
_LAST: Final = re.compile(r"(?:.*[,:|\t]|.*\s\s)?\s*(.*)$", re.DOTALL)
_WHOLE: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?\s*(?:%|[CW]|MiB|GiB|MHz|GB/s|KB/s|us|℃|°C)")
_BIGGEST: Final = 16 * 1024 * 1024


def decode(data: bytes) -> str:
    """A file's bytes as text; what is no UTF-8 becomes a replacement character."""
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(encoding, "replace")
    return data.decode("utf-8-sig", "replace")


def clean(text: str) -> str:
    """The text without escape sequences, with ``\\n`` between lines and without what was cut off at its end."""
    text = _ESCAPES.sub("", text[:_BIGGEST]).replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", text).replace("\xa0", " ")
    head, separator, last = text.rpartition("\n")
    return head + separator + _settled(last)


def _settled(line: str) -> str:
    if not line.strip() or _CLOSED.search(line):
        return line
    match = _LAST.match(line)
    if match is None or _WHOLE.fullmatch(match.group(1).strip()):
        return line
    return line[: match.start(1)]
