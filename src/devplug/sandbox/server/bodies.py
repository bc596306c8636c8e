"""The bodies of requests: JSON or Kubernetes' protobuf form, delete options, and `fieldValidation`. Pure.

A body becomes an object of the kind that the path takes. The sentences are those of the API server
(endpoints/handlers/rest.go transformDecodeError, create.go, patch.go; KEP-2885) and of Go's encoding/json,
whose complaints people search for. What a deletion asks for stands in its body or in its query, by
apimachinery's rules (apis/meta/v1/validation ValidateDeleteOptions, endpoints/handlers/delete.go).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.k8s.objects import Object, entries, fields, part, text
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.bounds import TOO_DEEP, TOO_MANY, excess_of, has_too_many_elements
from devplug.sandbox.api.errors import (
    StatusError,
    bad_request,
    go_json,
    invalid,
    invalid_field,
    unsupported_field,
    unsupported_media_type,
)
from devplug.sandbox.api.kinds import resource_of_kind
from devplug.sandbox.api.options import FieldValidation, dry_run_errors, number_of, refuse_options
from devplug.sandbox.api.ownerreferences import POLICIES
from devplug.sandbox.api.patch import STRATEGIC_PATCH
from devplug.sandbox.api.strategy import Preconditions
from devplug.sandbox.openapi.protobuf import PROTOBUF_MEDIA_TYPE, kind_of_protobuf, object_of_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.decoder import FieldReport

BODY_LIMIT_BYTES: Final = 3 * 1024 * 1024
"""The most that a request may bring (apiserver server/config.go MaxRequestBodyBytes)."""

_JSON: Final = "application/json"
_TAKEN: Final = (_JSON, PROTOBUF_MEDIA_TYPE)
_SHOWN_BYTES: Final = 30
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_BOOLEANS: Final = {"true": True, "false": False}


# ── Objects ──


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
"""A sentence of Python's decoder, and the end of Go's sentence for the same fault."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded body."""

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
    """Return the media type without its parameters; JSON if none is given."""
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
        given_version, given_kind = kind_of_protobuf(body)
        _refuse_other_kind({"apiVersion": given_version, "kind": given_kind}, kind, api_version)
        found = Decoded(object_of_protobuf(body, api_version, kind))
    else:
        try:
            found = _decoded(body)
        except _JSONFaultError as error:
            raise _unrecognised(kind, f"json parse error: {error}", body) from error
    if not isinstance(found.value, dict):
        words = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
        type_name = words.get(type(found.value), "")
        if type_name:
            fault = f"json: cannot unmarshal {type_name} into Go value of type struct"
            raise _unrecognised(kind, f"json parse error: {fault}", body)
    _refuse_other_kind(found.object, kind, api_version)
    type_meta: Object = {"kind": kind, "apiVersion": api_version}
    return Decoded({**found.object, **type_meta}, found.duplicates)


def _refuse_other_kind(one: Object, kind: str, api_version: str) -> None:
    for name in ("apiVersion", "kind"):
        if not isinstance(one.get(name, ""), str | None):
            raise bad_request(f"couldn't get version/kind; json parse error: {name} is no string")
    given_version, given_kind = text(one, "apiVersion") or api_version, text(one, "kind") or kind
    if given_kind == kind:
        if given_version != api_version:
            message = f"the API version in the data ({given_version}) does not match"
            raise bad_request(f"{message} the expected API version ({api_version})")
        return
    version = given_version.rpartition("/")[2]
    message = f"{given_kind} in version {go_quoted(version)} cannot be handled as a {kind}"
    if resource_of_kind(given_version, given_kind) is None:
        why = f"no kind {go_quoted(given_kind)} is registered for version {go_quoted(given_version)}"
        raise bad_request(f'{message}: {why} in scheme "pkg/api/legacyscheme/scheme.go:30"')
    group = api_version.rpartition("/")[0].partition(".")[0]
    package = "core" if group in {"", "events"} else group
    why = f"converting ({version}.{given_kind}) to ({package}.{kind}): unknown conversion"
    raise bad_request(f"{message}: {why}")


def _unrecognised(kind: str, fault: str, body: bytes) -> StatusError:
    """Say that a body is no object at all, with how it begins (handlers/rest.go summarizeData)."""
    shown = body[:_SHOWN_BYTES]
    quoted = shown.decode("utf-8", "replace") if body[:1] == b"{" else shown.hex()
    if len(body) > _SHOWN_BYTES:
        quoted += " ..."
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {fault} "
        f"({quoted or '<empty>'})"
    )


# ── JSON, as Go reads it ──


def _decoded(body: bytes) -> Decoded:
    if has_too_many_elements(body):
        raise bad_request(TOO_MANY)
    sent = body.decode("utf-8", "replace")
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
            sent, object_pairs_hook=joined, parse_constant=_no_constant, parse_float=_float, parse_int=_int
        )
    except json.JSONDecodeError as error:
        raise _JSONFaultError(_complaint(error, sent)) from error
    except RecursionError as error:
        raise _JSONFaultError(TOO_DEEP) from error
    if fault := excess_of(value):
        raise _JSONFaultError(fault)
    duplicates = tuple(_named(value, repeated)) if repeated else ()
    return Decoded(_sound(value) if _SURROGATES.search(sent) or "\\ud" in sent.lower() else value, duplicates)


