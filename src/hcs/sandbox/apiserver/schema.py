"""Structural schemas of custom resources: prune, default, validate.

Promises: the order of a real server (prune unknown fields, apply defaults, then validate types, enums, bounds,
patterns and CEL rules) and its messages. Only the keywords a structural schema may hold are known here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from hcs.sandbox.apiserver import expressions
from hcs.sandbox.apiserver.status import Cause, JsonObject, duplicate, invalid_value, required, unsupported
from hcs.sandbox.apiserver.wiretypes import is_time

Schema = dict[str, Any]
_BLOCKING = (
    "FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany",
)  # fmt: skip
_NOT_CHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def prune(value: Any, schema: Schema, path: str = "", *, root: bool = True) -> list[str]:
    """Remove fields the schema does not know, in place; returns their paths."""
    removed: list[str] = []
    if isinstance(value, dict):
        preserve = schema.get("x-kubernetes-preserve-unknown-fields", False)
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        embedded = root or schema.get("x-kubernetes-embedded-resource", False)
        for key in list(value):
            place = f"{path}.{key}" if path else key
            if key in properties:
                removed += prune(value[key], properties[key], place, root=False)
            elif embedded and key in ("apiVersion", "kind", "metadata"):
                continue
            elif isinstance(extra, dict):
                removed += prune(value[key], extra, place, root=False)
            elif not preserve and extra is not True:
                del value[key]
                removed.append(place)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            removed += prune(item, schema["items"], f"{path}[{index}]", root=False)
    return removed


def apply_defaults(value: Any, schema: Schema) -> None:
    """Fill in ``default`` values, in place. A null where none is allowed counts as absent."""
    if isinstance(value, dict):
        for key, part in (schema.get("properties") or {}).items():
            if value.get(key, ...) is None and not part.get("nullable"):
                del value[key]
            if key not in value and "default" in part:
                value[key] = _fresh(part["default"])
            if key in value:
                apply_defaults(value[key], part)
        if isinstance(extra := schema.get("additionalProperties"), dict):
            for key in value.keys() - (schema.get("properties") or {}).keys():
                apply_defaults(value[key], extra)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            apply_defaults(item, schema["items"])


def _fresh(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _fresh(item) for key, item in value.items()}
    return [_fresh(item) for item in value] if isinstance(value, list) else value


def validate(value: JsonObject, schema: Schema, old: JsonObject | None = None) -> list[Cause]:
    """Check an object that was pruned and defaulted; ``old`` is the object before, for transition rules.

    CEL rules are not evaluated on an object whose structure is broken; the list then ends with a cause that says so.
    """
    causes = list(_structure(value, schema, "", root=True))
    if any(cause.kind in _BLOCKING for cause in causes):
        return [*causes, Cause("<nil>", "FieldValueInvalid", _NOT_CHECKED)]
    return [*causes, *_rules(value, schema, "", old)]


def _structure(value: Any, schema: Schema, path: str, *, root: bool = False) -> Iterator[Cause]:
    place = path or "<nil>"
    if value is None:
        if not schema.get("nullable"):
            yield _wrong_type(place, "null", schema.get("type", ""))
        return
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield _wrong_type(place, _type_of(value), "integer,string")
            return
    elif kind and not _TYPES[kind](value):
        yield _wrong_type(place, _type_of(value), kind)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(place, value, schema["enum"])
    yield from _bounds(value, schema, place)
    if isinstance(value, dict):
        yield from _members(value, schema, path, root=root)
    elif isinstance(value, list):
        yield from _items(value, schema, path)
    yield from _combinations(value, schema, path)


def _members(value: JsonObject, schema: Schema, path: str, *, root: bool) -> Iterator[Cause]:
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    for key, part in _parts(value, schema):
        if not (root and key in ("apiVersion", "kind", "metadata")):
            yield from _structure(value[key], part, f"{path}.{key}" if path else key)


def _parts(value: JsonObject, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The members that are there, each with its schema."""
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    yield from ((key, part) for key, part in properties.items() if key in value)
    if isinstance(extra, dict):
        yield from ((key, extra) for key in value if key not in properties)


