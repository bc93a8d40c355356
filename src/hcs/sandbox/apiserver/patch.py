"""The four patch types of the API server.

* JSON patch (RFC 6902, by the jsonpatch library) and JSON merge patch (RFC 7386);
* strategic merge patch for built-in kinds: lists merge by the keys below, with the directives kubectl sends
  (``$patch``, ``$setElementOrder``, ``$retainKeys``, ``$deleteFromPrimitiveList``); custom resources answer 415;
* apply patch, as a merge with associative lists. Field ownership is not kept: a field left out of a later apply stays.

Merge keys depend only on the field's name here. That is right for the kinds we serve and keeps the table short.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer
import msgspec

from hcs.sandbox.apiserver.status import ApiError, JsonObject, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name", "volumes": "name",
    "volumeMounts": "mountPath", "volumeDevices": "devicePath", "ports": "containerPort", "conditions": "type",
    "ownerReferences": "uid", "imagePullSecrets": "name", "hostAliases": "ip", "addresses": "type",
    "schedulingGates": "name", "topologySpreadConstraints": "topologyKey", "resourceClaims": "name", "podIPs": "ip",
    "webhooks": "name", "secrets": "name", "matchConditions": "name", "variables": "name",
}  # fmt: skip
_MERGED_PRIMITIVES = {"finalizers"}


def apply_json_patch(document: JsonObject, patch: Any) -> JsonObject:
    """Apply RFC 6902 operations. Raises ApiError 400 for something else, 422 for a patch that does not fit."""
    if not isinstance(patch, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    try:
        result: Any = jsonpatch.JsonPatch(patch).apply(document, in_place=False)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError):
        message = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", message, {}) from None
    changed: JsonObject = result
    return changed


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """Apply an RFC 7386 merge patch; null removes."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_strategic_patch(document: JsonObject, patch: JsonObject) -> JsonObject:
    """Apply a strategic merge patch to a built-in kind. Raises ApiError 400 when a list item lacks its merge key."""
    return _merge_map(document, patch, directives=True)


def apply_configuration(document: JsonObject, wish: JsonObject, *, list_keys: bool) -> JsonObject:
    """Merge an applied configuration; ``list_keys`` says whether lists merge by key or are replaced."""
    if list_keys:
        return _merge_map(document, wish, directives=False)
    merged: JsonObject = apply_merge_patch(document, wish)
    return merged


def _merge_map(current: JsonObject, patch: JsonObject, *, directives: bool) -> JsonObject:
    if directives and patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(current)
    retained = patch.get("$retainKeys") if directives else None
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    orders: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if directives and key.startswith("$"):
            word, _, field = key.partition("/")
            if word == "$setElementOrder":
                orders[field] = value
            elif word == "$deleteFromPrimitiveList":
                result[field] = [item for item in result.get(field) or [] if item not in value]
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            if directives and value.get("$patch") == "delete":
                result.pop(key, None)
                continue
            held = result.get(key)
            result[key] = _merge_map(held if isinstance(held, dict) else {}, value, directives=directives)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key) or [], value, directives=directives)
        else:
            result[key] = value
    for field in sorted({*orders, *patch}) if directives else ():
        if isinstance(result.get(field), list) and (field in _MERGE_KEYS or field in _MERGED_PRIMITIVES):
            result[field] = _ordered(field, result[field], orders.get(field) or patch[field], current.get(field) or [])
    return result


def _merge_list(field: str, current: list[Any], patch: list[Any], *, directives: bool) -> list[Any]:
    if field in _MERGED_PRIMITIVES:
        return current + [item for item in patch if item not in current]
    key = _MERGE_KEYS.get(field)
    if key is None or any(not isinstance(item, dict) for item in [*patch, *current]):
        return [item for item in patch if not (isinstance(item, dict) and set(item) == {"$patch"})]
    if directives and {"$patch": "replace"} in patch:
        return [item for item in patch if item != {"$patch": "replace"}]
    result = list(current)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {msgspec.json.encode(item).decode()} does not contain declared merge key: {key}")
        place = next((i for i, held in enumerate(result) if held.get(key) == item[key]), None)
        if directives and item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif directives and item.get("$patch") == "replace":
            fresh = {k: v for k, v in item.items() if k != "$patch"}
            result[place if place is not None else len(result) :][:1] = [fresh]
        elif place is None:
            result.append(_merge_map({}, item, directives=directives))
        else:
            result[place] = _merge_map(result[place], item, directives=directives)
    return result


def _ordered(field: str, items: list[Any], order: list[Any], live: list[Any]) -> list[Any]:
    """Order a merged list: the patch's items in the patch's order, the others woven in as they lived."""
    key = _MERGE_KEYS.get(field)

    def identity(item: Any) -> Any:
        return item.get(key) if isinstance(item, dict) and key else item

    wanted, lived = [identity(item) for item in order], [identity(item) for item in live]
    named = sorted((i for i in items if identity(i) in wanted), key=lambda item: wanted.index(identity(item)))
    others = [item for item in items if identity(item) not in wanted]
    woven: list[Any] = []
    while named and others:
        left, right = identity(others[0]), identity(named[0])
        before = left in lived and right in lived and lived.index(left) < lived.index(right)
        woven.append((others if before else named).pop(0))
    return woven + named + others


def decode_patch(content_type: str, body: bytes) -> Any:
    """Decode a patch body. Raises ApiError 400."""
    if content_type == APPLY_PATCH:
        import yaml  # only server-side apply speaks YAML

        try:
            found = yaml.safe_load(body)
            msgspec.json.encode(found)  # YAML has values that JSON has not: halves of characters, sets
        except (yaml.YAMLError, UnicodeError, TypeError, ValueError, RecursionError) as error:
            raise bad_request(f"error decoding YAML: {error}") from None
        return found
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from None
