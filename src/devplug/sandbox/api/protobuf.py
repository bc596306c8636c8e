"""Objects in Kubernetes' own protobuf form, which kubectl's `create namespace` and its like send.

Only what these commands send is read in full; of other kinds the metadata is, which is enough to refuse them.
Answers are JSON, which every client takes. The envelope is apimachinery's (runtime/serializer/protobuf), and
the numbers of the fields are those of the `generated.proto` beside each API.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted
from devplug.k8s.objects import Object, fields, text
from devplug.sandbox.api.errors import StatusError, bad_request
from devplug.sandbox.api.kinds import REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


__all__ = ["PROTOBUF_MEDIA_TYPE", "object_of_protobuf"]

PROTOBUF_MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_VARINT, _BYTES = 0, 2
_SKIPPED: Final = {1: 8, 5: 4}
"""Fields of a fixed size, which nothing that is read here has."""

_ROLE: Final = {1: ("metadata", "ObjectMeta"), 2: ("rules", "list PolicyRule")}
_ROLE_BINDING: Final = {
    1: ("metadata", "ObjectMeta"),
    2: ("subjects", "list Subject"),
    3: ("roleRef", "RoleRef"),
}

_MESSAGES: Final[Mapping[str, Mapping[int, tuple[str, str]]]] = {
    "Unknown": {1: ("type", "TypeMeta"), 2: ("raw", "bytes")},
    "TypeMeta": {1: ("apiVersion", "text"), 2: ("kind", "text")},
    "ObjectMeta": {
        1: ("name", "text"),
        2: ("generateName", "text"),
        3: ("namespace", "text"),
        5: ("uid", "text"),
        6: ("resourceVersion", "text"),
        11: ("labels", "map text"),
        12: ("annotations", "map text"),
        14: ("finalizers", "list text"),
    },
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map text"),
        3: ("binaryData", "map bytes"),
        4: ("immutable", "flag"),
    },
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "whole"),
        2: ("preconditions", "Preconditions"),
        4: ("propagationPolicy", "text"),
        5: ("dryRun", "list text"),
    },
    "Preconditions": {1: ("uid", "text"), 2: ("resourceVersion", "text")},
    "Namespace": {1: ("metadata", "ObjectMeta")},
    "Quantity": {1: ("string", "text")},
    "ResourceQuota": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ResourceQuotaSpec")},
    "ResourceQuotaSpec": {1: ("hard", "map Quantity"), 2: ("scopes", "list text")},
    "SelfSubjectAccessReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "SelfSubjectAccessReviewSpec")},
    "SelfSubjectAccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", "text"),
        2: ("verb", "text"),
        3: ("group", "text"),
        4: ("version", "text"),
        5: ("resource", "text"),
        6: ("subresource", "text"),
        7: ("name", "text"),
    },
    "NonResourceAttributes": {1: ("path", "text"), 2: ("verb", "text")},
    "SelfSubjectReview": {1: ("metadata", "ObjectMeta")},
    "SelfSubjectRulesReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "SelfSubjectRulesReviewSpec")},
    "SelfSubjectRulesReviewSpec": {1: ("namespace", "text")},
    "ServiceAccount": {1: ("metadata", "ObjectMeta"), 4: ("automountServiceAccountToken", "flag")},
    "TokenRequest": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenRequestSpec")},
    "TokenRequestSpec": {
        1: ("audiences", "list text"),
        3: ("boundObjectRef", "BoundObjectReference"),
        4: ("expirationSeconds", "whole"),
    },
    "BoundObjectReference": {
        1: ("kind", "text"),
        2: ("apiVersion", "text"),
        3: ("name", "text"),
        4: ("uid", "text"),
    },
    "ClusterRole": _ROLE,
    "Role": _ROLE,
    "PolicyRule": {
        1: ("verbs", "list text"),
        2: ("apiGroups", "list text"),
        3: ("resources", "list text"),
        4: ("resourceNames", "list text"),
        5: ("nonResourceURLs", "list text"),
    },
    "ClusterRoleBinding": _ROLE_BINDING,
    "RoleBinding": _ROLE_BINDING,
    "RoleRef": {1: ("apiGroup", "text"), 2: ("kind", "text"), 3: ("name", "text")},
    "Subject": {
        1: ("kind", "text"),
        2: ("apiGroup", "text"),
        3: ("name", "text"),
        4: ("namespace", "text"),
    },
    "OnlyMetadata": {1: ("metadata", "ObjectMeta")},
}
"""The messages: by the number of a field its name and its form."""

_WHOLE_KINDS: Final = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "DeleteOptions",
    "Namespace",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "SelfSubjectAccessReview",
    "SelfSubjectReview",
    "SelfSubjectRulesReview",
    "ServiceAccount",
    "TokenRequest",
)


def object_of_protobuf(body: bytes) -> Object:
    """Return the object in a request's body; raises `StatusError` for one that is not read here."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is not in Kubernetes' protobuf form")
    envelope = _message("Unknown", body[len(_MAGIC) :])
    version, kind = text(envelope, "type", "apiVersion"), text(envelope, "type", "kind")
    refused = any((one.api_version, one.kind) == (version, kind) for one in REFUSED)
    if not refused and kind not in _WHOLE_KINDS:
        message = f"the devplug sandbox takes objects of the kind {quoted(kind)} as JSON and not as protobuf"
        message = f"{message}; have the client send application/json, as kubectl apply does"
        raise StatusError(415, "UnsupportedMediaType", message)
    raw = base64.b64decode(text(envelope, "raw"))
    return {"apiVersion": version, "kind": kind, **_message("OnlyMetadata" if refused else kind, raw)}