def _items(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = _identity(item, schema)
        if identity is not None and identity in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.append(identity)
        if isinstance(schema.get("items"), dict):
            yield from _structure(item, schema["items"], f"{path}[{index}]")


def _identity(item: Any, schema: Schema) -> Any:
    """What tells an item of a set or a keyed list from the others; None in plain lists."""
    if schema.get("x-kubernetes-list-type") == "set":
        return item
    if schema.get("x-kubernetes-list-type") == "map" and isinstance(item, dict):
        return {key: item.get(key) for key in schema.get("x-kubernetes-list-map-keys") or ()}
    return None


def _bounds(value: Any, schema: Schema, place: str) -> Iterator[Cause]:
    body = f"{place} in body"
    if isinstance(value, str):
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            yield Cause(place, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes")
        if "minLength" in schema and len(value) < schema["minLength"]:
            yield invalid_value(place, value, f"{body} should be at least {schema['minLength']} chars long")
        if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
            yield invalid_value(place, value, f"{body} should match '{schema['pattern']}'")
        if schema.get("format") == "date-time" and not is_time(value):
            message = f'Invalid value: "{value}": {body} must be of type date-time: "{value}"'
            yield Cause(place, "FieldValueTypeInvalid", message)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield invalid_value(place, value, f"{body} should be greater than or equal to {schema['minimum']}")
        if "maximum" in schema and value > schema["maximum"]:
            yield invalid_value(place, value, f"{body} should be less than or equal to {schema['maximum']}")
        if schema.get("exclusiveMinimum") is True and value == schema.get("minimum"):
            yield invalid_value(place, value, f"{body} should be greater than {schema['minimum']}")
        if "multipleOf" in schema and value % schema["multipleOf"]:
            yield invalid_value(place, value, f"{body} should be a multiple of {schema['multipleOf']}")
    elif isinstance(value, list):
        if "maxItems" in schema and len(value) > schema["maxItems"]:
            yield Cause(
                place, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
            )
        if "minItems" in schema and len(value) < schema["minItems"]:
            yield invalid_value(place, len(value), f"{body} should have at least {schema['minItems']} items")
    elif isinstance(value, dict):
        if "maxProperties" in schema and len(value) > schema["maxProperties"]:
            most = schema["maxProperties"]
            yield Cause(place, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items")
        if "minProperties" in schema and len(value) < schema["minProperties"]:
            yield invalid_value(place, len(value), f"{body} should have at least {schema['minProperties']} properties")


def _combinations(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    place = path or "<nil>"
    for part in schema.get("allOf") or ():
        yield from _structure(value, part, path)
    for word in ("anyOf", "oneOf"):
        parts = schema.get(word)
        fitting = sum(not any(_structure(value, part, path)) for part in parts or ())
        if parts and (fitting == 0 or (word == "oneOf" and fitting > 1)):
            yield invalid_value(
                place,
                "",
                f'"{path}" must validate {"at least" if word == "anyOf" else "one and only"} one schema ({word})',
            )
    if "not" in schema and not any(_structure(value, schema["not"], path)):
        yield invalid_value(place, "", f'"{path}" must not validate the schema (not)')


def _rules(value: Any, schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    """CEL rules of a value and of everything below it."""
    yield from _own_rules(value, schema, path, old)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, part in _parts(value, schema):
            yield from _rules(value[key], part, f"{path}.{key}" if path else key, before.get(key))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        held = [(_identity(item, schema), item) for item in old] if isinstance(old, list) else []
        for index, item in enumerate(value):
            identity = _identity(item, schema)
            match = next((other for known, other in held if identity is not None and known == identity), None)
            yield from _rules(item, schema["items"], f"{path}[{index}]", match)


def _own_rules(value: Any, schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    """``x-kubernetes-validations``: CEL over ``self``, and ``oldSelf`` in transition rules."""
    for rule in schema.get("x-kubernetes-validations") or ():
        transition = "oldSelf" in rule["rule"]
        if transition and old is None and not rule.get("optionalOldSelf"):
            continue
        scope = {"self": value, "oldSelf": old} if transition else {"self": value}
        field = (path + rule["fieldPath"]) if rule.get("fieldPath") else path or "<nil>"
        try:
            holds = expressions.evaluate(rule["rule"], scope)
        except expressions.ExpressionError as error:
            yield Cause(
                field,
                "FieldValueInvalid",
                f"Invalid value: {error} evaluating rule: {rule.get('message') or rule['rule']}",
            )
            continue
        if holds is not True:
            yield Cause(field, rule.get("reason", "FieldValueInvalid"), _rule_message(rule, scope, value))


def _rule_message(rule: JsonObject, scope: JsonObject, value: Any) -> str:
    text = rule.get("message") or f"failed rule: {rule['rule']}"
    if rule.get("messageExpression"):
        with contextlib.suppress(expressions.ExpressionError):  # as on a real server, the plain message stands in
            text = str(expressions.evaluate(rule["messageExpression"], scope))
    return _invalid_text(value, text)


def _invalid_text(value: Any, text: str) -> str:
    if isinstance(value, dict):
        return f"Invalid value: {text}"
    return invalid_value("", value, text).message


def _wrong_type(place: str, seen: str, wanted: str) -> Cause:
    message = f'Invalid value: "{seen}": {place} in body must be of type {wanted}: "{seen}"'
    return Cause(place, "FieldValueTypeInvalid", message)


def _type_of(value: Any) -> str:
    return "null" if value is None else next((name for name, test in _TYPES.items() if test(value)), "unknown")
