"""google.protobuf as the referee of our codec: its verdict on bytes, and any message as plain tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from devplug.wire import deviceplugin, pluginregistration, podresources
from devplug.wire.protobuf import Field, Kind, Layout

FILES = descriptor_pb2.FileDescriptorSet.FromString(
    (Path(__file__).parent / "descriptors.binpb").read_bytes()
).file

_POOL = descriptor_pool.DescriptorPool()
for _file in FILES:
    _POOL.Add(_file)

_KINDS = {
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING: Kind.STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_BOOL: Kind.BOOL,
    descriptor_pb2.FieldDescriptorProto.TYPE_INT32: Kind.INT32,
    descriptor_pb2.FieldDescriptorProto.TYPE_INT64: Kind.INT64,
    descriptor_pb2.FieldDescriptorProto.TYPE_UINT64: Kind.UINT64,
}

Descriptor = Any
Tree = tuple[Any, ...]


def descriptor(name: str) -> Descriptor:
    """What protobuf knows of a message, by its name with the package."""
    return _POOL.FindMessageTypeByName(name)


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def plain(name: str) -> Layout[Tree]:
    """The layout that a message has by its .proto text, whose values are tuples of its fields."""
    fields = []
    for one in sorted(descriptor(name).fields, key=lambda field: field.number):
        if is_map(one):
            fields.append(Field(one.number, one.name, Kind.MAP))
        elif one.message_type is not None:
            inner = plain(one.message_type.full_name)
            fields.append(Field(one.number, one.name, Kind.MESSAGE, inner, one.is_repeated))
        else:
            kind = _KINDS[one.type]
            fields.append(
                Field(one.number, one.name, kind, None, one.is_repeated, is_optional=one.has_presence)
            )
    return Layout(name.rpartition(".")[2], fields, lambda value: value, lambda *parts: parts)


def tree(message: Any) -> Tree:
    """A message of protobuf as tuples."""
    found: list[Any] = []
    for one in sorted(message.DESCRIPTOR.fields, key=lambda field: field.number):
        value = getattr(message, one.name)
        if is_map(one):
            found.append(dict(value))
        elif one.is_repeated:
            found.append([tree(part) for part in value] if one.message_type else list(value))
        elif one.message_type is not None:
            found.append(tree(value) if message.HasField(one.name) else None)
        elif one.has_presence:
            found.append(value if message.HasField(one.name) else None)
        else:
            found.append(value)
    return tuple(found)


def verdict(name: str, content: bytes) -> Tree | None:
    """What protobuf takes bytes for; None if it refuses them."""
    message = message_factory.GetMessageClass(descriptor(name))()
    try:
        message.ParseFromString(content)
    except DecodeError:
        return None
    return tree(message)


def written(name: str, content: bytes) -> bytes:
    """What protobuf writes after it has read bytes, without what it does not know."""
    message = message_factory.GetMessageClass(descriptor(name)).FromString(content)
    message.DiscardUnknownFields()
    written_again: bytes = message.SerializeToString(deterministic=True)
    return written_again


APIS = {
    "v1beta1": deviceplugin.LAYOUTS,
    "pluginregistration": pluginregistration.LAYOUTS,
    "v1": podresources.LAYOUTS,
    "v1alpha1": podresources.V1ALPHA1_LAYOUTS,
}
NAMES = [f"{package}.{layout.name}" for package, layouts in APIS.items() for layout in layouts]
LAYOUTS = {f"{package}.{layout.name}": layout for package, layouts in APIS.items() for layout in layouts}


def without_maps(value: Any) -> Any:
    if isinstance(value, dict):
        return "a map"
    return [without_maps(part) for part in value] if isinstance(value, list | tuple) else value


def agree(ours: Tree | None, theirs: Tree | None, why: str) -> bool:
    """Whether two verdicts are the same, but for what is listed here.

    A field without a number: protobuf's C core passes over it; the specification and Go do not. An unknown
    field inside a pair of a map: it drops the pair; Go drops the field.
    """
    if why == "a field without a number":
        return True
    return ours == theirs or without_maps(ours) == without_maps(theirs) is not None
