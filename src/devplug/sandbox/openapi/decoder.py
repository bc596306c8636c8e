"""The API server's decoder: which fields and values of an object it reports, and what it makes of null.

The rules and the sentences are those of sigs.k8s.io/json, which the server of Kubernetes 1.36 decodes with
(internal/golang/encoding/json/decode.go, kubernetes_patch.go), and of Go for what is no time or no bytes
(time/format.go, encoding/base64/base64.go).

Null is read as the zero value of its type, so that readers of objects find no null in lists
(encoding/json decode.go literalStore).
"""

from __future__ import annotations

import calendar
import json
import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.quantity import Quantity, QuantityError
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.openapi.types import TYPES, Field, Form, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.types import Type

_SECOND: Final = ("05", r"[0-9]{2}", "second", range(60))
_SECOND_AND_FRACTION: Final = ("05", r"([0-9]{2})(?:[.,][0-9]+)?", "second", range(60))
_MICROSECONDS: Final = (".000000", r"[.,][0-9]{6}", "", range(0))
_ZONE: Final = ("Z07:00", r"Z|[+-](?:[01][0-9]|2[0-4]):(?:[0-5][0-9]|60)", "", range(0))
_BASE64: Final = frozenset(string.ascii_letters + string.digits + "+/")
_MONTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MOST_UNKNOWN: Final = 100
"""The most that are reported (kubernetes_patch.go saveStrictError)."""

_BITS: Final = {"int32": 31, "int64": 63}
_OPEN: Final = frozenset({"FieldsV1", "RawExtension"})
"""The types that hold any value."""

_NULL_WHEN_ZERO: Final = frozenset({"FieldsV1", "MicroTime", "Time"})
"""The types whose zero value is null in JSON too."""


# ── Go's words for what is no time, and no base64 ──

_DATE: Final = (
    ("2006", r"[0-9]{4}", "year", range(10_000)),
    ("-", "-", "", range(0)),
    ("01", r"[0-9]{2}", "month", range(1, 13)),
    ("-", "-", "", range(0)),
    ("02", r"[0-9]{2}", "day", range(100)),
    ("T", "T", "", range(0)),
    ("15", r"[0-9]{1,2}", "hour", range(24)),
    (":", ":", "", range(0)),
    ("04", r"[0-9]{2}", "minute", range(60)),
    (":", ":", "", range(0)),
)

_LAYOUTS: Final[Mapping[str, tuple[tuple[str, str, str, range], ...]]] = {
    "MicroTime": (*_DATE, _SECOND, _MICROSECONDS, _ZONE),
    "Time": (*_DATE, _SECOND_AND_FRACTION, _ZONE),
}
"""Each part of a form: how the layout writes it, what matches, its name and its range if it has one."""


def _time_fault(type_: str, written: str) -> str:
    """Return why `written` is no `Time` or no `MicroTime` (which needs six decimals); empty if it is one."""
    parts = _LAYOUTS[type_]
    rest = written
    read: dict[str, int] = {}
    for element, form, name, allowed in parts:
        found = re.match(form, rest)
        if found is None:
            layout = "".join(part[0] for part in parts)
            fault = f"cannot parse {_quoted(rest)} as {_quoted(element)}"
            return f"parsing time {_quoted(written)} as {_quoted(layout)}: {fault}"
        rest = rest[found.end() :]
        if name:
            read[name] = int(found[1] if found.lastindex else found[0])
            if read[name] not in allowed:
                return f"parsing time {_quoted(written)}: {name} out of range"
    if rest:
        return f"parsing time {_quoted(written)}: extra text: {_quoted(rest)}"
    if not 1 <= read["day"] <= _days(read["year"], read["month"]):
        return f"parsing time {_quoted(written)}: day out of range"
    return ""


def _base64_fault(written: str) -> str:
    """Return why `written` is no bytes in base64; empty if it is. Line ends do not count."""
    coded = written.encode()
    digits = [(at, chr(byte)) for at, byte in enumerate(coded) if byte not in b"\r\n"]
    for number, (at, digit) in enumerate(digits):
        if digit == "=":
            return _padding_fault(digits[number:], number % 4, len(coded))
        if digit not in _BASE64:
            return _corrupt(at)
    return _corrupt(len(coded) - len(digits) % 4) if len(digits) % 4 else ""


