"""Protobuf messages from a table of field numbers, for the interfaces of container runtimes and kubelets.

Those interfaces are public descriptions whose field numbers are facts; the tables beside their users hold the part we
use, and everything else is skipped when read. So there is no generated code to keep in step with a library, and no
compiler is needed.

A field is written ``"NUMBER TYPE"``: ``string``, ``bytes``, ``bool``, ``int32``, ``int64``, ``uint32``, ``uint64``,
the name of a message of the table, ``repeated`` before any of these, or ``map`` for strings by strings.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

_SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}

Messages = Mapping[str, Any]
"""Message classes by name. They are made at run time, so their fields have no static types: turn them into values of
our own where they come in."""


def define(package: str, table: Mapping[str, Mapping[str, str]]) -> Messages:
    """Make message classes.

    Args:
        package: the protobuf package.
        table: for each message its fields, as ``{name: "NUMBER TYPE"}``.

    Raises:
        ValueError: a field that cannot be read, or names a type that is not there.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, text in fields.items():
            _add_field(message, package, field, text, table.keys())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}


def _add_field(message: DescriptorProto, package: str, name: str, text: str, known: Any) -> None:
    number, *words = text.split()
    field = message.field.add(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    if words == ["map"]:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for place, part in enumerate(("key", "value"), start=1):
            entry.field.add(name=part, number=place, type=_SCALARS["string"], label=FieldDescriptorProto.LABEL_OPTIONAL)
        words = ["repeated", f"{message.name}.{entry.name}"]
        known = {words[1]}
    if words[0] == "repeated":
        field.label = FieldDescriptorProto.LABEL_REPEATED
        words = words[1:]
    (kind,) = words
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in known:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        raise ValueError(f"field {name} of {message.name} has no type {kind!r}")
