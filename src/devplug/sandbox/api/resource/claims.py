"""The spec of a ResourceClaim and of its template, and a DeviceClass: what is asked for (dra.md D54–D58)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text, whole
from devplug.k8s.resource_names import is_extended
from devplug.sandbox.api.errors import (
    forbidden_field,
    invalid_field,
    required_field,
    too_long_field,
    unsupported_field,
)
from devplug.sandbox.api.names import label_value_errors
from devplug.sandbox.api.resource.devices import EFFECTS
from devplug.sandbox.api.resource.gostructs import go_struct
from devplug.sandbox.api.resource.lists import list_errors, set_errors
from devplug.sandbox.api.resource.names import (
    class_name_errors,
    driver_errors,
    key_errors,
    label_name_errors,
    qualified_name_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

_REQUESTS: Final = 32
_CHOICES: Final = 8
_CONSTRAINTS: Final = 32
_CONFIGURATIONS: Final = 32
_RAW_LIMIT_BYTES: Final = 10 * 1024
_SELECTORS: Final = 32
_EXPRESSION_LIMIT_BYTES: Final = 10 * 1024
_TOO_COMPLEX: Final = "too complex, exceeds cost limit"
_MODES: Final = ("All", "ExactCount")
_OPERATORS: Final = ("Equal", "Exists")
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_RESULTS: Final = ("status", "allocation", "devices", "results")
_ONE_SORT: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_OF_TEMPLATE: Final = (
    "name",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "namespace",
    "managedFields",
)


# ── objects ──


def claim_errors(new: Object, old: Object | None, *, is_changed: bool) -> Iterator[FieldError]:
    """Yield what is wrong with a claim's spec; of a change only whether the spec `is_changed`."""
    spec = fields(new, "spec")
    if old is None:
        yield from _devices_errors(fields(spec, "devices"), "spec.devices")
    elif is_changed:
        yield invalid_field("spec", go_struct("ResourceClaimSpec", spec), "field is immutable")


def template_errors(new: Object, old: Object | None, *, is_changed: bool) -> Iterator[FieldError]:
    """Yield what is wrong with a template, by the same rules."""
    spec = fields(new, "spec")
    if old is None:
        for word in _OF_TEMPLATE:
            if part(spec, "metadata", word):
                yield forbidden_field(f"spec.metadata.{word}", "cannot be set")
        yield from _devices_errors(fields(spec, "spec", "devices"), "spec.spec.devices")
    elif is_changed:
        yield invalid_field("spec", go_struct("ResourceClaimTemplateSpec", spec), "field is immutable")


def class_errors(new: Object) -> Iterator[FieldError]:
    """Yield what is wrong with a DeviceClass."""
    spec = fields(new, "spec")
    yield from _selectors_errors(spec, "spec")
    yield from list_errors(entries(spec, "config"), "spec.config", _CONFIGURATIONS, configuration_errors)
    name = part(spec, "extendedResourceName")
    if name is not None and not is_extended(str(name)):
        yield invalid_field("spec.extendedResourceName", str(name), "must be a valid extended resource name")


def access_errors(
    kind: str, new: Object, old: Object | None, part_name: str, labels: Object
) -> Iterator[FieldError]:
    """Refuse admin access in a namespace without the label for it, `labels` being its labels (D58).

    Of a new claim or template the requests are looked at, and of a status the results; access that was
    granted before stays. The first that asks is told.
    """
    if text(labels, _ADMIN_LABEL) == "true":
        return
    granted: list[object] = []
    place = "spec.devices.requests"
    if kind == "ResourceClaim" and part_name == "status":
        place, granted = "status.allocation.devices.results", entries(new, *_RESULTS)
        if any(part(one, "adminAccess") is True for one in entries(old, *_RESULTS)):
            return
    elif old is None and kind in {"ResourceClaim", "ResourceClaimTemplate"}:
        path = ("spec", "devices") if kind == "ResourceClaim" else ("spec", "spec", "devices")
        granted = [part(one, "exactly") for one in entries(new, *path, "requests")]
    for number, one in enumerate(granted):
        if part(one, "adminAccess") is True:
            where = f"the `{_ADMIN_LABEL}: true` label on the containing namespace"
            why = f"admin access to devices requires {where}"
            yield forbidden_field(f"{place}[{number}].adminAccess", why)
            return


# ── requests ──


def _devices_errors(devices: Object, place: str) -> Iterator[FieldError]:
    requests = entries(devices, "requests")

    def constraint(one: object, place: str) -> Iterator[FieldError]:
        return _constraint_errors(one, place, requests)

    def configuration(one: object, place: str) -> Iterator[FieldError]:
        yield from request_name_list_errors(one, place, requests)
        yield from configuration_errors(one, place)

    yield from set_errors(requests, f"{place}.requests", _REQUESTS, _request_errors, _name)
    yield from list_errors(entries(devices, "constraints"), f"{place}.constraints", _CONSTRAINTS, constraint)
    yield from list_errors(entries(devices, "config"), f"{place}.config", _CONFIGURATIONS, configuration)


def _request_errors(request: object, place: str) -> Iterator[FieldError]:
    yield from label_name_errors(text(request, "name"), f"{place}.name")
    exactly, choices = part(request, "exactly"), entries(request, "firstAvailable")
    if exactly is not None and choices:
        yield invalid_field(place, None, f"{_ONE_SORT}, but multiple fields are set")
    elif exactly is not None:
        yield from _device_request_errors(exactly, f"{place}.exactly")
    elif choices:
        yield from set_errors(choices, f"{place}.firstAvailable", _CHOICES, _choice_errors, _name)
    else:
        yield required_field(place, _ONE_SORT)


