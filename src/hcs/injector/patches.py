"""The JSON Patch that turns one pod into another (RFC 6902).

Whole fields of ``metadata`` and ``spec`` are written, never parts of lists: a general differ looks for short patches
and finds moves and copies between list items, which are hard to read in an audit log and not always right. Adding to
an object's member replaces it, so every operation holds whether or not the field was there.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operations, at most one a field of each top-level object; empty when nothing changed."""
    return [
        operation
        for section in dict.fromkeys((*before, *after))
        if before.get(section) != after.get(section)
        for operation in _section(section, before.get(section), after.get(section))
    ]


def _section(name: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield _operation(name, after)
        return
    for field in dict.fromkeys((*before, *after)):
        if before.get(field) != after.get(field):
            yield _operation(f"{name}/{_escaped(field)}", after.get(field))


def _operation(path: str, value: Any) -> dict[str, Any]:
    return {"op": "remove", "path": f"/{path}"} if value is None else {"op": "add", "path": f"/{path}", "value": value}


def _escaped(field: str) -> str:
    return field.replace("~", "~0").replace("/", "~1")
