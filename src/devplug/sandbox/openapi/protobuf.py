"""Objects in Kubernetes' protobuf form, which Go clients send unless they are told otherwise.

An object becomes the JSON that the same client would send: what Go leaves out of JSON is left out here, too.
The envelope is apimachinery's (runtime/serializer/protobuf/protobuf.go), and the tables of `types` have the
numbers of the fields. Answers are JSON, which these clients offer to read in every `Accept`.

The real API server drops fields that it does not know. Here each of them is an error, because a client whose
field is lost works differently on a cluster that knows the field. An unknown field without content is
skipped: Go clients write the zero value of each field that is no pointer, so a newer client always sends it.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, text, whole
from devplug.k8s.times import micro_stamp, stamp
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.bounds import TOO_MANY
from devplug.sandbox.api.errors import StatusError, bad_request
from devplug.sandbox.openapi.encoder import as_go_writes
from devplug.sandbox.openapi.types import TYPES, Field, Form, Type, read_parts, type_of_kind
from devplug.wire.limits import ELEMENTS_LIMIT
from devplug.wire.wireformat import (
    LENGTH,
    VARINT,
    Bounds,
    MalformedError,
    TooManyElementsError,
    read_span,
    read_tag,
    read_varint,
    skipped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOBUF_MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_DEPTH_LIMIT: Final = 100
"""How deep groups of unknown fields may be nested; nothing in the API has any."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = frozenset({"bool", "int32", "int64"})


def _message_type(name: str, notation: str) -> Type:
    parts = dict(read_parts(notation))
    return Type(name, "", {field.name: field for field in parts.values()}, parts)


_ENVELOPE: Final = _message_type("Unknown", "type:Kind raw:bytes contentEncoding contentType")

_MESSAGES: Final[Mapping[str, Type]] = {
    name: _message_type(name, notation)
    for name, notation in {
        "FieldsV1": "raw:bytes",
        "IntOrString": "type:int64 number:int32 text",
        "Kind": "apiVersion kind",
        "MicroTime": "seconds:int64 nanos:int32",
        "Quantity": "text",
        "RawExtension": "raw:bytes",
        "Time": "seconds:int64 nanos:int32",
    }.items()
}
"""The messages of types that are one value in JSON (apimachinery's `generated.proto` files)."""


@cache
def _entry(type_: str) -> Type:
    """Return the message of one entry of a map to a type."""
    return _message_type("map entry", f"key value:{type_}")


_ONLY_METADATA: Final = _message_type("refused kind", "metadata:ObjectMeta")


def kind_of_protobuf(body: bytes) -> tuple[str, str]:
    """Return the `apiVersion` and the kind in the envelope of a body, if any; raises `StatusError`."""
    kind = fields(_envelope(body), "type")
    return text(kind, "apiVersion"), text(kind, "kind")


def object_of_protobuf(body: bytes, api_version: str, kind: str) -> Object:
    """Return the object of a kind that a body is, with this `apiVersion`; raises `StatusError` (400).

    Of a kind that the sandbox refuses, only the metadata is read.
    """
    envelope = _envelope(body)
    raw = base64.b64decode(text(envelope, "raw"))
    type_ = type_of_kind(api_version, kind)
    type_meta: Object = {"kind": kind, "apiVersion": api_version}
    try:
        if type_ is None:
            read = _Reader(raw, drops_unknown=True).message(_ONLY_METADATA, 0, len(raw), {}, "")
            return {**type_meta, **read}
        read = _Reader(raw).message(type_, 0, len(raw), {}, "")
    except _FaultError as fault:
        version = api_version.rpartition("/")[2]
        message = f"{kind} in version {go_quoted(version)} cannot be handled as a {kind}"
        raise bad_request(f"{message}: {fault}") from fault
    except (IndexError, MalformedError) as error:
        raise _malformed() from error
    except TooManyElementsError as error:
        raise _too_many() from error
    return as_go_writes(type_, {**read, **type_meta})


def _envelope(body: bytes) -> Object:
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is not in Kubernetes' protobuf form")
    try:
        read = _Reader(body).message(_ENVELOPE, len(_MAGIC), len(body), {}, "")
    except _FaultError as fault:
        raise bad_request(f"the envelope of the protobuf body cannot be read: {fault}") from fault
    except (IndexError, MalformedError) as error:
        raise _malformed() from error
    except TooManyElementsError as error:
        raise _too_many() from error
    if encoding := text(read, "contentEncoding"):
        raise bad_request(f"the content encoding {go_quoted(encoding)} is not supported; send it unencoded")
    if (content := text(read, "contentType")) not in {"", PROTOBUF_MEDIA_TYPE}:
        raise bad_request(f"the protobuf envelope has content of the type {go_quoted(content)}")
    return read


def _too_many() -> StatusError:
    return bad_request(TOO_MANY)


def _malformed() -> StatusError:
    return bad_request("the body of the request is malformed protobuf")


class _FaultError(ValueError):
    """A field that is not known, or that has no value of its type."""


