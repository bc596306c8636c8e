"""Counts of a resource that no plugin serves: which change of a node's status sets or removes them.

It is the way that Kubernetes documents for resources without hardware ("Advertise Extended Resources for a
Node"). The kubelet leaves capacity that it does not know alone and copies it to allocatable
(pkg/kubelet/nodestatus/setters.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.devices import resource_name_fault
from devplug.errors import DevplugError, quoted
from devplug.sandbox.api.objects import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.sandbox.api.objects import Object

__all__ = ["AdvertisementError", "Wish", "changes", "lines", "warnings", "wish_of"]

_MOST: Final = 2**63 - 1
"""The largest value of a quantity (apimachinery resource/quantity.go)."""


class AdvertisementError(DevplugError):
    """What is asked for cannot be advertised; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a node shall advertise, and what no more."""

    counts: Mapping[str, int]
    """Resource name → how many."""
    removed: tuple[str, ...] = ()
    """Resource names."""


def wish_of(assignments: Iterable[str], removed: Iterable[str]) -> Wish:
    """Read `vendor.com/kind=N` and names to remove; raises `AdvertisementError`."""
    counts: dict[str, int] = {}
    for assignment in assignments:
        name, equals, written = assignment.partition("=")
        if not equals:
            raise AdvertisementError(f"{quoted(assignment)} has no count; write {name}=2, or --remove {name}")
        _check_name(name)
        if not (written.isascii() and written.isdigit() and int(written) <= _MOST):
            raise AdvertisementError(
                f"{quoted(assignment)}: the count is a whole number, 0 or more, as in {name}=2"
            )
        if name in counts:
            raise AdvertisementError(f"{name} is given two counts; leave one out")
        counts[name] = int(written)
    gone = tuple(dict.fromkeys(removed))
    for name in gone:
        _check_name(name)
        if name in counts:
            raise AdvertisementError(f"{name} is both set and removed; leave one out")
    if not counts and not gone:
        raise AdvertisementError("nothing to do; write vendor.com/kind=2, or --remove vendor.com/kind")
    return Wish(counts, gone)


def _check_name(name: str) -> None:
    if fault := resource_name_fault(name):
        raise AdvertisementError(f"resource name {quoted(name)} {fault}")


def changes(node: Object, wish: Wish) -> list[Object]:
    """Return the JSON patch (RFC 6902) of a node's status that makes the wish true; empty if it is."""
    capacity, allocatable = _amounts(node)
    patch: list[Object] = []
    new = {name: str(count) for name, count in wish.counts.items() if capacity.get(name) != str(count)}
    if new and not capacity:
        patch.append({"op": "add", "path": "/status/capacity", "value": new})
    else:
        patch += [
            {"op": "replace" if name in capacity else "add", "path": _path("capacity", name), "value": count}
            for name, count in new.items()
        ]
    for name in wish.removed:
        # A kubelet that runs drops what has no capacity; where none does, both entries would stay.
        for part, amounts in (("capacity", capacity), ("allocatable", allocatable)):
            if name in amounts:
                patch.append({"op": "remove", "path": _path(part, name)})
    return patch


def lines(node_name: str, node: Object, wish: Wish) -> list[str]:
    """Tell what becomes of each resource, one line each."""
    capacity, allocatable = _amounts(node)
    told = []
    for name, count in wish.counts.items():
        before = capacity.get(name, "0")
        stays = capacity.get(name) == str(count)
        told.append(
            f"{node_name}: {name} stays {count}" if stays else f"{node_name}: {name} {before} -> {count}"
        )
    for name in wish.removed:
        if name in capacity or name in allocatable:
            before = capacity.get(name) or allocatable.get(name, "0")
            told.append(f"{node_name}: {name} {before} -> removed")
        else:
            told.append(f"{node_name}: {name} is not there")
    return told


def warnings(node_name: str, node: Object, wish: Wish) -> list[str]:
    """Tell which counts a device plugin seems to own: the API does not say whether one is registered."""
    capacity, allocatable = _amounts(node)
    return [
        f"{node_name}: {name} has capacity {capacity[name]} and allocatable {allocatable[name]}, so a device "
        "plugin serves it or did; while it does, the kubelet puts its own count in place of yours"
        for name in wish.counts
        if capacity.get(name, "0") != "0" and allocatable.get(name, capacity[name]) != capacity[name]
    ]


def _amounts(node: Object) -> tuple[dict[str, str], dict[str, str]]:
    capacity, allocatable = (
        {name: str(amount) for name, amount in fields(node, "status", part).items()}
        for part in ("capacity", "allocatable")
    )
    return capacity, allocatable


def _path(part: str, name: str) -> str:
    return f"/status/{part}/{name.replace('~', '~0').replace('/', '~1')}"
