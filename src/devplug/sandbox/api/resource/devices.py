"""A device of a ResourceSlice: attributes, capacities, taints, counters, conditions (dra.md D42–D47, D86)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import entries, fields, part, same, text
from devplug.k8s.quantity import Quantity, canonical
from devplug.sandbox.api.errors import (
    duplicate_field,
    forbidden_field,
    invalid_field,
    required_field,
    too_long_field,
    unsupported_field,
)
from devplug.sandbox.api.names import label_value_errors
from devplug.sandbox.api.resource.gostructs import go_struct
from devplug.sandbox.api.resource.lists import list_errors, map_errors, set_errors
from devplug.sandbox.api.resource.names import (
    driver_errors,
    key_errors,
    label_name_errors,
    node_name_errors,
    pool_errors,
    qualified_name_errors,
    required_label_errors,
)
from devplug.sandbox.api.resource.nodes import chosen_nodes, node_selector_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

_FACTS: Final = 32
"""The most attributes and capacities together."""
_VALUE_LIMIT_BYTES: Final = 64
_TAINTS: Final = 16
_CONSUMED_SETS: Final = 2
_COUNTERS: Final = 32
_CONDITIONS: Final = 4
_VALUES: Final = 10
_NONE: Final = Quantity.parse("0")
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
)
"""A version of semver.org 2.0.0."""

_CHOICES: Final = ("nodeName", "nodeSelector", "allNodes")
_ONE_CHOICE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is "
    "set to true in the ResourceSlice spec"
)


def device_errors(device: object, place: str, old: object, *, names_nodes: bool) -> Iterator[FieldError]:
    """Yield what is wrong with a device; `old` is the one of its name before, `names_nodes` the slice's rule.

    Taints that stay as they were are not looked at again.
    """
    attributes, capacity = fields(device, "attributes"), fields(device, "capacity")
    yield from label_name_errors(text(device, "name"), f"{place}.name")
    if (count := len(attributes) + len(capacity)) > _FACTS:
        why = f"the total number of attributes and capacities must not exceed {_FACTS}"
        yield invalid_field(place, count, why)
    yield from map_errors(attributes, f"{place}.attributes", None, qualified_name_errors, _attribute_errors)
    yield from _capacities_errors(device, place)
    taints = entries(device, "taints")
    if old is None or not same(taints, entries(old, "taints")):
        yield from list_errors(taints, f"{place}.taints", _TAINTS, _taint_errors)
    yield from set_errors(
        entries(device, "consumesCounters"),
        f"{place}.consumesCounters",
        _CONSUMED_SETS,
        _consumption_errors,
        lambda one: text(one, "counterSet"),
    )
    yield from _node_errors(device, place, names_nodes=names_nodes)
    yield from binding_errors(device, place)


# ── attributes ──


def _attribute_errors(attribute: object, place: str) -> Iterator[FieldError]:
    given = fields(attribute)
    if (written := part(given, "string")) is not None and len(str(written).encode()) > _VALUE_LIMIT_BYTES:
        yield too_long_field(f"{place}.string", _VALUE_LIMIT_BYTES)
    if (version := part(given, "version")) is not None:
        if not _VERSION.fullmatch(str(version)):
            why = "must be a string compatible with semver.org spec 2.0.0"
            yield invalid_field(f"{place}.version", str(version), why)
        if len(str(version).encode()) > _VALUE_LIMIT_BYTES:
            yield too_long_field(f"{place}.version", _VALUE_LIMIT_BYTES)
    count = sum(part(given, word) is not None for word in ("int", "bool", "string", "version"))
    if count != 1:
        value = go_struct("DeviceAttribute", given) if count else ""
        yield invalid_field(place, value, "exactly one value must be specified")


# ── taints ──


def _taint_errors(taint: object, place: str) -> Iterator[FieldError]:
    yield from key_errors(text(taint, "key"), f"{place}.key")
    value = text(taint, "value")
    yield from (invalid_field(f"{place}.value", value, fault) for fault in label_value_errors(value))
    if not (effect := text(taint, "effect")):
        yield required_field(f"{place}.effect")
    elif effect not in EFFECTS:
        yield unsupported_field(f"{place}.effect", effect, EFFECTS)


def taint_rule_errors(rule: object) -> Iterator[FieldError]:
    """Yield what is wrong with a DeviceTaintRule (pkg/apis/resource/validation, ValidateDeviceTaintRule)."""
    selector = fields(rule, "spec", "deviceSelector")
    checks = {"driver": driver_errors, "pool": pool_errors, "device": label_name_errors}
    for word, errors in checks.items():
        if (name := part(selector, word)) is not None:
            yield from errors(str(name), f"spec.deviceSelector.{word}")
    yield from _taint_errors(fields(rule, "spec", "taint"), "spec.taint")


# ── counters ──


def counters_errors(owner: object, place: str, word: str) -> Iterator[FieldError]:
    """Yield what is wrong with a set of counters that has its name in the field `word`."""
    yield from required_label_errors(text(owner, word), f"{place}.{word}")
    if counters := fields(owner, "counters"):
        yield from map_errors(counters, f"{place}.counters", _COUNTERS, label_name_errors, _no_errors)
    else:
        yield required_field(f"{place}.counters")


def _consumption_errors(consumption: object, place: str) -> Iterator[FieldError]:
    return counters_errors(consumption, place, "counterSet")


def _no_errors(_value: object, _place: str) -> Iterator[FieldError]:
    return iter(())


# ── nodes ──


def _node_errors(device: object, place: str, *, names_nodes: bool) -> Iterator[FieldError]:
    given = {word: value for word in _CHOICES if (value := part(device, word)) is not None}
    if not names_nodes:
        if given:
            why = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is "
                "set to true in the ResourceSlice spec"
            )
            yield invalid_field(place, None, why)
        return
    if name := given.get("nodeName"):
        yield from node_name_errors(str(name), f"{place}.nodeName")
    elif name is not None:
        yield invalid_field(f"{place}.nodeName", "", "must not be empty")
    if "nodeSelector" in given:
        yield from node_selector_errors(given["nodeSelector"], f"{place}.nodeSelector")
    if given.get("allNodes") is False:
        yield invalid_field(f"{place}.allNodes", False, "must be either unset or set to true")  # noqa: FBT003 -- the value
    chosen = chosen_nodes(device, _CHOICES)
    if not chosen:
        yield required_field(place, _ONE_CHOICE)
    elif len(chosen) > 1:
        yield invalid_field(place, f"{{{', '.join(chosen)}}}", _ONE_CHOICE)


# ── binding conditions ──


def binding_errors(owner: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with the binding conditions of a device, or of the result of an allocation."""
    lists = {word: entries(owner, word) for word in ("bindingConditions", "bindingFailureConditions")}
    for word, conditions in lists.items():
        yield from list_errors(conditions, f"{place}.{word}", _CONDITIONS, _condition_errors)
    wanted, failing = lists.values()
    for word, conditions in lists.items():
        for number, condition in enumerate(conditions):
            if condition in conditions[:number]:
                yield duplicate_field(f"{place}.{word}[{number}]", condition)
            if conditions is failing and condition in wanted:
                why = "bindingFailureConditions must not overlap with bindingConditions"
                yield invalid_field(f"{place}.{word}[{number}]", condition, why)
    for missing, other in zip(lists, reversed(lists), strict=True):
        if lists[other] and not lists[missing]:
            why = f"{missing} are required to use {other}"
            yield invalid_field(f"{place}.{missing}", part(owner, missing), why)