def _message(name: str, body: bytes) -> Object:
    """Return a message as a map; fields that are not known, and empty ones, are left out."""
    found: Object = {}
    for number, value in _parts(body):
        field, form = _MESSAGES[name].get(number, ("", ""))
        if not field:
            continue
        repeated, _, single = form.rpartition(" ")
        if repeated == "map":
            found[field] = {**fields(found, field), **_entry(value, single)}
        elif repeated == "list":
            listed = found.get(field)
            found[field] = [*(listed if isinstance(listed, list) else []), _value(value, single)]
        elif (read := _value(value, single)) not in ("", {}) or form in {"whole", "flag"}:
            found[field] = read
    return found


def _entry(value: int | bytes, form: str) -> Object:
    """Return one entry of a map, which is a message of a key and a value."""
    key: object = ""
    held: object = _value(b"", form)
    for number, inner in _parts(_as_bytes(value)):
        if number == 1:
            key = _value(inner, "text")
        elif number == 2:
            held = _value(inner, form)
    return {str(key): held}


def _value(value: int | bytes, form: str) -> object:
    match form:
        case "whole" | "flag":
            if isinstance(value, bytes):
                raise _malformed()
            signed = value - (1 << 64) if value >> 63 else value
            return bool(signed) if form == "flag" else signed
        case "text":
            try:
                return _as_bytes(value).decode()
            except UnicodeDecodeError as error:
                raise _malformed() from error
        case "bytes":
            return base64.b64encode(_as_bytes(value)).decode()
    message = _message(form, _as_bytes(value))
    return text(message, "string") if form == "Quantity" else message


def _parts(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message with their numbers (protobuf's encoding; groups are not in use)."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        if tag & 7 == _VARINT:
            number, at = _varint(body, at)
            yield tag >> 3, number
            continue
        length = _SKIPPED.get(tag & 7)
        if tag & 7 == _BYTES:
            length, at = _varint(body, at)
        if length is None or at + length > len(body):
            raise _malformed()
        if tag & 7 == _BYTES:
            yield tag >> 3, body[at : at + length]
        at += length


def _varint(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(body[at : at + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number & ((1 << 64) - 1), at + place + 1
    raise _malformed()


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _malformed()
    return value


def _malformed() -> Exception:
    return bad_request("the body of the request is malformed protobuf")
