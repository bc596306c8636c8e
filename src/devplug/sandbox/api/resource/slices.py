"""A ResourceSlice: the pool, the nodes and the devices or counters of a driver (dra.md D41–D51)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import entries, fields, part, text, whole
from devplug.sandbox.api.errors import invalid_field, required_field
from devplug.sandbox.api.resource.devices import counters_errors, device_errors
from devplug.sandbox.api.resource.gostructs import go_list
from devplug.sandbox.api.resource.lists import set_errors
from devplug.sandbox.api.resource.names import driver_errors, node_name_errors, pool_errors
from devplug.sandbox.api.resource.nodes import chosen_nodes, node_selector_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.errors import FieldError

_DEVICES: Final = 128
_DEVICES_WITH_MORE: Final = 64
"""The most devices of a slice when any of them has taints or consumes counters (D42)."""
_COUNTER_SETS: Final = 8
_CHOICES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_CHOICE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_IMMUTABLE: Final = (("pool", "name"), ("driver",), ("nodeName",))


def slice_errors(new: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield what is wrong with a slice, or with the change from `old`."""
    spec = fields(new, "spec")
    before = None if old is None else fields(old, "spec")
    yield from driver_errors(text(spec, "driver"), "spec.driver")
    yield from _pool_errors(spec)
    for path in _IMMUTABLE if before is not None else ():
        if (value := part(spec, *path)) != part(before, *path):
            yield invalid_field(".".join(("spec", *path)), value, "field is immutable")
    yield from _node_errors(spec)
    if part(spec, "sharedCounters") is not None and part(spec, "devices") is not None:
        yield invalid_field("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _device_list_errors(spec, before or {})
    yield from set_errors(
        entries(spec, "sharedCounters"), "spec.sharedCounters", _COUNTER_SETS, _set_errors, _name
    )


def _pool_errors(spec: Object) -> Iterator[FieldError]:
    yield from pool_errors(text(spec, "pool", "name"), "spec.pool.name")
    if (count := whole(spec, "pool", "resourceSliceCount")) <= 0:
        yield invalid_field("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if (generation := whole(spec, "pool", "generation")) < 0:
        yield invalid_field("spec.pool.generation", generation, "must be greater than or equal to zero")


def _node_errors(spec: Object) -> Iterator[FieldError]:
    if name := part(spec, "nodeName"):
        yield from node_name_errors(str(name), "spec.nodeName")
    elif name is not None:
        yield invalid_field("spec.nodeName", "", "must be either unset or set to a non-empty string")
    if (selector := part(spec, "nodeSelector")) is not None:
        yield from node_selector_errors(selector, "spec.nodeSelector")
        terms = entries(selector, "nodeSelectorTerms")
        if len(terms) != 1:
            told = go_list("NodeSelectorTerm", terms)
            why = "must have exactly one node selector term"
            yield invalid_field("spec.nodeSelector.nodeSelectorTerms", told, why)
    for word in ("allNodes", "perDeviceNodeSelection"):
        if (value := part(spec, word)) is False:
            yield invalid_field(f"spec.{word}", value, "must be either unset or set to true")
    chosen = chosen_nodes(spec, _CHOICES)
    if not chosen:
        yield required_field("spec", _ONE_CHOICE)
    elif len(chosen) > 1:
        why = f"{_ONE_CHOICE}, but multiple fields are set"
        yield invalid_field("spec", f"{{{', '.join(chosen)}}}", why)


def _device_list_errors(spec: Object, before: Object) -> Iterator[FieldError]:
    devices = entries(spec, "devices")
    has_more = any(entries(one, "taints") or entries(one, "consumesCounters") for one in devices)
    old = {text(one, "name"): one for one in reversed(entries(before, "devices"))}
    names_nodes = part(spec, "perDeviceNodeSelection") is True

    def check(device: object, place: str) -> Iterator[FieldError]:
        return device_errors(device, place, old.get(text(device, "name")), names_nodes=names_nodes)

    yield from set_errors(devices, "spec.devices", _DEVICES_WITH_MORE if has_more else _DEVICES, check, _name)


def _set_errors(counters: object, place: str) -> Iterator[FieldError]:
    return counters_errors(counters, place, "name")


def _name(one: object) -> str:
    return text(one, "name")
