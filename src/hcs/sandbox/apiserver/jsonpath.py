"""The JSONPath subset of printer columns.

Known steps: ``.spec.a``, ``.b['x.y/z']``, ``.c[0]``, ``.c[*].d``, ``.c[?(@.type=="Ready")].status``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

_STEP = re.compile(
    r"""\.(?P<name>(?:[A-Za-z0-9_\-/]|\\\.)+)"""
    r"""|\[['"](?P<quoted>[^'"]+)['"]\]"""
    r"""|\[(?P<index>-?\d+)\]"""
    r"""|(?P<every>\[\*\]|\.\*)"""
    r"""|\[\?\(@\.(?P<field>[A-Za-z0-9_.\-]+)\s*(?P<test>==|!=)\s*['"]?(?P<value>[^'")]*)['"]?\)\]"""
)


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[dict[str, str], ...]:
    steps, position = [], 0
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if path and path[0] not in ".[":
        path = "." + path
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise ValueError(f"cannot read JSONPath {path!r} at {path[position:]!r}")
        steps.append({kind: text for kind, text in found.groupdict().items() if text is not None})
        position = found.end()
    return tuple(steps)


def find(document: Any, path: str) -> list[Any]:
    """Every value a path means; absent fields give nothing. Raises ValueError for a path outside the subset."""
    values = [document]
    for step in _steps(path):
        values = [item for value in values for item in _follow(value, step)]
    return values


def _follow(value: Any, step: dict[str, str]) -> list[Any]:
    if "name" in step or "quoted" in step:
        key = step.get("quoted") or step["name"].replace("\\.", ".")
        return [value[key]] if isinstance(value, dict) and value.get(key) is not None else []
    if "every" in step:
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    if not isinstance(value, list):
        return []
    if "index" in step:
        index = int(step["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    equal = step["test"] == "=="
    return [item for item in value if (step["value"] in map(text, find(item, "." + step["field"]))) is equal]


def text(value: Any) -> str:
    """A value as a cell shows it."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
