"""What the API server's decoder says of an object before anybody judges what is in it.

The rules and the sentences are those of sigs.k8s.io/json, which the server of Kubernetes 1.36 decodes with
(internal/golang/encoding/json/decode.go, kubernetes_patch.go).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.kubelet.gotext import go_quoted
from devplug.kubelet.quantities import Quantity, QuantityError
from devplug.sandbox.openapi.gofaults import base64_fault, time_fault
from devplug.sandbox.openapi.notation import Field, Form
from devplug.sandbox.openapi.types import TYPES, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.types import Type

__all__ = ["FieldReport", "field_report"]

_MOST_UNKNOWN: Final = 100
"""So many are told at most (kubernetes_patch.go saveStrictError)."""

_GO_NAMES: Final[Mapping[str, str]] = {
    "Quantity": "resource.Quantity",
    "UID": "types.UID",
    "bool": "bool",
    "bytes": "[]uint8",
    "int32": "int32",
    "int64": "int64",
    "string": "string",
    "uint8": "uint8",
}
"""How Go names the plain types; the others are of a package `v1`."""

_BITS: Final = {"int32": 31, "int64": 63}


@dataclass(frozen=True, slots=True)
class FieldReport:
    """What a decoder found in one object."""

    unknown: tuple[str, ...] = ()
    """A sentence for each field that nobody knows, in the order of the object: `unknown field "spec.foo"`."""
    unreadable: str = ""
    """Why the object cannot be read at all, as in `json: cannot unmarshal …`; empty if it can be.

    The server puts in front what it is about: `Pod in version "v1" cannot be handled as a Pod: `.
    """


def field_report(resource: Resource, body: object) -> FieldReport:
    """Return what the decoder says of an object of a resource, `body` being its JSON.

    Of what the sandbox only refuses nothing is said. Fields that stand twice cannot be seen here any more.
    """
    type_ = type_of(resource)
    if type_ is None or body is None:
        return FieldReport((), "")
    decoder = _Decoder()
    try:
        decoder.value(body, Field("", type_.name, Form.ONE, required=True, embedded=""), "", ())
    except _StoppedError as stopped:
        return FieldReport((), str(stopped))
    unknown = tuple(f"unknown field {go_quoted(path)}" for path in decoder.unknown)
    return FieldReport(() if decoder.fault else unknown, decoder.fault)


class _StoppedError(Exception):
    """A type that decodes itself has refused a value, which ends the decoding."""


class _Decoder:
    """One walk through an object."""

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        self.fault = ""
        """The first value of a wrong type; the decoder goes on behind it."""
        self._struct = ""

    def value(self, value: object, field: Field, path: str, names: tuple[str, ...]) -> None:
        """Read what stands in a field; `path` leads to it, and `names` are the fields on the way."""
        if value is None:
            return
        if field.form is Form.ONE:
            self._one(value, field.type, path, names)
        elif field.form is Form.MAP:
            self._map(value, field.type, f"map[string]{_go_name(field.type)}", path, names)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                self._inner(inner, field.type, f"{path}[{index}]", names)
        else:
            self._mismatch(value, f"[]{_go_name(field.type)}", names)

    def _map(self, value: object, type_: str, go_type: str, path: str, names: tuple[str, ...]) -> None:
        if not isinstance(value, dict):
            self._mismatch(value, go_type, names)
            return
        for key, inner in value.items():
            self._inner(inner, type_, f"{path}.{key}", names)

    def _inner(self, value: object, type_: str, path: str, names: tuple[str, ...]) -> None:
        if value is not None:
            self._one(value, type_, path, names)

    def _one(self, value: object, type_: str, path: str, names: tuple[str, ...]) -> None:
        if found := TYPES.get(type_):
            self._struct_of(value, found, path, names)
        elif type_ in {"Quantity", "IntOrString", "Time", "MicroTime"}:
            self._of_itself(value, type_, names)
        elif type_ == "ResourceList":
            self._map(value, "Quantity", "v1.ResourceList", path, names)
        elif type_ == "bytes":
            self._bytes(value, names)
        elif type_ in _BITS or type_ == "uint8":
            self._number(value, type_, names)
        elif type_ == "FieldsV1" or isinstance(value, bool if type_ == "bool" else str):
            return
        else:
            self._mismatch(value, _go_name(type_), names)

    def _struct_of(self, value: object, type_: Type, path: str, names: tuple[str, ...]) -> None:
        if not isinstance(value, dict):
            self._mismatch(value, f"v1.{type_.go_name}", names)
            return
        before = self._struct
        for key, inner in value.items():
            step = f"{path}.{key}" if path else key
            field = type_.fields.get(key)
            if field is None:
                if len(self.unknown) < _MOST_UNKNOWN:
                    self.unknown[step] = None
                continue
            self._struct = type_.go_name
            embedded = (field.embedded,) if field.embedded else ()
            self.value(inner, field, step, (*names, *embedded, key))
            self._struct = before

    def _of_itself(self, value: object, type_: str, names: tuple[str, ...]) -> None:
        """Read a value of a type that decodes itself (`UnmarshalJSON`)."""
        fault = ""
        if type_ == "Quantity":
            fault = _quantity_fault(value)
        elif type_ == "IntOrString":
            if not isinstance(value, str) and not _fits(value, "int32"):
                fault = self._sentence(value, "int32", names)
        elif isinstance(value, str):
            fault = time_fault(type_, value)
        else:
            fault = self._sentence(value, "string", names)
        if fault:
            raise _StoppedError(fault)

    def _bytes(self, value: object, names: tuple[str, ...]) -> None:
        if isinstance(value, list):
            for inner in value:
                self._inner(inner, "uint8", "", names)
        elif not isinstance(value, str):
            self._mismatch(value, "[]uint8", names)
        else:
            self.fault = self.fault or base64_fault(value)

    def _number(self, value: object, type_: str, names: tuple[str, ...]) -> None:
        if not _fits(value, type_):
            self._mismatch(value, type_, names)

    def _mismatch(self, value: object, type_: str, names: tuple[str, ...]) -> None:
        self.fault = self.fault or self._sentence(value, type_, names)

    def _sentence(self, value: object, type_: str, names: tuple[str, ...]) -> str:
        place = f"struct field {self._struct}.{'.'.join(names)}" if names else "value"
        return f"json: cannot unmarshal {_said(value, type_)} into Go {place} of type {type_}"


def _said(value: object, type_: str) -> str:
    """Return what a JSON value is called; a number is told where another number could stand."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return f"number {json.dumps(value)}" if type_ in _BITS or type_ == "uint8" else "number"


def _fits(value: object, type_: str) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    if type_ == "uint8":
        return 0 <= value < 256
    limit = 1 << _BITS[type_]
    return -limit <= value < limit


def _quantity_fault(value: object) -> str:
    written = value.strip() if isinstance(value, str) else json.dumps(value)
    try:
        Quantity.parse(written)
    except QuantityError as error:
        return error.fault
    return ""


def _go_name(type_: str) -> str:
    return _GO_NAMES.get(type_) or f"v1.{TYPES[type_].go_name if type_ in TYPES else type_}"
