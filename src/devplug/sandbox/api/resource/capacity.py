"""The capacities of a device and the policy of requests for a part of one (dra.md D47, D86)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import entries, fields, part
from devplug.k8s.quantity import Quantity, canonical
from devplug.sandbox.api.errors import forbidden_field, invalid_field, required_field
from devplug.sandbox.api.resource.lists import map_errors, set_errors
from devplug.sandbox.api.resource.names import qualified_name_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

__all__ = ["capacity_errors"]

_VALUES: Final = 10
_NONE: Final = Quantity.parse("0")


def capacity_errors(device: object, place: str) -> Iterator[FieldError]:
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
