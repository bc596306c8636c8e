"""The defaults of DRA's kinds, and the fields that the API server drops (pkg/apis/resource/v1/defaults.go).

Dropped are those of feature gates that are off in Kubernetes 1.36 (dra.md D49).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text, with_part
from devplug.k8s.times import stamp
from devplug.sandbox.api.defaults import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource

__all__ = ["devices_defaulted"]

_OF_GATES: Final = ("ints", "bools", "strings", "versions")
_RANGE: Final = ("min", "max", "step")


def devices_defaulted(resource: Resource, one: Object, now: datetime) -> Object:
    """Return an object of one of DRA's kinds with its defaults; raises `StatusError` for a wrong quantity.

    A taint without a time gets `now` (D80).
    """

    def quantity(value: object) -> str:
        return canonical_quantity(value, resource)

    match resource.kind:
        case "ResourceClaim":
            one = _mapped(one, lambda request: _request(request, quantity), *_REQUESTS)
            return _mapped(one, lambda result: _result(result, quantity), *_RESULTS)
        case "ResourceClaimTemplate":
            return _mapped(one, lambda request: _request(request, quantity), "spec", *_REQUESTS)
        case "ResourceSlice":
            one = _mapped(one, lambda device: _device(device, quantity, now), "spec", "devices")
            return _mapped(one, lambda counters: _counted(counters, quantity), "spec", "sharedCounters")
    return one


_REQUESTS: Final = ("spec", "devices", "requests")
_RESULTS: Final = ("status", "allocation", "devices", "results")


def _mapped(owner: Object, change: Callable[[Object], Object], *path: str) -> Object:
    """Return `owner` with each map of the list at `path` changed."""
    found = entries(owner, *path)
    if not found:
        return owner
    return with_part(owner, [change(fields(one)) for one in found], *path)


# ── claims ──


def _request(request: Object, quantity: Callable[[object], str]) -> Object:
    if isinstance(part(request, "exactly"), dict):
        request = {**request, "exactly": _choice(fields(request, "exactly"), quantity)}
    return _mapped(request, lambda one: _choice(one, quantity), "firstAvailable")


def _choice(choice: Object, quantity: Callable[[object], str]) -> Object:
    mode = text(choice, "allocationMode") or "ExactCount"
    choice = {**choice, "allocationMode": mode}
    if mode == "ExactCount" and not part(choice, "count"):
        choice["count"] = 1
    if asked := fields(choice, "capacity", "requests"):
        choice = with_part(choice, _quantities(asked, quantity), "capacity", "requests")
    return _mapped(choice, _toleration, "tolerations")


def _toleration(toleration: Object) -> Object:
    return {**toleration, "operator": text(toleration, "operator") or "Equal"}


def _result(result: Object, quantity: Callable[[object], str]) -> Object:
    result = _mapped(result, _toleration, "tolerations")
    if consumed := fields(result, "consumedCapacity"):
        result = {**result, "consumedCapacity": _quantities(consumed, quantity)}
    return result


# ── slices ──


def _device(device: Object, quantity: Callable[[object], str], now: datetime) -> Object:
    def taint(one: Object) -> Object:
        return one if text(one, "timeAdded") else {**one, "timeAdded": stamp(now)}

    device = {key: value for key, value in device.items() if key != "nodeAllocatableResourceMappings"}
    for word, change in (("attributes", _attribute), ("capacity", lambda one: _capacity(one, quantity))):
        if found := fields(device, word):
            device[word] = {key: change(fields(one)) for key, one in found.items()}
    device = _mapped(device, taint, "taints")
    return _mapped(device, lambda one: _counted(one, quantity), "consumesCounters")


def _attribute(attribute: Object) -> Object:
    return {key: value for key, value in attribute.items() if key not in _OF_GATES}


def _capacity(capacity: Object, quantity: Callable[[object], str]) -> Object:
    capacity = {**capacity, "value": quantity(part(capacity, "value"))}
    policy = part(capacity, "requestPolicy")
    if not isinstance(policy, dict):
        return capacity
    policy = _canonical(policy, ("default",), quantity)
    if values := entries(policy, "validValues"):
        policy["validValues"] = [quantity(one) for one in values]
    if limits := fields(policy, "validRange"):
        policy["validRange"] = _canonical(limits, _RANGE, quantity)
    return {**capacity, "requestPolicy": policy}


def _counted(counters: Object, quantity: Callable[[object], str]) -> Object:
    found = {
        key: {**fields(one), "value": quantity(part(one, "value"))}
        for key, one in fields(counters, "counters").items()
    }
    return {**counters, "counters": found} if found else counters


def _canonical(owner: Object, words: tuple[str, ...], quantity: Callable[[object], str]) -> Object:
    written = {word: quantity(value) for word in words if (value := part(owner, word)) is not None}
    return {**owner, **written}


def _quantities(owner: Object, quantity: Callable[[object], str]) -> Object:
    return {key: quantity(value) for key, value in owner.items()}
