"""The advertisement of a resource that no plugin serves: changes of a node's status that set or remove it.

It is the way that Kubernetes documents for resources without hardware ("Advertise Extended Resources for a
Node"). The kubelet leaves capacity that it does not know alone and copies it to allocatable
(pkg/kubelet/nodestatus/setters.go). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError, quoted
from devplug.k8s.objects import Object, entries, fields, text
from devplug.k8s.resource_names import resource_name_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


_READY: Final = 'k:{"type":"Ready"}'
"""How managedFields name a condition (structured-merge-diff, fieldpath/serialize-pe.go)."""

_MOST: Final = 2**63 - 1
"""The largest value of a quantity (apimachinery resource/quantity.go)."""


class AdvertisementError(DevplugError):
    """A request that cannot be advertised; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Advertisement:
    """The resources that a node is to advertise, and those to remove."""

    counts: Mapping[str, int]
    """Resource name → how many."""
    removed: tuple[str, ...] = ()
    """Resource names."""
    conditions: tuple[str, ...] = ()
    """Types of the conditions that are to go."""


def advertisement_of(
    assignments: Iterable[str], removed: Iterable[str], conditions: Collection[str] = ()
) -> Advertisement:
    """Read `vendor.com/kind=N` and names to remove; raises `AdvertisementError`.

    `conditions` are the types of those that may be removed as well: any other name is a resource's.
    """
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
    names = dict.fromkeys(removed)
    gone = tuple(name for name in names if name not in conditions)
    for name in gone:
        _check_name(name)
        if name in counts:
            raise AdvertisementError(f"{name} is both set and removed; leave one out")
    if not counts and not names:
        raise AdvertisementError("nothing to do; write vendor.com/kind=2, or --remove vendor.com/kind")
    return Advertisement(counts, gone, tuple(name for name in names if name in conditions))


def _check_name(name: str) -> None:
    if fault := resource_name_fault(name):
        raise AdvertisementError(f"resource name {quoted(name)} {fault}")


def changes(node: Object, wish: Advertisement) -> list[Object]:
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
    for number, condition in reversed([*enumerate(entries(node, "status", "conditions"))]):
        if (type_ := text(condition, "type")) in wish.conditions:
            path = f"/status/conditions/{number}"
            # Another one may stand in its place by now: the server refuses the patch then.
            patch += [{"op": "test", "path": f"{path}/type", "value": type_}, {"op": "remove", "path": path}]
    return patch


def lines(node_name: str, node: Object, wish: Advertisement) -> list[str]:
    """Return what becomes of each resource, one line each."""
    capacity, allocatable = _amounts(node)
    changes = []
    for name, count in wish.counts.items():
        before = capacity.get(name, "0")
        stays = capacity.get(name) == str(count)
        changes.append(
            f"{node_name}: {name} stays {count}" if stays else f"{node_name}: {name} {before} -> {count}"
        )
    for name in wish.removed:
        if name in capacity or name in allocatable:
            before = capacity.get(name) or allocatable.get(name, "0")
            changes.append(f"{node_name}: {name} {before} -> removed")
        else:
            changes.append(f"{node_name}: {name} is not there")
    statuses = {text(one, "type"): text(one, "status") for one in entries(node, "status", "conditions")}
    for type_ in wish.conditions:
        becomes = f"{statuses[type_]} -> removed" if type_ in statuses else "is not there"
        changes.append(f"{node_name}: condition {type_} {becomes}")
    return changes


def counted_by_kubelet(node: Object) -> frozenset[str]:
    """Return the resources whose capacity the kubelet was the last to write, and so counts by itself.

    The API server notes who wrote which field of an object (`metadata.managedFields`). The kubelet is who
    writes the condition Ready: it is called otherwise where it is built into another program, as in k3s.
    """
    owned = (fields(entry, "fieldsV1", "f:status") for entry in entries(node, "metadata", "managedFields"))
    return frozenset(
        name.removeprefix("f:")
        for status in owned
        if _READY in fields(status, "f:conditions")
        for name in fields(status, "f:capacity")
    )


def served(node_name: str, node: Object, wish: Advertisement, counted: Collection[str]) -> list[str]:
    """Return a warning for each count to be changed that a device plugin serves.

    `counted` are the resources that the kubelet counts by itself. One whose allocatable differs from its
    capacity is one of them, too: nobody else has a part of his devices Unhealthy.
    """
    capacity, allocatable = _amounts(node)
    warnings = []
    for name in (*wish.counts, *wish.removed):
        now = capacity.get(name, "0")
        usable = allocatable.get(name, now)
        is_changed = str(wish.counts.get(name)) != now
        if now != "0" and is_changed and (name in counted or usable != now):
            warnings.append(
                f"{node_name}: a device plugin serves {name}, or did within the last five minutes "
                f"(capacity {now}, allocatable {usable}): the kubelet writes its own count again within "
                "ten seconds"
            )
    return warnings


def _amounts(node: Object) -> tuple[dict[str, str], dict[str, str]]:
    capacity, allocatable = (
        {name: str(amount) for name, amount in fields(node, "status", part).items()}
        for part in ("capacity", "allocatable")
    )
    return capacity, allocatable


def _path(part: str, name: str) -> str:
    return f"/status/{part}/{name.replace('~', '~0').replace('/', '~1')}"