def _choice_errors(choice: object, place: str) -> Iterator[FieldError]:
    yield from label_name_errors(text(choice, "name"), f"{place}.name")
    yield from _device_request_errors(choice, place)


def _device_request_errors(request: object, place: str) -> Iterator[FieldError]:
    yield from class_name_errors(text(request, "deviceClassName"), f"{place}.deviceClassName")
    yield from _selectors_errors(request, place)
    mode, count = text(request, "allocationMode"), whole(request, "count")
    if mode == "All" and count:
        why = "must not be specified when allocationMode is 'All'"
        yield invalid_field(f"{place}.count", count, why)
    elif mode == "ExactCount" and count <= 0:
        yield invalid_field(f"{place}.count", count, "must be greater than zero")
    elif mode not in _MODES:
        yield unsupported_field(f"{place}.allocationMode", mode, _MODES)
    for number, one in enumerate(entries(request, "tolerations")):
        yield from _toleration_errors(one, f"{place}.tolerations[{number}]")


def _toleration_errors(toleration: object, place: str) -> Iterator[FieldError]:
    if key := text(toleration, "key"):
        yield from key_errors(key, f"{place}.key")
    value, effect = text(toleration, "value"), text(toleration, "effect")
    match text(toleration, "operator"):
        case "Exists":
            if value:
                yield invalid_field(f"{place}.value", value, "must be empty for operator `Exists`")
        case "Equal":
            yield from (invalid_field(f"{place}.value", value, why) for why in label_value_errors(value))
        case "":
            yield required_field(f"{place}.operator")
        case operator:
            yield unsupported_field(f"{place}.operator", operator, _OPERATORS)
    if effect and effect not in EFFECTS:
        yield unsupported_field(f"{place}.effect", effect, EFFECTS)


def _constraint_errors(constraint: object, place: str, requests: list[object]) -> Iterator[FieldError]:
    yield from request_name_list_errors(constraint, place, requests)
    for word in ("matchAttribute", "distinctAttribute"):
        if (name := part(constraint, word)) is not None:
            yield from qualified_name_errors(str(name), f"{place}.{word}", needs_domain=True)
            return
    why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    yield required_field(place, why)


# ── names of requests ──


def request_name_list_errors(owner: object, place: str, requests: list[object]) -> Iterator[FieldError]:
    """Yield what is wrong with the `requests` of a constraint or a configuration."""

    def check(name: object, place: str) -> Iterator[FieldError]:
        return request_name_errors(str(name), place, requests)

    return set_errors(entries(owner, "requests"), f"{place}.requests", _REQUESTS, check, str)


def request_name_errors(name: str, place: str, requests: list[object]) -> Iterator[FieldError]:
    """Yield what keeps `name` from naming one of `requests`, or a subrequest, as `request/subrequest`."""
    steps = name.split("/")
    if len(steps) > 2:
        yield invalid_field(place, name, _NO_REQUEST)
        return
    for step in steps:
        yield from label_name_errors(step, place)
    found = [one for one in requests if text(one, "name") == steps[0]][-1:]
    if len(steps) == 2:
        found = [
            one for request in found for one in entries(request, "firstAvailable") if _name(one) == steps[1]
        ]
    if not found:
        yield invalid_field(place, name, _NO_REQUEST)


# ── configuration ──


def configuration_errors(configuration: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with the opaque configuration of a class, a claim or an allocation."""
    place = f"{place}.opaque"
    opaque = part(configuration, "opaque")
    if opaque is None:
        yield required_field(place)
        return
    yield from driver_errors(text(opaque, "driver"), f"{place}.driver")
    yield from raw_errors(part(opaque, "parameters"), f"{place}.parameters")


def raw_errors(value: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with an object of a driver's own (RawExtension), whose form only it knows."""
    if value is None:
        yield required_field(place)
    elif len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _RAW_LIMIT_BYTES:
        yield too_long_field(place, _RAW_LIMIT_BYTES)
    elif not isinstance(value, dict):
        yield invalid_field(place, "<value omitted>", "must be a valid JSON object")


def _name(one: object) -> str:
    return text(one, "name")


# ── selectors (D67–D71) ──


def _compile_error(expression: str) -> str | None:
    """Return why the API server refuses an expression, in its words; None for a right one.

    Without the extra `dra` there is no CEL, and every expression is taken.
    """
    from devplug.dra.selectors import MissingCelError, is_too_complex, problem_of

    try:
        problem = problem_of(expression)
    except MissingCelError:
        return None
    return problem or (_TOO_COMPLEX if is_too_complex(expression) else None)


def _selectors_errors(owner: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with the `selectors` of a class or a request at `place`."""
    return list_errors(entries(owner, "selectors"), f"{place}.selectors", _SELECTORS, _selector_errors)


def _selector_errors(selector: object, place: str) -> Iterator[FieldError]:
    if part(selector, "cel") is None:
        yield required_field(f"{place}.cel")
        return
    expression, place = text(selector, "cel", "expression"), f"{place}.cel.expression"
    if len(expression.encode()) > _EXPRESSION_LIMIT_BYTES:
        yield too_long_field(place, _EXPRESSION_LIMIT_BYTES)
    elif fault := _compile_error(expression):
        is_refused = fault == _TOO_COMPLEX
        yield forbidden_field(place, fault) if is_refused else invalid_field(place, expression, fault)
