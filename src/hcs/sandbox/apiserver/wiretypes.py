"""Built-in kinds have types: a field nobody knows is dropped, a value of the wrong type is refused.

A real server decodes into structs; one that kept whatever it is sent would hide misspelled fields until the day our
programs meet a real one. The types come from lightkube's models, generated from the published API.
"""

from __future__ import annotations

import importlib
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import JsonObject, bad_request

_ALWAYS_WRITTEN = {
    "PodCondition": ("lastProbeTime", "lastTransitionTime"),
    "NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"),
    "JobCondition": ("lastProbeTime", "lastTransitionTime"),
}  # fields a real server writes even when they are empty, as null
_GO_NAMES = {str: "string", bool: "bool", int: "int64", float: "float64"}


class Field(msgspec.Struct, frozen=True):
    """What one place in an object may hold."""

    kind: Any = None
    struct: type[msgspec.Struct] | None = None
    items: Field | None = None
    quantity: bool = False
    time: bool = False


@cache
def _struct(resource_type: str, kind: str) -> type[msgspec.Struct] | None:
    module = importlib.import_module(f"lightkube.models.{resource_type}")
    found: type[msgspec.Struct] | None = getattr(module, kind, None)
    return found


@cache
def _fields(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    notes = struct.__annotations__
    return {
        field.encode_name: _field(field.type, quantity="Quantity" in str(notes.get(field.name, "")))
        for field in msgspec.structs.fields(struct)
    }


def _field(annotation: Any, *, quantity: bool = False) -> Field:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        return _field(rest[0], quantity=quantity) if len(rest) == 1 else Field()
    if origin is list:
        return Field(list, items=_field(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return Field(dict, struct=annotation)
    if annotation is datetime:
        return Field(str, time=True)
    if annotation is dict or origin is dict:
        return Field(dict)
    return Field(annotation if annotation in _GO_NAMES else None, quantity=quantity)


def conform(resource: Resource, object: JsonObject) -> tuple[JsonObject, list[str]]:
    """The object without unknown fields and nulls, and the unknown fields' paths. Raises ApiError 400."""
    prefix = resource.group.partition(".")[0] or "core"
    struct = _struct(f"{prefix}_{resource.version}", resource.kind)
    if struct is None:
        return object, []
    unknown: list[str] = []
    try:
        return _conform_struct(object, struct, "", unknown), unknown
    except (TypeError, ValueError) as error:
        known = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{known}: {error}") from None


def _conform_struct(value: JsonObject, struct: type[msgspec.Struct], path: str, unknown: list[str]) -> JsonObject:
    fields = _fields(struct)
    result: JsonObject = {}
    for key, item in value.items():
        place = f"{path}.{key}" if path else key
        field = fields.get(key)
        if field is None:
            unknown.append(place)
        elif item is not None:
            result[key] = _conform(item, field, place, unknown, struct.__name__)
    for key in _ALWAYS_WRITTEN.get(struct.__name__, ()):
        result.setdefault(key, None)
    return result


def _conform(value: Any, field: Field, path: str, unknown: list[str], owner: str) -> Any:
    if field.kind is None or (field.quantity and _is(value, int)):
        return value
    if not _is(value, field.kind):
        plain = ".".join(part.partition("[")[0] for part in path.split("."))
        raise TypeError(
            f"json: cannot unmarshal {_seen(value)} into Go struct field {owner}.{plain} of type {_go_type(field)}"
        )
    if field.time and not is_time(value):
        raise ValueError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse it')
    if field.struct is not None:
        return _conform_struct(value, field.struct, path, unknown)
    if field.items is not None:
        return [_conform(item, field.items, f"{path}[{index}]", unknown, owner) for index, item in enumerate(value)]
    return value


def is_time(text: str) -> bool:
    """Whether a text is an RFC 3339 time with its zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _seen(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", list: "array", str: "string"}
    return names.get(type(value), "object")


def _go_type(field: Field) -> str:
    if field.struct is not None:
        return f"v1.{field.struct.__name__}"
    if field.items is not None:
        return f"[]{_go_type(field.items)}"
    return _GO_NAMES.get(field.kind, "map[string]string")