def _padding_fault(rest: list[tuple[int, str]], place: int, length: int) -> str:
    """Return why the end, from the first `=` on, is wrong; `place` is its place in a group of four."""
    if place < 2:
        return _corrupt(rest[0][0])
    needed = 4 - place
    if len(rest) < needed:
        return _corrupt(length)
    if rest[needed - 1][1] != "=":
        return _corrupt(rest[needed - 1][0] - 1)
    return _corrupt(rest[needed][0]) if len(rest) > needed else ""


def _corrupt(at: int) -> str:
    return f"illegal base64 data at input byte {at}"


def _quoted(written: str) -> str:
    """Return a text as `time` quotes it, which is not Go's usual way."""
    return '"' + "".join(map(_quoted_character, written)) + '"'


def _quoted_character(one: str) -> str:
    if one < " " or one >= "\x80":
        return "".join(f"\\x{byte:02x}" for byte in one.encode())
    return f"\\{one}" if one in '"\\' else one


def _days(year: int, month: int) -> int:
    return 29 if month == 2 and calendar.isleap(year) else _MONTHS[month]


# ── Unknown fields and wrong values ──


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


@dataclass(frozen=True, slots=True)
class FieldReport:
    """The findings of a decoder in one object."""

    unknown: tuple[str, ...] = ()
    """A sentence for each unknown field, in the order of the object: `unknown field "spec.foo"`."""
    unreadable: str = ""
    """Why the object cannot be read at all, as in `json: cannot unmarshal …`; empty if it can be.

    The server puts in front what it is about: `Pod in version "v1" cannot be handled as a Pod: `.
    """


def field_report(resource: Resource, body: object) -> FieldReport:
    """Return what the decoder says of an object of a resource, `body` being its JSON.

    For a resource that the sandbox only refuses it is empty. Doubled fields are not found here: JSON is read
    already.
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
        elif type_ in _OPEN or isinstance(value, bool if type_ == "bool" else str):
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
            fault = _time_fault(type_, value)
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
            self.fault = self.fault or _base64_fault(value)

    def _number(self, value: object, type_: str, names: tuple[str, ...]) -> None:
        if not _fits(value, type_):
            self._mismatch(value, type_, names)

    def _mismatch(self, value: object, type_: str, names: tuple[str, ...]) -> None:
        self.fault = self.fault or self._sentence(value, type_, names)

    def _sentence(self, value: object, type_: str, names: tuple[str, ...]) -> str:
        place = f"struct field {self._struct}.{'.'.join(names)}" if names else "value"
        return f"json: cannot unmarshal {_said(value, type_)} into Go {place} of type {type_}"


def _said(value: object, type_: str) -> str:
    """Return Go's word for a JSON value; for a number, where another number is allowed, the number too."""
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


# ── Null ──

_ZEROS: Final[Mapping[str, object]] = {
    "IntOrString": 0,
    "Quantity": "0",
    "bool": False,
    "int32": 0,
    "int64": 0,
}
"""The zero values that are no empty text."""


def with_zeros(resource: Resource, one: Object) -> Object:
    """Return an object without null: a null field is left out, a null element is the zero value of its type.

    Times stay null. A value of another type than the field's stays as it is.
    """
    type_ = type_of(resource)
    return one if type_ is None else _struct(one, TYPES[type_.name].fields)


def _struct(one: Object, known: Mapping[str, Field]) -> Object:
    return {
        key: _field(value, known[key]) if key in known else value
        for key, value in one.items()
        if value is not None or (key in known and known[key].type in _NULL_WHEN_ZERO)
    }


def _field(value: object, field: Field) -> object:
    if field.form is Form.LIST and isinstance(value, list):
        return [_value(inner, field.type) for inner in value]
    if field.form is Form.MAP and isinstance(value, dict):
        return {key: _value(inner, field.type) for key, inner in value.items()}
    return _value(value, field.type) if field.form is Form.ONE else value


def _value(value: object, type_: str) -> object:
    if type_ in _NULL_WHEN_ZERO or type_ in _OPEN:
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
