"""The API server's encoder: the one form in which an object of a kind is kept and answered.

What stands in a field with the zero value of its type is left out, unless the field is a pointer or always
written; fields that nobody knows are gone (Go's encoding/json: `omitempty`). Only the tables of DRA's kinds
tell of pointers; objects of other kinds stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.openapi.types import TYPES, Form, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.types import Field, Type

__all__ = ["encoded"]

_EMPTY: Final[tuple[object, ...]] = ("", 0, False, [], {})
_ZEROS: Final = {"Quantity": "0", "RawExtension": None, "Time": None, "bool": False, "int32": 0, "int64": 0}
"""The zero values that are no empty text."""


def encoded(resource: Resource, one: Object) -> Object:
    """Return an object as it is kept and answered."""
    type_ = type_of(resource)
    return one if type_ is None or not type_.is_exact else dict(_fields(one, type_))


def _fields(one: Object, type_: Type) -> Iterator[tuple[str, object]]:
    for key, field in type_.fields.items():
        value = one.get(key)
        is_struct = field.form is Form.ONE and field.type in TYPES and not field.mark
        if value is not None:
            written = _field(value, field)
            is_kept = field.required or is_struct or (field.mark and field.form is Form.ONE)
            if is_kept or written not in _EMPTY:
                yield key, written
            elif field.mark == "+":
                yield key, None
        elif field.mark == "+":
            yield key, None
        elif is_struct or (field.required and not field.mark):
            yield key, _value(None, field.type) if field.form is Form.ONE else None


def _field(value: object, field: Field) -> object:
    match field.form:
        case Form.LIST if isinstance(value, list):
            return [_value(inner, field.type) for inner in value]
        case Form.MAP if isinstance(value, dict):
            return {key: _value(inner, field.type) for key, inner in value.items()}
        case Form.ONE:
            return _value(value, field.type)
    return value


def _value(value: object, type_: str) -> object:
    found = TYPES.get(type_)
    if found is None:
        return _ZEROS.get(type_, "") if value is None else value
    inner = {} if value is None else value
    return dict(_fields(inner, found)) if found.is_exact and isinstance(inner, dict) else inner
