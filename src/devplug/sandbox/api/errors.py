"""The API server's errors: one function for each metav1.Status, and one for each kind of field error.

The sentences are those of Kubernetes 1.36 (apimachinery pkg/api/errors/errors.go,
pkg/util/validation/field/errors.go), because people search for them and kubectl prints them. Who refuses
what, and which fields are looked at, is decided elsewhere.

What an error is about is written as kubectl writes it: `pods`, `daemonsets.apps`, `Pod`, `DaemonSet.apps`.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.errors import DevplugError
from devplug.kubelet.gotext import go_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devplug.k8s.objects import Object

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


# ── Statuses ──


class StatusError(DevplugError):
    """A request that is answered with a Status. `str` of it is the sentence that kubectl prints."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, object] | None = None,
        *,
        why: str = "",
    ) -> None:
        self.code = code
        """The HTTP status code."""
        self.reason = reason
        """The word that programs tell refusals apart by; empty for what the real server has no word for."""
        self.message = message
        self.details = details
        self.why = why
        """What the real server knows and does not tell, for a log; often empty."""
        super().__init__(message)

    @property
    def status(self) -> Object:
        """The answer's body."""
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body


def success(what: str, name: str, uid: str) -> Object:
    """Return the answer to the deletion of something that is not given back."""
    details = {**_about(what, name), "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def not_found(what: str, name: str) -> StatusError:
    """Say that there is no object of this name."""
    return StatusError(404, "NotFound", f"{what} {go_quoted(name)} not found", _about(what, name))


def already_exists(what: str, name: str) -> StatusError:
    """Say that an object of this name is there."""
    return StatusError(409, "AlreadyExists", f"{what} {go_quoted(name)} already exists", _about(what, name))


def conflict(what: str, name: str, why: str = _MODIFIED) -> StatusError:
    """Say that a change rests on a version of the object that is no more, or on another condition not met."""
    sentence = f"Operation cannot be fulfilled on {what} {go_quoted(name)}: {why}"
    return StatusError(409, "Conflict", sentence, _about(what, name))


def invalid(kind: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """Say that an object cannot be as it is; `kind` is one, as in `Pod` and `DaemonSet.apps`."""
    listed = list(errors)
    sentences = list(dict.fromkeys(map(str, listed)))
    faults = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    details = {**_about(kind, name), "causes": [fault.cause for fault in listed]}
    return StatusError(422, "Invalid", f"{kind} {go_quoted(name)} is invalid: {faults}", details)


def forbidden(what: str, name: str, why: str) -> StatusError:
    """Say that a request is understood and refused, as quotas do."""
    about = f"{what} {go_quoted(name)}" if name else what
    return StatusError(403, "Forbidden", f"{about} is forbidden: {why}", _about(what, name))


def unauthorized() -> StatusError:
    """Say that the token is missing or another."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def bad_request(why: str) -> StatusError:
    """Say that a request is not understood."""
    return StatusError(400, "BadRequest", why)


def patch_rejected(why: str) -> StatusError:
    """Say that a patch does not fit; the real server keeps `why` to itself (handlers/patch.go)."""
    sentence = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", sentence, {}, why=why)


def method_not_supported(what: str, verb: str) -> StatusError:
    """Say that something is served, but not this verb of it."""
    sentence = f"{verb} is not supported on resources of kind {go_quoted(what)}"
    return StatusError(405, "MethodNotAllowed", sentence, _about(what, ""))


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """Say in which forms an answer can be had."""
    sentence = f"only the following media types are accepted: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", sentence)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """Say in which forms a request is understood."""
    accepts = f"accepted media types include: {', '.join(accepted)}"
    return StatusError(
        415, "UnsupportedMediaType", f"the body of the request was in an unknown format - {accepts}"
    )


def too_large(why: str) -> StatusError:
    """Say that a request has more of something than the server takes."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def expired(version: int, oldest: int) -> StatusError:
    """Say that changes since `version` are forgotten; they are known since `oldest` (watch_cache.go)."""
    return StatusError(410, "Expired", f"too old resource version: {version} ({oldest})")


def too_large_resource_version(version: int, current: int) -> StatusError:
    """Say that a version was asked for that is not reached yet (apiserver storage/errors.go)."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    sentence = f"Timeout: Too large resource version: {version}, current: {current}"
    return StatusError(504, "Timeout", sentence, {"causes": [cause], "retryAfterSeconds": 1})


def internal_error(why: str) -> StatusError:
    """Say that the server failed."""
    details = {"causes": [{"message": why}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {why}", details)


def unclassified(why: str) -> StatusError:
    """Say what the real server has no Status for, and answers as an error of its own (responsewriters)."""
    return StatusError(500, "", why)


def _about(what: str, name: str) -> Object:
    """Return the details that say what a refusal is about."""
    word, _, group = what.partition(".")
    return {key: value for key, value in (("name", name), ("group", group), ("kind", word)) if value}


# ── Field errors ──


class FieldErrorType(enum.Enum):
    """The kind of a fault, by the cause type that programs read."""

    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    INVALID = "FieldValueInvalid"
    NOT_FOUND = "FieldValueNotFound"
    REQUIRED = "FieldValueRequired"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    UNSUPPORTED = "FieldValueNotSupported"

    @property
    def words(self) -> str:
        """What people read."""
        return _WORDS[self]


_WORDS = {
    FieldErrorType.DUPLICATE: "Duplicate value",
    FieldErrorType.FORBIDDEN: "Forbidden",
    FieldErrorType.INVALID: "Invalid value",
    FieldErrorType.NOT_FOUND: "Not found",
    FieldErrorType.REQUIRED: "Required value",
    FieldErrorType.TOO_LONG: "Too long",
    FieldErrorType.TOO_MANY: "Too many",
    FieldErrorType.UNSUPPORTED: "Unsupported value",
}
_WITHOUT_VALUE = {FieldErrorType.FORBIDDEN, FieldErrorType.REQUIRED, FieldErrorType.TOO_LONG}


class Verbatim(str):
    """A value that stands in a sentence as it is written here: a Go struct as JSON."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of one field."""

    type: FieldErrorType
    field: str
    """The way to the field, as in `spec.containers[0].resources.limits[example.com/fpga]`."""
    detail: str = ""
    value: object = None
    """The value that is wrong; left out where the value does not matter."""

    @property
    def body(self) -> str:
        """The sentence without the field."""
        sentence = self.type.words
        if self.type not in _WITHOUT_VALUE:
            sentence = f"{sentence}: {_told(self.value)}"
        return f"{sentence}: {self.detail}" if self.detail else sentence

    def __str__(self) -> str:
        """Return `field: sentence`."""
        return f"{self.field}: {self.body}"

    @property
    def cause(self) -> Object:
        """One entry of `details.causes` in a Status."""
        return {"reason": self.type.value, "message": self.body, "field": self.field}


def _told(value: object) -> str:
    if isinstance(value, Verbatim):
        return str(value)
    return go_quoted(value) if isinstance(value, str) else go_json(value)


def go_json(value: object, *, sort_keys: bool = True) -> str:
    """Return `value` as Go's encoding/json writes it: no blanks, HTML's characters escaped.

    Keys are sorted, as those of a Go map are; those of a struct stay in their order.
    """
    plain = json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False)
    for character in "&<>\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def required_field(field: str, detail: str = "") -> FieldError:
    """Say that a field is missing or empty."""
    return FieldError(FieldErrorType.REQUIRED, field, detail)


def invalid_field(field: str, value: object, detail: str) -> FieldError:
    """Say that a value breaks a rule, which `detail` names."""
    return FieldError(FieldErrorType.INVALID, field, detail, value)


def forbidden_field(field: str, detail: str) -> FieldError:
    """Say that a field may not be set, or not now."""
    return FieldError(FieldErrorType.FORBIDDEN, field, detail)


def duplicate_field(field: str, value: object) -> FieldError:
    """Say that a value which must be the only one of its kind stands there twice."""
    return FieldError(FieldErrorType.DUPLICATE, field, value=value)


def unsupported_field(field: str, value: object, supported: Iterable[str]) -> FieldError:
    """Say that a value is none of those that there are."""
    words = ", ".join(map(go_quoted, supported))
    return FieldError(FieldErrorType.UNSUPPORTED, field, f"supported values: {words}" if words else "", value)


def not_found_field(field: str, value: object, detail: str) -> FieldError:
    """Say that a value names something that is not there."""
    return FieldError(FieldErrorType.NOT_FOUND, field, detail, value)


def too_long_field(field: str, limit_bytes: int) -> FieldError:
    """Say that a text has more than so many bytes; the text itself is not told."""
    return FieldError(FieldErrorType.TOO_LONG, field, f"may not be more than {limit_bytes} bytes")


def too_many_field(field: str, count: int, limit: int) -> FieldError:
    """Say that a list has more than so many items."""
    return FieldError(FieldErrorType.TOO_MANY, field, f"must have at most {limit} items", count)
