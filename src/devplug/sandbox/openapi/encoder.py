"""The API server's encoder: the one form in which an object of a kind is kept and answered.

What stands in a field with the zero value of its type is left out, unless the field is a pointer or always
written; fields that nobody knows are gone (Go's encoding/json: `omitempty`). The kinds of DRA are kept and
answered so; objects of other kinds stay as they are, except those that were read from protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.openapi.types import TYPES, Form, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.types import Field, Type

_EMPTY: Final[tuple[object, ...]] = ("", 0, False, [], {})
_ZEROS: Final = {
    "IntOrString": 0,
    "MicroTime": None,
    "Quantity": "0",
    "RawExtension": None,
    "ResourceList": None,
    "Time": None,
    "bool": False,
    "int32": 0,
    "int64": 0,
}
"""The zero values that are no empty text."""

_STRUCTS: Final = TYPES.keys() | {"IntOrString", "MicroTime", "Quantity", "RawExtension", "Time"}
"""The types that are Go structs, which `omitempty` never leaves out."""


def encoded(resource: Resource, one: Object) -> Object:
    """Return an object as it is kept and answered."""
    type_ = type_of(resource)
    return one if type_ is None or not type_.is_exact else dict(_fields(one, type_, everywhere=False))


def as_go_writes(type_: Type, one: Object) -> Object:
    """Return an object of any type as a Go client writes it in JSON."""
    return dict(_fields(one, type_, everywhere=True))


def _fields(one: Object, type_: Type, *, everywhere: bool) -> Iterator[tuple[str, object]]:
    for key, field in type_.fields.items():
        value = one.get(key)
        is_struct = field.form is Form.ONE and not field.mark and field.type in _STRUCTS
        if value is not None:
            written = _field(value, field, everywhere=everywhere)
            is_kept = is_struct or (field.required and field.mark != "-")
            is_kept = is_kept or (field.mark in {"?", "+"} and field.form is Form.ONE)
            if is_kept or written not in _EMPTY:
                yield key, written
            elif field.mark == "+":
                yield key, None
        elif field.mark == "+":
            yield key, None
        elif is_struct or (field.required and not field.mark):
            yield (
                key,
                _value(None, field.type, everywhere=everywhere) if field.form is Form.ONE else None,
            )


def _field(value: object, field: Field, *, everywhere: bool) -> object:
    match field.form:
        case Form.LIST if isinstance(value, list):
            return [_value(inner, field.type, everywhere=everywhere) for inner in value]
        case Form.MAP if isinstance(value, dict):
            return {key: _value(inner, field.type, everywhere=everywhere) for key, inner in value.items()}
        case Form.ONE:
            return _value(value, field.type, everywhere=everywhere)
    return value


def _value(value: object, type_: str, *, everywhere: bool) -> object:
    found = TYPES.get(type_)
    if found is None:
        return _ZEROS.get(type_, "") if value is None else value
    inner = {} if value is None else value
    is_written = everywhere or found.is_exact
    return (
        dict(_fields(inner, found, everywhere=everywhere))
        if is_written and isinstance(inner, dict)
        else inner
    )