def _complaint(error: json.JSONDecodeError, sent: str) -> str:
    if error.pos >= len(sent.rstrip()) or error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    words = next((go for python, go in _COMPLAINTS.items() if error.msg.startswith(python)), error.msg)
    character = sent[error.pos]
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


# ── Delete options ──


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a deletion."""

    grace_seconds: int | None = None
    """How long a pod may take to end; None for what it says itself."""
    preconditions: Preconditions | None = None
    policy: str = ""
    """What is done with its dependents: one of `ownerreferences.POLICIES`, or empty."""
    dry_run: bool = False


def delete_options(body: bytes, content_type: str, query: Mapping[str, Sequence[str]]) -> DeleteOptions:
    """Return what is asked for; a body counts before the query. Raises `StatusError`."""
    asked: object
    if body:
        asked = _read(body, content_type)
    else:
        asked = {
            "gracePeriodSeconds": number_of(query, "gracePeriodSeconds"),
            "propagationPolicy": (query.get("propagationPolicy") or [""])[0],
            "orphanDependents": _BOOLEANS.get((query.get("orphanDependents") or [""])[0]),
            "dryRun": list(query.get("dryRun", ())),
        }
    grace, policy = part(asked, "gracePeriodSeconds"), text(asked, "propagationPolicy")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request("gracePeriodSeconds must be a whole number of seconds")
    dry_runs = entries(asked, "dryRun")
    errors = list(dry_run_errors(dry_runs))
    if policy and policy not in POLICIES:
        errors.append(
            unsupported_field("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        )
    orphans = part(asked, "orphanDependents")
    if policy and orphans is not None:
        fault = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid_field("propagationPolicy", policy, fault))
    refuse_options("DeleteOptions", errors)
    if isinstance(orphans, bool):
        policy = "Orphan" if orphans else "Background"
    uid = text(asked, "preconditions", "uid")
    version = text(asked, "preconditions", "resourceVersion")
    return DeleteOptions(
        grace,
        Preconditions(uid, version) if uid or version else None,
        policy=policy,
        dry_run=bool(dry_runs),
    )


def _read(body: bytes, content_type: str) -> object:
    form = media_type_of(content_type)
    if form not in {"application/json", PROTOBUF_MEDIA_TYPE}:
        raise unsupported_media_type(["application/json", PROTOBUF_MEDIA_TYPE])
    if form == PROTOBUF_MEDIA_TYPE:
        version, kind = kind_of_protobuf(body)
        asked: object = {"kind": kind}
        if kind in {"", "DeleteOptions"}:
            asked = object_of_protobuf(body, version, "DeleteOptions")
    else:
        asked = decoded_json(body).value
    kind = text(asked, "kind")
    if asked is not None and (not isinstance(asked, dict) or kind not in {"", "DeleteOptions"}):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    return asked


# ── `fieldValidation`: unknown fields and unreadable values ──


FieldCheck: TypeAlias = "Callable[[Resource, object], FieldReport]"
"""Returns what a decoder would say of a body, an object of the kind: `openapi.decoder.field_report`."""


def of_body(
    resource: Resource, given: Decoded, wanted: FieldValidation, field_report: FieldCheck
) -> tuple[str, ...]:
    """Return the warnings about an object that was sent; raises `StatusError` (400).

    A kind that is refused anyway has none.
    """
    if resource.refusal:
        return ()
    report = field_report(resource, given.value)
    kind = resource.kind
    message = f"{kind} in version {go_quoted(resource.version)} cannot be handled as a {kind}"
    if report.unreadable:
        raise bad_request(f"{message}: {report.unreadable}")
    sentences = (*given.duplicates, *report.unknown)
    if sentences and wanted is FieldValidation.STRICT:
        raise bad_request(f"{message}: {_strict(sentences)}")
    return sentences if wanted is FieldValidation.WARN else ()


def of_patch(
    resource: Resource,
    old: Object,
    new: Object,
    media_type: str,
    patch: Decoded,
    wanted: FieldValidation,
    field_report: FieldCheck,
) -> tuple[str, ...]:
    """Return the warnings about what a patch brings into an object; raises `StatusError` (422).

    What was there before the patch is not its fault.
    """
    if resource.refusal:
        return ()
    report = field_report(resource, new)
    sentences = patch.duplicates
    if report.unknown:
        known = set(field_report(resource, old).unknown)
        sentences = (*sentences, *(one for one in report.unknown if one not in known))
    if report.unreadable or (sentences and wanted is FieldValidation.STRICT):
        value = _go_value(patch.value) if media_type == STRATEGIC_PATCH else go_json(new)
        fault = invalid_field("patch", value, report.unreadable or _strict(sentences))
        raise invalid("", "", [fault])
    return sentences if wanted is FieldValidation.WARN else ()


def _strict(sentences: tuple[str, ...]) -> str:
    return f"strict decoding error: {', '.join(sentences)}"


def _go_value(value: object) -> str:
    """Return a value as the verb `%+v` of Go's fmt prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{key}:{_go_value(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(_go_value, value))}]"
    return str(value)
