"""Consumable capacity: what a request takes from a shared device, and whether it fits. Pure.

The rules are D86's: what is not asked for counts as the policy's default, else as the whole value; what is
asked for is rounded up as the policy says, and refused above its last value.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from devplug.k8s.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.dra.objects import Capacity, Device, RequestPolicy, ValidRange

_STEP = 1024
_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def consumed(device: Device, requests: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return what a request takes of each capacity of a device."""
    return {name: _consumed(requests.get(name), one) for name, one in device.capacity.items()}


def fits(
    device: Device,
    requests: Mapping[str, Quantity],
    *in_use: Mapping[str, Fraction],
) -> bool:
    """Whether a device has room for a request beside what is in use of its capacities."""
    return next(shortages(device, requests, *in_use), None) is None


def shortages(
    device: Device,
    requests: Mapping[str, Quantity],
    *in_use: Mapping[str, Fraction],
) -> Iterator[tuple[str, str]]:
    """Yield each capacity that keeps a request from a device, with the figures."""
    for name in requests:
        if name not in device.capacity:
            yield name, "the device has none"
    for name, one in device.capacity.items():
        taken = _consumed(requests.get(name), one)
        if one.policy is not None and _is_refused(taken, one.policy):
            yield name, f"{taken.text} asked, which the request policy of the device does not allow"
            continue
        used = sum((used[name] for used in in_use if name in used), Fraction())
        if taken.number + used > one.value.number:
            yield name, f"{taken.text} asked, {amount(one.value.number - used)} of {one.value.text} left"


def amount(number: Fraction) -> str:
    """Return a number as people write quantities."""
    if number.denominator != 1 or number < 0:
        return f"{float(number):g}"
    return _binary(number.numerator).text


def _consumed(asked: Quantity | None, capacity: Capacity) -> Quantity:
    policy = capacity.policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.valid_range is not None:
        return _in_range(asked, policy.valid_range)
    return next((one for one in policy.valid_values if asked.number <= one.number), asked)


def _in_range(asked: Quantity, limits: ValidRange) -> Quantity:
    """Round up to the grid; whole numbers are reckoned with, as Quantity.Value gives them."""
    if asked.number < limits.least.number:
        return limits.least
    if limits.step is None:
        return asked
    steps = -((limits.least.value - asked.value) // limits.step.value)
    return _binary(limits.least.value + steps * limits.step.value)


def _is_refused(taken: Quantity, policy: RequestPolicy) -> bool:
    if policy.default is not None and taken == policy.default:
        return False
    limits = policy.valid_range
    if limits is not None:
        if limits.most is not None and taken.number > limits.most.number:
            return True
        return limits.step is not None and bool((taken.value - limits.least.value) % limits.step.value)
    return bool(policy.valid_values) and all(taken.number != one.number for one in policy.valid_values)


def _binary(number: int) -> Quantity:
    """Return a whole number as a quantity with a binary suffix (resource.NewQuantity, BinarySI)."""
    rest, power = number, 0
    while rest and rest % _STEP == 0 and power < len(_SUFFIXES) - 1:
        rest, power = rest // _STEP, power + 1
    return Quantity(f"{rest}{_SUFFIXES[power]}", Fraction(number))