class _Reader:
    """One walk through the bytes of an object. Raises `_FaultError`, `MalformedError` and IndexError.

    Raises `TooManyElementsError`, too.
    """

    def __init__(self, content: bytes, *, drops_unknown: bool = False) -> None:
        self._content = content
        self._bounds = Bounds(_DEPTH_LIMIT, ELEMENTS_LIMIT)
        self._drops_unknown = drops_unknown

    def message(self, type_: Type, start: int, end: int, found: Object, path: str) -> Object:
        """Read the fields of a message into `found`, and return it; `path` leads to it."""
        while start < end:
            self._bounds.spend()
            tag, start = read_tag(self._content, start)
            field = type_.parts.get(tag >> 3)
            if field is None:
                start = self._skip(type_, start, end, tag, path)
                continue
            is_number = field.type in _NUMBERS
            is_list = field.form is Form.LIST
            if tag & 7 != (VARINT if is_number else LENGTH) and not (is_list and tag & 7 == LENGTH):
                name = field.name or field.type
                raise _FaultError(f"the field {name} of {type_.go_name} has the wire type {tag & 7}")
            if tag & 7 == VARINT:
                number, start = read_varint(self._content, start)
                _put(field, found, _number(number, field.type))
                continue
            start, stop = read_span(self._content, start, end)
            if is_number:
                self._packed(field, start, stop, found)
            else:
                self._field(field, start, stop, found, f"{path}.{field.name}".strip("."))
            start = stop
        if start > end:
            raise MalformedError("cut off")
        return found

    def _packed(self, field: Field, start: int, stop: int, found: Object) -> None:
        while start < stop:
            self._bounds.spend()
            number, start = read_varint(self._content, start)
            _put(field, found, _number(number, field.type))
        if start > stop:
            raise MalformedError("a number beyond its field")

    def _field(self, field: Field, start: int, stop: int, found: Object, place: str) -> None:
        """Read the content of a field that is no number; `place` leads to the field."""
        if not field.name:
            self.message(TYPES[field.type], start, stop, found, place)
        elif field.form is Form.MAP or field.type == "ResourceList":
            entry = _entry("Quantity" if field.type == "ResourceList" else field.type)
            pair = self.message(entry, start, stop, {}, place)
            held = (
                pair["value"]
                if "value" in pair
                else self._value(entry.parts[2].type, stop, stop, None, place)
            )
            found[field.name] = {**fields(found, field.name), text(pair, "key"): held}
        elif field.form is Form.LIST:
            index = len(entries(found, field.name))
            _put(field, found, self._value(field.type, start, stop, None, f"{place}[{index}]"))
        else:
            found[field.name] = self._value(field.type, start, stop, found.get(field.name), place)

    def _skip(self, type_: Type, start: int, end: int, tag: int, path: str) -> int:
        """Return where an unknown field without content ends; raises `_FaultError` for one with content."""
        stop = skipped(self._content, start, end, tag, self._bounds)
        is_empty = tag & 7 in {VARINT, LENGTH} and self._content[start:stop] == b"\0"
        if is_empty or self._drops_unknown:
            return stop
        where = f"{path} ({type_.go_name})" if path else type_.go_name
        raise _FaultError(
            f"the protobuf body has the unknown field number {tag >> 3} in {where}; the devplug sandbox "
            "knows the fields of Kubernetes 1.36"
        )

    def _value(self, type_: str, start: int, end: int, old: object, place: str) -> object:
        """Return the value of a field with a length; `old` is what a message with its number had before."""
        if known := TYPES.get(type_):
            return self.message(known, start, end, dict(old) if isinstance(old, dict) else {}, place)
        if type_ in _MESSAGES:
            read = self.message(_MESSAGES[type_], start, end, {}, place)
            return read if type_ == "Kind" else _json_value(type_, read, place, is_empty=start == end)
        if type_ == "bytes":
            return base64.b64encode(self._content[start:end]).decode()
        return self._content[start:end].decode("utf-8", "replace")


def _put(field: Field, found: Object, value: object) -> None:
    if field.form is Form.LIST:
        listed = found.setdefault(field.name, [])
        assert isinstance(listed, list)
        listed.append(value)
    else:
        found[field.name] = value


def _number(value: int, type_: str) -> int | bool:
    """Return what 64 bits are for a type."""
    if type_ == "bool":
        return value != 0
    bits = 32 if type_ == "int32" else 64
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _json_value(type_: str, read: Object, place: str, *, is_empty: bool) -> object:
    """Return what a message of a type is in JSON, as the type itself decodes and writes it.

    See apimachinery: api/resource/quantity_proto.go, util/intstr/intstr.go, runtime/extension.go, and
    apis/meta/v1 time_proto.go, micro_time_proto.go and fields_proto.go.
    """
    match type_:
        case "Quantity":
            return read.get("text", "0")
        case "IntOrString":
            return text(read, "text") if whole(read, "type") else whole(read, "number")
        case "Time" | "MicroTime":
            return None if is_empty else _time(type_, read, place)
    try:
        raw = base64.b64decode(text(read, "raw"))
        return json.loads(raw.decode("utf-8", "replace"), parse_constant=_refuse_constant) if raw else None
    except (ValueError, RecursionError) as error:
        raise _FaultError(f"the content of {place} is not JSON") from error


def _refuse_constant(written: str) -> None:
    raise ValueError(written)


def _time(type_: str, read: Object, place: str) -> str:
    """Return a moment; of `Time` only the seconds count."""
    try:
        at = _EPOCH + timedelta(seconds=whole(read, "seconds"))
        if type_ == "Time":
            return stamp(at)
        return micro_stamp(at + timedelta(microseconds=int(whole(read, "nanos") / 1000)))
    except OverflowError as error:
        raise _FaultError(f"{place} is beyond the year 9999") from error
