"""What the server refuses about pods, at creation and at every later write.

The rules are the ones our programs meet: resource amounts, images, names, and above all which fields may still change
on a bound, pending or gated pod. Texts follow ``samples/pod-validation-refusals.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hcs.sandbox.apiserver import quantities
from hcs.sandbox.apiserver.metadata import LABEL_MESSAGE, SUBDOMAIN_MESSAGE, is_label, is_subdomain, qualified_name
from hcs.sandbox.apiserver.pods import containers
from hcs.sandbox.apiserver.status import (
    Cause,
    JsonObject,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
Spec = dict[str, Any]


def validate_spec(spec: Spec, path: str = "spec") -> Iterator[Cause]:
    """Check a pod spec after defaults."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(f"{path}.volumes[{index}]", volume, volumes[:index])
    seen: set[str] = set()
    for place, container in containers(spec):
        place = path + place.removeprefix("spec")
        name = container.get("name", "")
        if not name:
            yield required(f"{place}.name")
        elif not is_label(name):
            yield invalid_value(f"{place}.name", name, LABEL_MESSAGE)
        elif name in seen:
            yield duplicate(f"{place}.name", name)
        seen.add(name)
        yield from _container(place, container, volumes)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy", ""), ("Always", "OnFailure", "Never"))
    for field in ("nodeName", "serviceAccountName", "runtimeClassName"):
        if spec.get(field) and not is_subdomain(spec[field]):
            yield invalid_value(f"{path}.{field}", spec[field], SUBDOMAIN_MESSAGE)
    gates: list[str] = []
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        yield from qualified_name(f"{path}.schedulingGates[{index}]", gate.get("name", ""))
        if gate.get("name") in gates:
            yield duplicate(f"{path}.schedulingGates[{index}]", gate["name"])
        gates.append(gate.get("name", ""))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator", "Equal") not in ("Exists", "Equal"):
            yield unsupported(f"{path}.tolerations[{index}].operator", toleration["operator"], ("Equal", "Exists"))
    for name in (spec.get("resources") or {}).get("requests") or ():
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            yield unsupported(f"{path}.resources.requests[{name}]", name, ("cpu", "hugepages-", "memory"))
            if name not in (spec["resources"].get("limits") or {}):
                yield required(f"{path}.resources.limits", "Limit must be set for non overcommitable resources")


def validate_create(object: JsonObject) -> Iterator[Cause]:
    """Rules that hold for a new pod only."""
    spec = object["spec"]
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _container(place: str, container: JsonObject, volumes: list[str]) -> Iterator[Cause]:
    image = container.get("image", "")
    if not image:
        yield required(f"{place}.image")
    elif image != image.strip():
        yield invalid_value(f"{place}.image", image, "must not have leading or trailing whitespace")
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield required(f"{place}.env[{index}].name")
        if variable.get("value") and variable.get("valueFrom"):
            yield invalid_value(f"{place}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty")
    mounted: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield Cause(
                f"{place}.volumeMounts[{index}].name", "FieldValueNotFound", f'Not found: "{mount.get("name", "")}"'
            )
        target = mount.get("mountPath", "")
        if not target:
            yield required(f"{place}.volumeMounts[{index}].mountPath")
        elif target in mounted:
            yield invalid_value(f"{place}.volumeMounts[{index}].mountPath", target, "must be unique")
        mounted.add(target)
    if container.get("imagePullPolicy") not in ("Always", "IfNotPresent", "Never"):
        choices = ("Always", "IfNotPresent", "Never")
        yield unsupported(f"{place}.imagePullPolicy", container.get("imagePullPolicy", ""), choices)
    yield from _resources(f"{place}.resources", container.get("resources") or {})


def _resources(place: str, resources: JsonObject) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in sorted(amounts.items()):
            field = f"{place}.{kind}[{name}]"
            yield from _resource_name(field, name)
            if quantities.value(amount) < 0:
                yield invalid_value(field, amount, "must be greater than or equal to 0")
            elif "/" in name and not quantities.is_countable(amount):
                yield invalid_value(field, amount, "must be an integer")
        if kind == "limits":
            continue
        for name, amount in sorted(amounts.items()):
            field = f"{place}.requests"
            if name not in limits:
                if "/" in name:
                    yield required(f"{place}.limits", "Limit must be set for non overcommitable resources")
            elif "/" in name and quantities.value(limits[name]) != quantities.value(amount):
                yield invalid_value(field, amount, f"must be equal to {name} limit of {limits[name]}")
            elif quantities.value(amount) > quantities.value(limits[name]):
                yield invalid_value(field, amount, f"must be less than or equal to {name} limit of {limits[name]}")


