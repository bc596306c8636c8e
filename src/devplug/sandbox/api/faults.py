"""What is wrong with one field of an object, in the words of the API server (validation/field/errors.go).

Which fields are looked at is for who validates; the answer that is made of faults is `statuses`'.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.kubelet.gotext import go_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.api.objects import Object

__all__ = [
    "FaultType",
    "FieldFault",
    "duplicate",
    "forbidden",
    "go_json",
    "invalid",
    "required",
    "unsupported",
]


class FaultType(enum.Enum):
    """The kind of a fault, by the cause type that programs read."""

    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    UNSUPPORTED = "FieldValueNotSupported"

    @property
    def words(self) -> str:
        """What people read."""
        return _WORDS[self]


_WORDS = {
    FaultType.DUPLICATE: "Duplicate value",
    FaultType.FORBIDDEN: "Forbidden",
    FaultType.INVALID: "Invalid value",
    FaultType.REQUIRED: "Required value",
    FaultType.UNSUPPORTED: "Unsupported value",
}
_WITHOUT_VALUE = {FaultType.FORBIDDEN, FaultType.REQUIRED}


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One fault of one field."""

    type: FaultType
    field: str
    """The way to the field, as in `spec.containers[0].resources.limits[example.com/fpga]`."""
    detail: str = ""
    value: object = None
    """The value that is wrong; not told for a fault of which the value says nothing."""

    @property
    def body(self) -> str:
        """The sentence without the field."""
        told = self.type.words
        if self.type not in _WITHOUT_VALUE:
            value = go_quoted(self.value) if isinstance(self.value, str) else go_json(self.value)
            told = f"{told}: {value}"
        return f"{told}: {self.detail}" if self.detail else told

    def __str__(self) -> str:
        """Return `field: sentence`."""
        return f"{self.field}: {self.body}"

    @property
    def cause(self) -> Object:
        """One entry of `details.causes` in a Status."""
        return {"reason": self.type.value, "message": self.body, "field": self.field}


def go_json(value: object) -> str:
    """Return `value` as Go's encoding/json writes it: keys sorted, no blanks, HTML's characters escaped."""
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "&<>\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def required(field: str, detail: str = "") -> FieldFault:
    """Say that a field is missing or empty."""
    return FieldFault(FaultType.REQUIRED, field, detail)


def invalid(field: str, value: object, detail: str) -> FieldFault:
    """Say that a value breaks a rule, which `detail` names."""
    return FieldFault(FaultType.INVALID, field, detail, value)


def forbidden(field: str, detail: str) -> FieldFault:
    """Say that a field may not be set, or not now."""
    return FieldFault(FaultType.FORBIDDEN, field, detail)


def duplicate(field: str, value: object) -> FieldFault:
    """Say that a value which must be the only one of its kind stands there twice."""
    return FieldFault(FaultType.DUPLICATE, field, value=value)


def unsupported(field: str, value: object, supported: Iterable[str]) -> FieldFault:
    """Say that a value is none of those that there are."""
    words = ", ".join(map(go_quoted, supported))
    return FieldFault(FaultType.UNSUPPORTED, field, f"supported values: {words}" if words else "", value)
