"""Indented ``key : value`` text, as ``nvidia-smi -q`` and its imitators print it.

A key is known by the headings above it, not by its place in the text, so the same word under another heading is another
fact. The same key twice under the same headings with different values is nobody's.
"""

import re

from hcs.vendors.parsing.documents import Path


def sections(text: str, begins: re.Pattern[str]) -> tuple[str, list[tuple[re.Match[str], str]]]:
    """Split text at the lines that ``begins`` matches: what comes before, and each match with what follows it."""
    found = [match for match in begins.finditer(text) if not _before(text, match.start()).strip()]
    if not found:
        return text, []
    ends = [match.start() for match in found[1:]] + [len(text)]
    return text[: found[0].start()], [(match, text[match.end() : end]) for match, end in zip(found, ends, strict=True)]


def flatten(text: str) -> dict[Path, str]:
    """Path of headings and key → value."""
    found: dict[Path, str] = {}
    stack: list[tuple[int, Path]] = []
    conflicts: set[Path] = set()
    for line in text.expandtabs(8).split("\n"):
        rest = line.lstrip(" ")
        if not rest:
            continue
        indent = len(line) - len(rest)
        key, value = _split(rest)
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = (*stack[-1][1], key) if stack else (key,)
        stack.append((indent, path))
        if value is not None and found.setdefault(path, value) != value:
            conflicts.add(path)
    return {path: value for path, value in found.items() if path not in conflicts} if conflicts else found


def pairs(text: str) -> list[tuple[str, str]]:
    """Every ``key : value`` in order, whatever its headings."""
    split = (_split(line.strip()) for line in text.split("\n"))
    return [(key, value) for key, value in split if key and value is not None]


def _split(line: str) -> tuple[str, str | None]:
    """A key and its value; a heading has none. The colon stands behind a blank, before one, or at the end."""
    at = line.find(" :")
    if at < 0:
        at = line.find(": ")
        if at < 0:
            return _plain(line.rstrip().removesuffix(":")), "" if line.rstrip().endswith(":") else None
        return _plain(line[:at]), line[at + 2 :].strip()
    return _plain(line[:at]), line[at + 2 :].strip()


def _plain(key: str) -> str:
    return " ".join(key.split()) if "  " in key or key[-1:] == " " else key


def _before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at]
