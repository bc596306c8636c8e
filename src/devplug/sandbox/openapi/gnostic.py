"""The OpenAPI 2.0 document in gnostic's protobuf form, the only one in which kubectl reads `/openapi/v2`.

kubectl does so where the newer documents do not answer its question, and in its older versions always. Only
the parts that the sandbox's document has are written; the field numbers are those of gnostic-models'
OpenAPIv2.proto.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


V2_MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type of the form; kubectl asks for it with an `@` in place of a dot, which is no valid one."""

_METHODS: Final[Mapping[str, int]] = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def protobuf_of_v2(document: Object) -> bytes:
    """Return a document of `documents.openapi_v2` in protobuf."""
    return (
        _texts(document, {"swagger": 1})
        + _message(2, _texts(fields(document, "info"), {"title": 1, "version": 2, "description": 3}))
        + _message(8, _named(2, fields(document, "paths"), _path))
        + _message(9, _named(1, fields(document, "definitions"), _schema))
    )


def _path(value: object) -> bytes:
    operations = fields(value).items()
    return b"".join(
        _message(_METHODS[method], _operation(fields(operation)))
        for method, operation in operations
        if method in _METHODS
    ) + _parameters(9, value)


def _operation(value: Object) -> bytes:
    return (
        _listed(1, value.get("tags"))
        + _texts(value, {"operationId": 5})
        + _listed(6, value.get("produces"))
        + _listed(7, value.get("consumes"))
        + _parameters(8, value)
        + _message(9, _named(1, fields(value, "responses"), _response))
        + _extensions(13, value)
    )


def _parameters(number: int, value: object) -> bytes:
    """Write parameters, each within its messages: ParametersItem, Parameter, and one for its place."""
    return b"".join(_message(number, _message(1, _parameter(one))) for one in entries(value, "parameters"))


def _parameter(value: object) -> bytes:
    match text(value, "in"):
        case "body":
            numbers = {"description": 1, "name": 2, "in": 3}
            body = (
                _texts(fields(value), numbers) + _flag(4, value) + _message(5, _schema(part(value, "schema")))
            )
            return _message(1, body)
        case "query":
            numbers = {"in": 2, "description": 3, "name": 4, "type": 6}
            return _message(2, _message(3, _texts(fields(value), numbers)))
    numbers = {"in": 2, "description": 3, "name": 4, "type": 5}
    return _message(2, _message(4, _flag(1, value) + _texts(fields(value), numbers)))


def _response(value: object) -> bytes:
    schema = _message(2, _message(1, _schema(part(value, "schema"))))
    return _message(1, _texts(fields(value), {"description": 1}) + schema)


def _schema(value: object) -> bytes:
    schema = fields(value)
    written = [
        _texts(schema, {"$ref": 1, "format": 2, "description": 4}),
        _listed(19, schema.get("required")),
        *(_message(20, _any(one)) for one in entries(schema, "enum")),
    ]
    if "additionalProperties" in schema:
        written.append(_message(21, _message(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        written.append(_message(22, _listed(1, [schema["type"]])))
    if "items" in schema:
        written.append(_message(23, _message(1, _schema(schema["items"]))))
    if "properties" in schema:
        written.append(_message(25, _named(1, fields(schema, "properties"), _schema)))
    return b"".join(written) + _extensions(31, schema)


def _extensions(number: int, value: Object) -> bytes:
    return _named(number, {key: one for key, one in value.items() if key.startswith("x-")}, _any)


def _any(value: object) -> bytes:
    return _text(2, json.dumps(value))


def _named(number: int, values: Mapping[str, object], write: Callable[[object], bytes]) -> bytes:
    """Write a map as gnostic has it: a list of names with values."""
    return b"".join(
        _message(number, _text(1, name) + _message(2, write(value))) for name, value in values.items()
    )


def _texts(value: Mapping[str, object], numbers: Mapping[str, int]) -> bytes:
    return b"".join(_text(number, text(value, key)) for key, number in numbers.items() if key in value)


def _listed(number: int, values: object) -> bytes:
    listed: Iterable[object] = values if isinstance(values, list) else ()
    return b"".join(_text(number, str(one)) for one in listed)


def _flag(number: int, value: object) -> bytes:
    return bytes((number << 3, 1)) if part(value, "required") is True else b""


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode())


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