def _condition_errors(condition: object, place: str) -> Iterator[FieldError]:
    return key_errors(str(condition), place)


# ── capacities ──


def _capacities_errors(device: object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with the capacities of a device."""
    is_shared = part(device, "allowMultipleAllocations") is True
    check = _shared_errors if is_shared else _exclusive_errors
    return map_errors(fields(device, "capacity"), f"{place}.capacity", None, qualified_name_errors, check)


def _exclusive_errors(capacity: object, place: str) -> Iterator[FieldError]:
    if part(capacity, "requestPolicy") is not None:
        yield forbidden_field(f"{place}.requestPolicy", "allowMultipleAllocations must be true")


def _shared_errors(capacity: object, place: str) -> Iterator[FieldError]:
    policy, place = part(capacity, "requestPolicy"), f"{place}.requestPolicy"
    if policy is None:
        return
    whole = _quantity(capacity, "value") or _NONE
    default = _quantity(policy, "default")
    values, limits = entries(policy, "validValues"), part(policy, "validRange")
    if values and limits is not None:
        yield forbidden_field(
            place,
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same '
            "time",
        )
    elif values:
        if default is None:
            yield required_field(f"{place}.default", "required when validValues is defined")
        else:
            yield from _value_errors(list(map(_read, values)), default, whole, f"{place}.validValues")
    elif limits is not None:
        if default is None:
            yield required_field(f"{place}.default", "required when validRange is defined")
        else:
            yield from _range_errors(limits, default, whole, f"{place}.validRange")


def _value_errors(
    values: list[Quantity], default: Quantity, whole: Quantity, place: str
) -> Iterator[FieldError]:
    for number, (one, following) in enumerate(pairwise(values), 1):
        if one.number > following.number:
            why = "values must be sorted in ascending order"
            yield invalid_field(f"{place}[{number}]", canonical(following), why)

    def check(value: object, place: str) -> Iterator[FieldError]:
        if isinstance(value, Quantity) and value.number > whole.number:
            why = f"option is larger than capacity value: {canonical(whole)}"
            yield invalid_field(place, canonical(value), why)

    yield from set_errors(values, place, _VALUES, check, _key)
    if len(values) > _VALUES or all(one.number != default.number for one in values):
        why = "default value is not valid according to the requestPolicy"
        yield invalid_field(place, canonical(default), why)


def _key(value: object) -> str:
    return str(value.value) if isinstance(value, Quantity) else ""


def _range_errors(limits: object, default: Quantity, whole: Quantity, place: str) -> Iterator[FieldError]:
    low, high, step = (_quantity(limits, word) for word in ("min", "max", "step"))
    if low is None:
        yield required_field(f"{place}.min", "required when validRange is defined")
        return
    for word, told, is_over, limit, why in (
        ("min", low, _over(low, whole), whole, "min is larger than capacity value"),
        ("min", default, _over(low, default), low, "default is less than min"),
        ("max", low, _over(low, high), high, "min is larger than max"),
        ("max", high, _over(high, whole), whole, "max is larger than capacity value"),
        ("max", default, _over(default, high), high, "default is more than max"),
    ):
        if is_over and told is not None and limit is not None:
            yield invalid_field(f"{place}.{word}", canonical(told), f"{why}: {canonical(limit)}")
    if step is not None:
        yield from _step_errors(low, high, step, default, whole, f"{place}.step")


def _over(left: Quantity | None, right: Quantity | None) -> bool:
    return left is not None and right is not None and left.number > right.number


def _step_errors(
    low: Quantity, high: Quantity | None, step: Quantity, default: Quantity, whole: Quantity, place: str
) -> Iterator[FieldError]:
    """Yield what does not lie on the grid of steps from the least value on; whole numbers are looked at."""
    if step.value <= 0:  # 1.36 divides by it, and fails; 1.37 has this sentence
        yield invalid_field(place, canonical(step), "must be greater than zero")
        return
    if low.number + step.number > whole.number:
        reached = canonical(_sum(low, step))
        why = f"one step {reached} is larger than capacity value: {canonical(whole)}"
        yield invalid_field(place, canonical(step), why)
    for value in (default, high):
        if value is not None and (value.value - low.value) % step.value:
            why = f"value is not a multiple of a given step ({canonical(step)}) from ({canonical(low)})"
            yield invalid_field(place, canonical(value), why)


def _sum(left: Quantity, right: Quantity) -> Quantity:
    """Return a sum in the form of the first one, unless that is zero (quantity.go Add)."""
    form = left if left.number else right
    return Quantity(form.text, left.number + right.number)


def _quantity(owner: object, word: str) -> Quantity | None:
    value = part(owner, word)
    return None if value is None else _read(value)


def _read(value: object) -> Quantity:
    return Quantity.parse(str(value))
