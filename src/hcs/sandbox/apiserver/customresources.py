"""Custom resource definitions: from the object people apply to resources that are served.

Promises: names are served as soon as the definition is stored (``Established``), a name taken by another definition
is not accepted (``NamesAccepted`` False), versions convert by changing ``apiVersion`` only, and a deleted definition
takes its objects with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hcs.sandbox.apiserver import expressions
from hcs.sandbox.apiserver.kinds import Column, CustomKind, Resource
from hcs.sandbox.apiserver.status import Cause, JsonObject, invalid_value, required, unsupported

_PREDEFINED = ("scale",)


def set_defaults(definition: JsonObject) -> None:
    """Fill in names and the conversion strategy."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def validate(new: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    """Check what a definition must hold, including that its CEL rules compile."""
    spec = new["spec"]
    names, versions = spec["names"], spec.get("versions") or []
    for field, value in (("spec.group", spec.get("group")), ("spec.names.plural", names.get("plural"))):
        if not value:
            yield required(field)
    if not names.get("kind"):
        yield required("spec.names.kind")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if new["metadata"].get("name") != expected:
        yield invalid_value("metadata.name", new["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group')
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value("spec.versions", "", "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        place = f"spec.versions[{index}].schema.openAPIV3Schema"
        structure = (version.get("schema") or {}).get("openAPIV3Schema")
        if structure is None:
            yield required(place, "schemas are required")
        else:
            if structure.get("type") != "object":
                yield invalid_value(f"{place}.type", structure.get("type", ""), "must be object at the root")
            yield from _rules(structure, place)
    if old is not None and old["spec"].get("scope") != spec.get("scope"):
        yield invalid_value("spec.scope", spec.get("scope"), "field is immutable")


def _rules(structure: JsonObject, place: str) -> Iterator[Cause]:
    for index, rule in enumerate(structure.get("x-kubernetes-validations") or ()):
        try:
            expressions.compile_text(rule.get("rule", ""))
        except expressions.ExpressionError as error:
            yield invalid_value(f"{place}.x-kubernetes-validations[{index}].rule", rule.get("rule", ""), str(error))
    for key, part in (structure.get("properties") or {}).items():
        yield from _rules(part, f"{place}.properties[{key}]")
    for key in ("items", "additionalProperties"):
        if isinstance(structure.get(key), dict):
            yield from _rules(structure[key], f"{place}.{key}")


def resources(definition: JsonObject) -> list[Resource]:
    """The served resources of a definition, the stored version first."""
    spec, names = definition["spec"], definition["spec"]["names"]
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=tuple(s for s in version.get("subresources") or {} if s not in _PREDEFINED),
            list_kind=names["listKind"],
            singular=names["singular"],
            generation=True,
            custom=CustomKind(definition["metadata"]["name"], _schema(version), _columns(version)),
        )
        for version in sorted(spec["versions"], key=lambda version: not version.get("storage"))
        if version.get("served", True)
    ]


def _schema(version: JsonObject) -> JsonObject:
    return dict((version.get("schema") or {}).get("openAPIV3Schema") or {})


def _columns(version: JsonObject) -> tuple[Column, ...]:
    columns = version.get("additionalPrinterColumns")
    if not columns:
        return (Column("Age", "date", ".metadata.creationTimestamp"),)
    return tuple(
        Column(c["name"], c["type"], c["jsonPath"], c.get("priority", 0), c.get("description", ""), c.get("format", ""))
        for c in columns
    )


def conflicting_name(definition: JsonObject, served: Iterable[Resource]) -> str:
    """A sentence about a name that another resource of the group holds already, or an empty string."""
    spec = definition["spec"]
    names = spec["names"]
    for resource in served:
        owner = resource.custom.definition if resource.custom else ""
        if resource.group != spec["group"] or owner == definition["metadata"]["name"]:
            continue
        if resource.kind == names["kind"]:
            return f'"{names["kind"]}" is already in use'
        taken = {resource.plural, resource.singular, *resource.short}
        for name in (names["plural"], names["singular"], *(names.get("shortNames") or ())):
            if name in taken:
                return f'"{name}" is already in use'
    return ""


def status(definition: JsonObject, conflict: str, now: str) -> JsonObject:
    """The status of a definition just stored: accepted and established at once, or refused for a name."""
    stored = next(version["name"] for version in definition["spec"]["versions"] if version.get("storage"))
    before = definition.get("status") or {}
    versions = list(before.get("storedVersions") or [])
    if stored not in versions:
        versions.append(stored)
    accepted = {
        "type": "NamesAccepted",
        "status": "False" if conflict else "True",
        "lastTransitionTime": now,
        "reason": "NameConflict" if conflict else "NoConflicts",
        "message": conflict or "no conflicts found",
    }
    established = {
        "type": "Established",
        "status": "False" if conflict else "True",
        "lastTransitionTime": now,
        "reason": "NotAccepted" if conflict else "InitialNamesAccepted",
        "message": "not all names are accepted" if conflict else "the initial names have been accepted",
    }
    held = {condition["type"]: condition for condition in before.get("conditions") or ()}
    conditions = []
    for condition in (accepted, established):
        old = held.get(condition["type"])
        conditions.append(old if old and old["status"] == condition["status"] else condition)
    names = before.get("acceptedNames", {"plural": "", "kind": ""}) if conflict else definition["spec"]["names"]
    return {"conditions": conditions, "acceptedNames": names, "storedVersions": versions}
