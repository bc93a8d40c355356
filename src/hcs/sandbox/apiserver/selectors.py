"""Label and field selectors: which objects a list or a watch means.

Parsed once per request into a predicate. Promises: the grammar of kubectl (``a=b,c!=d,e in (x,y),!f``), and a refusal
with the server's words for fields that the kind does not index (the closed list below, plus metadata.name and
namespace).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import ApiError, JsonObject, bad_request

Predicate = Callable[[JsonObject], bool]
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
        "status.podIP", "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "jobs": ("status.successful",),
    "secrets": ("type",),
}  # fmt: skip
_REGARDING = {"regarding." + name: "involvedObject." + name for name in ("kind", "namespace", "name", "uid")}
_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_LABEL_KEY = re.compile(r"^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")


def label_requirements(text: str) -> list[Callable[[JsonObject], bool]]:
    """Parse a label selector into tests on a label map. Raises ApiError 400."""
    tests: list[Callable[[JsonObject], bool]] = []
    for part in _split(text):
        found = _SET.match(part)
        if found:
            key, word, values = found.group(1), found.group(2), {v.strip() for v in found.group(3).split(",")}
            test = _is_in(key, values) if word == "in" else _not_in(key, values)
        elif "!=" in part:
            key, _, value = part.partition("!=")
            test = _not_in(key.strip(), {value.strip()})
        elif "=" in part:
            key, _, value = part.replace("==", "=", 1).partition("=")
            test = _is_in(key.strip(), {value.strip()})
        elif part.startswith("!"):
            key = part[1:]
            test = _lacks(key.strip())
        else:
            key = part
            test = _has(key.strip())
        if not _LABEL_KEY.match(key.strip()):
            raise bad_request(
                f"unable to parse requirement: <nil>: Invalid value: {key.strip()!r}: name part must match"
            )
        tests.append(test)
    return tests


def matches_selector(selector: JsonObject | None, labels: JsonObject) -> bool:
    """Whether labels satisfy a LabelSelector object (``matchLabels``, ``matchExpressions``); an empty one takes all."""
    if not selector:
        return True
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], set(expression.get("values") or ())
        test = {"In": _is_in(key, values), "NotIn": _not_in(key, values), "Exists": _has(key)}.get(
            expression["operator"], _lacks(key)
        )
        if not test(labels):
            return False
    return True


def predicate(resource: Resource, labels: str, fields: str) -> Predicate | None:
    """One test for both selectors, or None when everything is meant. Raises ApiError 400."""
    label_tests = label_requirements(labels)
    field_tests = list(_field_tests(resource, fields))
    if not label_tests and not field_tests:
        return None

    def test(object: JsonObject) -> bool:
        held = object["metadata"].get("labels") or {}
        return all(check(held) for check in label_tests) and all(check(object) for check in field_tests)

    return test


def _field_tests(resource: Resource, text: str) -> Iterator[Predicate]:
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.storage_key.split(".")[0], ()))
    for part in _split(text):
        negative = "!=" in part
        name, _, value = part.replace("!=", "=", 1).replace("==", "=", 1).partition("=")
        if "=" not in part:
            raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
        name = _REGARDING.get(name.strip(), name.strip())
        if name not in allowed:
            detail = f"field label not supported: {name}"
            raise ApiError(400, "BadRequest", f"Unable to find {resource.api_version} {text!r}: {detail}")
        yield _field_test(name.split("."), value.strip().replace("\\,", ",").replace("\\=", "="), negative)


def _field_test(path: list[str], value: str, negative: bool) -> Predicate:
    def test(object: JsonObject) -> bool:
        found: Any = object
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        if path == ["source"] and isinstance(found, dict):
            found = found.get("component")
        spelled = str(found).lower() if isinstance(found, bool) else ("" if found is None else str(found))
        if path == ["spec", "unschedulable"]:
            spelled = spelled or "false"
        return (spelled == value) is not negative

    return test


def _split(text: str) -> list[str]:
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _is_in(key: str, values: set[str]) -> Predicate:
    return lambda labels: key in labels and labels[key] in values


def _not_in(key: str, values: set[str]) -> Predicate:
    return lambda labels: key not in labels or labels[key] not in values


def _has(key: str) -> Predicate:
    return lambda labels: key in labels


def _lacks(key: str) -> Predicate:
    return lambda labels: key not in labels
