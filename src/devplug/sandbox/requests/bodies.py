"""What clients send: JSON or Kubernetes' protobuf form becomes an object of the kind that the path takes.

The sentences are those of the API server (endpoints/handlers/rest.go transformDecodeError, create.go) and of
Go's encoding/json, whose complaints people search for. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.kinds import resource_of_kind
from devplug.sandbox.api.objects import fields, text
from devplug.sandbox.api.protobuf import PROTOBUF_MEDIA_TYPE, object_of_protobuf
from devplug.sandbox.api.statuses import StatusError, bad_request, unsupported_media_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.objects import Object

__all__ = ["BODY_LIMIT_BYTES", "Decoded", "decoded_json", "decoded_object", "media_type_of"]

BODY_LIMIT_BYTES: Final = 3 * 1024 * 1024
"""The most that a request may bring (apiserver server/config.go MaxRequestBodyBytes)."""

_JSON: Final = "application/json"
_TAKEN: Final = (_JSON, PROTOBUF_MEDIA_TYPE)
_DEPTH_LIMIT: Final = 200
"""How deep maps and lists may stand in each other; nothing in the API is half as deep."""
_SHOWN_BYTES: Final = 30
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_COMPLAINTS: Final = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Illegal trailing comma before end of array": "looking for beginning of value",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Invalid \\uXXXX escape": "in \\u hexadecimal character escape",
}
"""What Python's decoder says, and what Go's says after the character."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a body says."""

    value: object
    duplicates: tuple[str, ...] = ()
    """One sentence for each field that stands twice in a map; the last one counts."""

    @property
    def object(self) -> Object:
        """The value, which is a map if `decoded_object` made it."""
        return fields(self.value)


class _JSONFaultError(ValueError):
    """A text is no JSON; the sentence is Go's."""


def media_type_of(content_type: str) -> str:
    """Return the media type without its parameters; JSON if none is told."""
    return content_type.partition(";")[0].strip().lower() or _JSON


def decoded_json(body: bytes) -> Decoded:
    """Return what a JSON text says; raises `StatusError`."""
    try:
        return _decoded(body)
    except _JSONFaultError as error:
        raise bad_request(str(error)) from error


def decoded_object(body: bytes, content_type: str, kind: str, api_version: str) -> Decoded:
    """Return the object of a kind that a body is; the kind may be missing in it. Raises `StatusError`."""
    form = media_type_of(content_type)
    if form not in _TAKEN:
        raise unsupported_media_type(_TAKEN)
    if form == PROTOBUF_MEDIA_TYPE:
        found = Decoded(object_of_protobuf(body))
    else:
        try:
            found = _decoded(body)
        except _JSONFaultError as error:
            raise _unrecognised(kind, f"json parse error: {error}", body) from error
    if not isinstance(found.value, dict):
        words = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
        told = words.get(type(found.value), "")
        if told:
            fault = f"json: cannot unmarshal {told} into Go value of type struct"
            raise _unrecognised(kind, f"json parse error: {fault}", body)
    _refuse_other_kind(found.object, kind, api_version)
    told_kind: Object = {"kind": kind, "apiVersion": api_version}
    return Decoded({**found.object, **told_kind}, found.duplicates)


def _refuse_other_kind(one: Object, kind: str, api_version: str) -> None:
    for name in ("apiVersion", "kind"):
        if not isinstance(one.get(name, ""), str | None):
            raise bad_request(f"couldn't get version/kind; json parse error: {name} is no string")
    given_version, given_kind = text(one, "apiVersion") or api_version, text(one, "kind") or kind
    if given_kind == kind:
        if given_version != api_version:
            told = f"the API version in the data ({given_version}) does not match"
            raise bad_request(f"{told} the expected API version ({api_version})")
        return
    version = given_version.rpartition("/")[2]
    told = f"{given_kind} in version {go_quoted(version)} cannot be handled as a {kind}"
    if resource_of_kind(given_version, given_kind) is None:
        why = f"no kind {go_quoted(given_kind)} is registered for version {go_quoted(given_version)}"
        raise bad_request(f'{told}: {why} in scheme "pkg/api/legacyscheme/scheme.go:30"')
    group = api_version.rpartition("/")[0].partition(".")[0]
    package = "core" if group in {"", "events"} else group
    why = f"converting ({version}.{given_kind}) to ({package}.{kind}): unknown conversion"
    raise bad_request(f"{told}: {why}")


def _unrecognised(kind: str, fault: str, body: bytes) -> StatusError:
    """Say that a body is no object at all, with how it begins (handlers/rest.go summarizeData)."""
    shown = body[:_SHOWN_BYTES]
    told = shown.decode("utf-8", "replace") if body[:1] == b"{" else shown.hex()
    if len(body) > _SHOWN_BYTES:
        told += " ..."
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {fault} "
        f"({told or '<empty>'})"
    )


# ── JSON, as Go reads it ──


def _decoded(body: bytes) -> Decoded:
    told = body.decode("utf-8", "replace")
    repeated: list[tuple[Object, str]] = []

    def joined(pairs: list[tuple[str, object]]) -> Object:
        one = dict(pairs)
        if len(one) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    repeated.append((one, key))
                seen.add(key)
        return one

    try:
        value = json.loads(
            told, object_pairs_hook=joined, parse_constant=_no_constant, parse_float=_float, parse_int=_int
        )
    except json.JSONDecodeError as error:
        raise _JSONFaultError(_complaint(error, told)) from error
    except RecursionError as error:
        raise _JSONFaultError("exceeded max depth") from error
    _refuse_depth(value)
    duplicates = tuple(_named(value, repeated)) if repeated else ()
    return Decoded(_sound(value) if _SURROGATES.search(told) or "\\ud" in told.lower() else value, duplicates)


def _complaint(error: json.JSONDecodeError, told: str) -> str:
    if error.pos >= len(told.rstrip()) or error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    words = next((go for python, go in _COMPLAINTS.items() if error.msg.startswith(python)), error.msg)
    character = told[error.pos]
    shown = "'\\''" if character == "'" else f"'{go_quoted(character)[1:-1]}'"
    return f"invalid character {shown} {words}"


def _no_constant(written: str) -> object:
    raise _JSONFaultError(f"invalid character '{written.lstrip('-')[0]}' looking for beginning of value")


def _float(written: str) -> float:
    number = float(written)
    if number in {float("inf"), float("-inf")}:
        raise _JSONFaultError(f"json: cannot unmarshal number {written} into Go value of type float64")
    return number


def _int(written: str) -> int | float:
    """Return a whole number; one that is longer than any in use as Go has it where the type is open."""
    return int(written) if len(written) <= 20 else _float(written)


def _refuse_depth(value: object) -> None:
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > _DEPTH_LIMIT:
            raise _JSONFaultError("exceeded max depth")
        level = [inner for one in level for inner in _inner(one)]


def _inner(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _named(value: object, repeated: list[tuple[Object, str]], path: str = "") -> Iterator[str]:
    """Yield a sentence for each field that stands twice, with the way to it."""
    if isinstance(value, dict):
        for key in dict.fromkeys(key for owner, key in repeated if owner is value):
            yield f'duplicate field "{path}{"." if path else ""}{key}"'
        for key, inner in value.items():
            yield from _named(inner, repeated, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _named(inner, repeated, f"{path}[{place}]")


def _sound(value: object) -> object:
    """Return `value` with texts that can be written as UTF-8: half a character becomes U+FFFD, as in Go."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_SURROGATES.sub("\ufffd", key): _sound(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_sound(inner) for inner in value]
    return value
