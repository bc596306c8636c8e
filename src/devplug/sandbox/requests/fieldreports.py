"""What becomes of fields that a kind does not have, and of values that cannot be read: `fieldValidation`.

The sentences are the API server's (handlers/create.go, handlers/patch.go; KEP-2885). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.faults import go_json, invalid
from devplug.sandbox.api.patching import STRATEGIC_PATCH
from devplug.sandbox.api.statuses import bad_request
from devplug.sandbox.api.statuses import invalid as invalid_object
from devplug.sandbox.requests.options import FieldValidation

if TYPE_CHECKING:
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.openapi.fieldvalidation import FieldReport
    from devplug.sandbox.requests.bodies import Decoded

__all__ = ["FieldCheck", "of_body", "of_patch"]


class FieldCheck(Protocol):
    """Says which fields of a decoded body are unknown, and whether its values can be read."""

    def __call__(self, resource: Resource, body: object, /) -> FieldReport:
        """Return what a decoder would say of `body`, an object of `resource`."""


def of_body(
    resource: Resource, given: Decoded, wanted: FieldValidation, field_report: FieldCheck
) -> tuple[str, ...]:
    """Return the warnings about an object that was sent; raises `StatusError` (400).

    Of a kind that is refused anyhow nothing is said here.
    """
    if resource.refusal:
        return ()
    report = field_report(resource, given.value)
    told = f"{resource.kind} in version {go_quoted(resource.version)} cannot be handled as a {resource.kind}"
    if report.unreadable:
        raise bad_request(f"{told}: {report.unreadable}")
    sentences = (*given.duplicates, *report.unknown)
    if sentences and wanted is FieldValidation.STRICT:
        raise bad_request(f"{told}: {_strict(sentences)}")
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
        fault = invalid("patch", value, report.unreadable or _strict(sentences))
        raise invalid_object("", "", [fault])
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
