"""Loading a vendor's library, and calling it so that a missing function is an unknown figure."""

import ctypes
from typing import Any


def load(*names: str) -> ctypes.CDLL | None:
    """The first of these libraries that is there; None where none is."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def call(library: Any, function: str, *arguments: Any) -> int | None:
    """Call a function that returns a status; None where this release of the library has none of that name."""
    try:
        target = getattr(library, function)
    except AttributeError:
        return None
    target.restype = ctypes.c_int
    return int(target(*arguments))


def text(buffer: Any) -> str | None:
    """A C string; None where it is empty."""
    found = bytes(buffer).split(b"\0", 1)[0].decode("utf-8", "replace").strip()
    return found or None
