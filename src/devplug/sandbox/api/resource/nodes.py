"""Which nodes can use a device, in DRA's kinds (core validation.go ValidateNodeSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import entries, part, text
from devplug.sandbox.api.errors import forbidden_field, invalid_field, required_field
from devplug.sandbox.api.names import label_value_errors
from devplug.sandbox.api.resource.names import key_errors, node_name_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

_NO_OPERATOR: Final = "not a valid selector operator"


def chosen_nodes(owner: object, words: tuple[str, ...]) -> list[str]:
    """Return which of these fields choose nodes: not those with false or an empty name."""
    held = {word: part(owner, word) for word in words}
    return [f"`{word}`" for word, value in held.items() if value is not None and value not in ("", False)]


def node_selector_errors(selector: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with a selector."""
    place = f"{place}.nodeSelectorTerms"
    terms = entries(selector, "nodeSelectorTerms")
    if not terms:
        yield required_field(place, "must have at least one node selector term")
    for number, term in enumerate(terms):
        for index, one in enumerate(entries(term, "matchExpressions")):
            yield from _label_errors(one, f"{place}[{number}].matchExpressions[{index}]")
        for index, one in enumerate(entries(term, "matchFields")):
            yield from _field_errors(one, f"{place}[{number}].matchFields[{index}]")


def _label_errors(requirement: object, place: str) -> Iterator[FieldError]:
    values = entries(requirement, "values")
    match text(requirement, "operator"):
        case "In" | "NotIn":
            if not values:
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required_field(f"{place}.values", why)
        case "Exists" | "DoesNotExist":
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden_field(f"{place}.values", why)
        case "Gt" | "Lt":
            if len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required_field(f"{place}.values", why)
        case operator:
            yield invalid_field(f"{place}.operator", operator, _NO_OPERATOR)
    yield from key_errors(text(requirement, "key"), f"{place}.key")
    for number, value in enumerate(map(str, values)):
        for fault in label_value_errors(value):
            yield invalid_field(f"{place}.values[{number}]", value, fault)


def _field_errors(requirement: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with a requirement on a field of the node; the name is the only one."""
    values, operator = entries(requirement, "values"), text(requirement, "operator")
    if operator not in {"In", "NotIn"}:
        yield invalid_field(f"{place}.operator", operator, _NO_OPERATOR)
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required_field(f"{place}.values", why)
    if (key := text(requirement, "key")) != "metadata.name":
        yield invalid_field(f"{place}.key", key, "not a valid field selector key")
        return
    for number, value in enumerate(map(str, values)):
        yield from node_name_errors(value, f"{place}.values[{number}]")
