"""Indented ``key : value`` text, as ``nvidia-smi -q`` and its imitators print it.

A key is known by the headings above it, not by its place in the text, so the same word under another heading is another
fact. The same key twice under the same headings with different values is nobody's.
"""

import re
from typing import Final

from hcs.vendors.parsing.documents import Path

_PAIR: Final = re.compile(r"(\s*)(\S.*?)\s*(?:\s:|:\s|:$)\s*(.*)")
_HEADING: Final = re.compile(r"(\s*)(\S.*?)\s*")


def sections(text: str, begins: re.Pattern[str]) -> tuple[str, list[tuple[re.Match[str], str]]]:
    """Split text at the lines that ``begins`` matches: what comes before, and each match with what follows it."""
    found = list(begins.finditer(text))
    if not found:
        return text, []
    ends = [match.start() for match in found[1:]] + [len(text)]
    return text[: found[0].start()], [(match, text[match.end() : end]) for match, end in zip(found, ends, strict=True)]


def flatten(text: str) -> dict[Path, str]:
    """Path of headings and key → value."""
    found: dict[Path, str] = {}
    stack: list[tuple[int, str]] = []
    conflicts: set[Path] = set()
    for line in text.expandtabs(8).split("\n"):
        match = _PAIR.fullmatch(line) or _HEADING.fullmatch(line)
        if match is None:
            continue
        indent, key = len(match.group(1)), " ".join(match.group(2).split())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = (*(heading for _, heading in stack), key)
        stack.append((indent, key))
        if match.lastindex == 3:
            value = match.group(3).strip()
            if found.setdefault(path, value) != value:
                conflicts.add(path)
    return {path: value for path, value in found.items() if path not in conflicts}


def pairs(text: str) -> list[tuple[str, str]]:
    """Every ``key : value`` in order, whatever its headings."""
    found = (_PAIR.fullmatch(line) for line in text.split("\n"))
    return [(" ".join(match.group(2).split()), match.group(3).strip()) for match in found if match]
