"""Field selectors: `spec.nodeName=worker-0,status.phase!=Running`, and which fields each kind has for them.

The language is apimachinery's (pkg/fields/selector.go); the fields are those of pkg/apis/core/v1, resource/v1
and events/v1 conversion.go, and their values those of each kind's `ToSelectableFields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, part, text
from devplug.sandbox.api.labelselectors import SelectorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.sandbox.api.kinds import Resource

_COMMON: Final = ("metadata.name", "metadata.namespace")
_INVOLVED: Final = tuple(
    f"involvedObject.{field}"
    for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_SELECTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "events": (*_INVOLVED, "reason", "reportingComponent", "source", "type", *_COMMON),
    "namespaces": ("status.phase", "metadata.name"),
    "nodes": ("metadata.name", "spec.unschedulable"),
    "pods": (
        *_COMMON,
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    "resourceslices.resource.k8s.io": ("metadata.name", "spec.nodeName", "spec.driver"),
}
_RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "events.events.k8s.io": {
        **{name.replace("involvedObject", "regarding"): name for name in _INVOLVED},
        **{name: name for name in ("reason", "type", *_COMMON)},
        "reportingController": "reportingComponent",
    },
    "pods": {"spec.host": "spec.nodeName"},
}
_BOOLEANS: Final = ("spec.hostNetwork", "spec.unschedulable")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One field, and the value that it must have, or must not have."""

    field: str
    value: str
    equal: bool = True

    def matches(self, one: Object) -> bool:
        """Whether the object's field is so."""
        return (_value(one, self.field) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms that must all be met; without any, everything meets them."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, one: Object) -> bool:
        """Whether the object, in the form in which it is kept, meets all terms."""
        return all(term.matches(one) for term in self.terms)


def field_selector(written: str, resource: Resource) -> FieldSelector:
    """Read a selector for objects of `resource`; raises `SelectorError`."""
    return FieldSelector(tuple(_terms(written, resource)))


def _terms(written: str, resource: Resource) -> Iterator[FieldTerm]:
    for term in sorted(_split(written)):
        place, sign = _sign(term)
        if not sign:
            raise SelectorError(f"invalid selector: '{written}'; can't understand '{term}'")
        value = _unescaped(term[place + len(sign) :])
        yield FieldTerm(_field(term[:place], resource), value, equal=sign != "!=")


def _split(written: str) -> Iterator[str]:
    """Yield the terms; a comma after a backslash is part of one."""
    term, escaped = "", False
    for character in written:
        if character == "," and not escaped:
            if term:
                yield term
            term = ""
        else:
            term += character
        escaped = character == "\\" and not escaped
    if term:
        yield term


def _sign(term: str) -> tuple[int, str]:
    """Return the first sign and its place; an empty sign if there is none."""
    for place in range(len(term)):
        for sign in ("!=", "==", "="):
            if term.startswith(sign, place):
                return place, sign
    return len(term), ""


def _unescaped(value: str) -> str:
    plain, escaped = "", False
    for character in value:
        if escaped and character not in "\\,=":
            raise SelectorError(f"invalid field selector: invalid escape sequence: \\{character}")
        if not escaped and character in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(character)}")
        escaped = character == "\\" and not escaped
        plain += "" if escaped else character
    if escaped:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return plain


def _field(name: str, resource: Resource) -> str:
    """Return the field under the name by which objects are kept."""
    renamed = _RENAMED.get(resource.qualified, {})
    if name in renamed:
        return renamed[name]
    known = _SELECTABLE.get(resource.qualified, ())
    if resource.qualified in _RENAMED and not known:
        raise SelectorError(f"field label not supported: {name}")
    if known and name not in known:
        of_kind = f"{resource.api_version}, Kind={resource.kind}"
        what = f" for {of_kind}" if resource.group == "resource.k8s.io" else ""
        raise SelectorError(f"field label not supported{what}: {name}")
    if not known and name not in _COMMON:
        fields = ", ".join(f'"{field}"' for field in _COMMON)
        raise SelectorError(f'"{name}" is not a known field selector: only {fields}')
    return name


def _value(one: Object, field: str) -> str:
    """Return a field's value as a text; empty for what is not there."""
    if field == "source":
        return text(one, "source", "component") or text(one, "reportingComponent")
    if field in _BOOLEANS:
        return "true" if part(one, *field.split(".")) is True else "false"
    return text(one, *field.split("."))
