"""JSON and XML from tools, read as far as it goes: what is whole counts, what is cut off does not.

Both are flattened to paths, so that one table of names serves a tool's text and its documents. XML is scanned rather
than parsed: no entities of its own, no document that is all or nothing.
"""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Path = tuple[str, ...]
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SCALAR: Final = re.compile(r"(?:[^\s,\]}\"\\{\[:]+)(?=\s*[,\]}])")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BLANK: Final = re.compile(r"[\s,]*")
_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w.-]*)([^<>]*?)(/?)>|<!--.*?-->|<[!?][^>]*>", re.DOTALL)
_DEEPEST: Final = 40


def read_json(text: str) -> Any:
    """The first object or array in ``text``, with strings and bare words as text; None where there is none.

    Members that are not whole are left out. Of two members with one key the first stays.
    """
    start = re.search(r"[{\[]", text)
    return _value(text, start.start(), 0)[0] if start else None


def _value(text: str, at: int, depth: int) -> tuple[Any, int, bool]:
    """The value at a place, where it ends, and whether it was whole."""
    at = _skip(text, at)
    if depth > _DEEPEST or at >= len(text):
        return None, len(text), False
    if text[at] == "{":
        return _object(text, at + 1, depth)
    if text[at] == "[":
        return _array(text, at + 1, depth)
    if match := _STRING.match(text, at):
        return _unescaped(match.group(1)), match.end(), True
    if match := _SCALAR.match(text, at):
        return match.group(), match.end(), True
    return None, len(text), False


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int, bool]:
    found: dict[str, Any] = {}
    while True:
        at = _skip(text, at)
        if at < len(text) and text[at] == "}":
            return found, at + 1, True
        key = _STRING.match(text, at)
        if key is None:
            return found, len(text), False
        colon = re.compile(r"\s*:").match(text, key.end())
        if colon is None:
            return found, len(text), False
        value, at, whole = _value(text, colon.end(), depth + 1)
        if whole or isinstance(value, dict | list):
            found.setdefault(_unescaped(key.group(1)), value)
        if not whole:
            return found, len(text), False


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int, bool]:
    found: list[Any] = []
    while True:
        at = _skip(text, at)
        if at < len(text) and text[at] == "]":
            return found, at + 1, True
        if at >= len(text):
            return found, at, False
        value, at, whole = _value(text, at, depth + 1)
        if whole or isinstance(value, dict | list):
            found.append(value)
        if not whole:
            return found, len(text), False


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _unescaped(text: str) -> str:
    plain = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        sign = match.group(1)
        return chr(int(sign[1:], 16)) if len(sign) == 5 else plain.get(sign, sign)

    return _ESCAPE.sub(one, text) if "\\" in text else text


def flatten(value: Any, above: Path = ()) -> dict[Path, str]:
    """Objects within objects as path → text; names without blanks around them, lists left out."""
    found: dict[Path, str] = {}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            path = (*above, " ".join(str(key).split()))
            if isinstance(inner, Mapping):
                found |= {p: v for p, v in flatten(inner, path).items() if p not in found}
            elif isinstance(inner, str):
                found.setdefault(path, inner)
    return found


class Element:
    """An XML element: its name, its attributes' text, its children, and its text if it had an end."""

    __slots__ = ("attributes", "children", "tag", "text")

    def __init__(self, tag: str, attributes: str = "") -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element] = []
        self.text: str | None = None

    def walk(self) -> list[tuple[Path, str]]:
        """Path and text of everything below that has no children of its own."""
        found: list[tuple[Path, str]] = []
        self._collect((), found)
        return found

    def _collect(self, above: Path, found: list[tuple[Path, str]]) -> None:
        for child in self.children:
            path = (*above, child.tag)
            if child.children:
                child._collect(path, found)
            elif child.text is not None:
                found.append((path, child.text))

    def all(self, tag: str) -> Iterator["Element"]:
        """Every element of a name, at any depth."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.all(tag)


def read_xml(text: str) -> Element:
    """An element that holds whatever elements there are; an element without its end has no text of its own."""
    root = Element("")
    stack = [root]
    begun = 0
    for match in _TAG.finditer(text):
        closing, tag, attributes, empty = match.groups()
        if tag is None:
            continue
        if not closing:
            element = Element(tag, attributes)
            stack[-1].children.append(element)
            if empty:
                element.text = ""
            elif len(stack) <= _DEEPEST:
                stack.append(element)
            begun = match.end()
        elif tag == stack[-1].tag and len(stack) > 1:
            if not stack[-1].children:
                inner = text[begun : match.start()]
                stack[-1].text = html.unescape(inner) if "&" in inner else inner
            stack.pop()
        elif any(element.tag == tag for element in stack[1:]):
            while stack.pop().tag != tag:
                pass
    return root
