"""What becomes of null: the API server's decoder reads it as the zero value of its type, and so do we.

Who reads objects can then count on lists without null in them (encoding/json decode.go literalStore).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.openapi.notation import Form
from devplug.sandbox.openapi.types import TYPES, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.openapi.notation import Field

__all__ = ["with_zeros"]

_ZEROS: Final[Mapping[str, object]] = {
    "IntOrString": 0,
    "Quantity": "0",
    "bool": False,
    "int32": 0,
    "int64": 0,
}
"""The zero values that are no empty text."""

_TOLD_AS_NULL: Final = frozenset({"FieldsV1", "MicroTime", "Time"})
"""The types whose zero value is null in JSON too."""


def with_zeros(resource: Resource, one: Object) -> Object:
    """Return an object without null: a field is not there, and an element is the zero value of its type.

    Times stay null. What is of another type than it should be stays as it is.
    """
    type_ = type_of(resource)
    return one if type_ is None else _struct(one, TYPES[type_.name].fields)


def _struct(one: Object, known: Mapping[str, Field]) -> Object:
    return {
        key: _field(value, known[key]) if key in known else value
        for key, value in one.items()
        if value is not None or (key in known and known[key].type in _TOLD_AS_NULL)
    }


def _field(value: object, field: Field) -> object:
    if field.form is Form.LIST and isinstance(value, list):
        return [_value(inner, field.type) for inner in value]
    if field.form is Form.MAP and isinstance(value, dict):
        return {key: _value(inner, field.type) for key, inner in value.items()}
    return _value(value, field.type) if field.form is Form.ONE else value


def _value(value: object, type_: str) -> object:
    if type_ in _TOLD_AS_NULL:
        return value
    if type_ == "ResourceList":
        if isinstance(value, dict):
            return {key: "0" if inner is None else inner for key, inner in value.items()}
        return {} if value is None else value
    if found := TYPES.get(type_):
        if value is None:
            return {}
        return _struct(value, found.fields) if isinstance(value, dict) else value
    return _ZEROS.get(type_, "") if value is None else value