def _resource_name(field: str, name: str) -> Iterator[Cause]:
    if "/" not in name:
        if name not in _NATIVE and not name.startswith("hugepages-"):
            yield invalid_value(field, name, "must be a standard resource type or fully qualified")
            yield invalid_value(field, name, "must be a standard resource for containers")
    else:
        yield from qualified_name(field, name)


def _volume(place: str, volume: JsonObject, earlier: list[str]) -> Iterator[Cause]:
    name = volume.get("name", "")
    if not name:
        yield required(f"{place}.name")
    elif not is_label(name):
        yield invalid_value(f"{place}.name", name, LABEL_MESSAGE)
    elif name in earlier:
        yield duplicate(f"{place}.name", name)
    if len(set(volume) - {"name"}) > 1:
        yield forbidden_field(f"{place}.{sorted(set(volume) - {'name'})[1]}", "may not specify more than 1 volume type")
    if volume.get("hostPath") is not None and not volume["hostPath"].get("path"):
        yield required(f"{place}.hostPath.path")


def validate_update(new: JsonObject, old: JsonObject) -> Iterator[Cause]:
    """Which fields of a living pod may change; gated pods may also gain node selectors and affinity."""
    spec, before = new["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(before.get(field) or ()):
            yield forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    held_gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in held_gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield forbidden_field(f"spec.schedulingGates[{index}].name", why)
    yield from _tolerations(spec.get("tolerations") or [], before.get("tolerations") or [])
    yield from _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    if held_gates:
        yield from _selectors(spec, before)
    munged = _with_mutable_fields(spec, before, gated=bool(held_gates))
    if munged != before:
        changed = ", ".join(f"spec.{field}" for field in sorted(_differing(munged, before)))
        yield forbidden_field("spec", f"{_IMMUTABLE}\nchanged: {changed}")


def _with_mutable_fields(spec: Spec, before: Spec, *, gated: bool) -> Spec:
    munged: Spec = msgspec.json.decode(msgspec.json.encode(spec))
    for field in ("containers", "initContainers"):
        for container, held in zip(munged.get(field) or (), before.get(field) or (), strict=True):
            container["image"] = held.get("image")
    copied = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        copied.append("terminationGracePeriodSeconds")
    if gated:
        copied += ["nodeSelector", "affinity"]
    for field in copied:
        munged.pop(field, None)
        if field in before:
            munged[field] = before[field]
    return munged


def _differing(new: Spec, old: Spec) -> set[str]:
    return {field for field in {*new, *old} if new.get(field) != old.get(field)}


def _tolerations(new: list[JsonObject], old: list[JsonObject]) -> Iterator[Cause]:
    def kept(toleration: JsonObject) -> bool:
        plain = {**toleration, "tolerationSeconds": None}
        return any({**other, "tolerationSeconds": None} == plain for other in new)

    if not all(kept(toleration) for toleration in old):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_field("spec.tolerations", why)


def _deadline(new: int | None, old: int | None) -> Iterator[Cause]:
    if new is None and old is not None:
        yield invalid_value("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif new is not None and old is not None and new > old:
        yield invalid_value("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")


def _selectors(spec: Spec, before: Spec) -> Iterator[Cause]:
    """While gated: nodeSelector may gain keys, required node affinity may gain requirements inside its terms."""
    selector = spec.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid_value("spec.nodeSelector", selector, why)
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    new_terms, old_terms = _terms(spec), _terms(before)
    if not old_terms:
        return
    if len(new_terms) != len(old_terms):
        yield invalid_value(
            f"{path}.nodeSelectorTerms",
            new_terms,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        )
        return
    for index, (new, old) in enumerate(zip(new_terms, old_terms, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            if (new.get(field) or [])[: len(old.get(field) or [])] != (old.get(field) or []):
                why = "only additions are allowed (no mutations or deletions)"
                yield invalid_value(f"{path}.nodeSelectorTerms[{index}]", new, why)
    rest, held = ({k: v for k, v in (s.get("affinity") or {}).items() if k != "nodeAffinity"} for s in (spec, before))
    if rest != held:
        yield forbidden_field("spec.affinity", "only node affinity may change while a pod is gated")


def _terms(spec: Spec) -> list[JsonObject]:
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return list((affinity or {}).get("nodeSelectorTerms") or [])
