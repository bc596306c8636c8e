"""Rules on the ResourceSlices of a driver, as functions on objects; their faults are sentences. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.errors import quoted
from devplug.k8s.objects import Object, entries, fields, part, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Device:
    """A published device."""

    pool: str
    name: str
    is_shared: bool = False
    """Whether it may be allocated to several claims at once."""
    is_tainted: bool = False
    capacity: tuple[tuple[str, str], ...] = ()
    """Of one that is shared: what a claim takes of each capacity that asks for none (dra.md D86)."""


def is_of_node(slice_: Object, node_name: str) -> bool:
    """Whether a slice is bound to the node by its name, as those are that the kubelet removes."""
    return text(slice_, "spec", "nodeName") == node_name


def slices_of(slices: Iterable[Object], driver: str) -> list[Object]:
    """Return the slices of a driver."""
    return [one for one in slices if text(one, "spec", "driver") == driver]


def _pools(slices: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the slices that count by pool: those of the highest generation (dra.md D51)."""
    pools: dict[str, list[Object]] = {}
    for one in slices:
        pools.setdefault(text(one, "spec", "pool", "name"), []).append(one)
    newest = {name: max(map(_generation, some)) for name, some in pools.items()}
    return {name: [one for one in some if _generation(one) == newest[name]] for name, some in pools.items()}


def _generation(slice_: Object) -> int:
    return whole(slice_, "spec", "pool", "generation") or 0


def devices_of(slices: Iterable[Object]) -> list[Device]:
    """Return the devices of all pools, by pool and name."""
    return sorted(
        (
            Device(
                pool,
                text(device, "name"),
                part(device, "allowMultipleAllocations") is True,
                any(text(taint, "effect") != "None" for taint in entries(device, "taints")),
                tuple(_taken_by_default(device)) if part(device, "allowMultipleAllocations") is True else (),
            )
            for pool, slices_ in _pools(slices).items()
            for one in slices_
            for device in entries(one, "spec", "devices")
        ),
        key=lambda device: (device.pool, device.name),
    )


def _taken_by_default(device: object) -> Iterator[tuple[str, str]]:
    for name, capacity in fields(device, "capacity").items():
        default = text(capacity, "requestPolicy", "default")
        yield name, default or text(capacity, "value")


def count_faults(slices: Iterable[Object]) -> list[str]:
    """Return the pools whose slices of the newest generation are not as many as they say."""
    found = []
    for name, some in _pools(slices).items():
        counts = {whole(one, "spec", "pool", "resourceSliceCount") or 0 for one in some}
        if counts != {len(some)}:
            said = " and ".join(map(str, sorted(counts)))
            found.append(
                f"pool {quoted(name)} has {len(some)} slices of generation {_generation(some[0])}, and "
                f"resourceSliceCount says {said}"
            )
    return found


def duplicate_faults(slices: Iterable[Object]) -> list[str]:
    """Return the devices whose name is there more than once in a pool."""
    counts = Counter((device.pool, device.name) for device in devices_of(slices))
    return [
        f"device {quoted(name)} is {count} times in pool {quoted(pool)}"
        for (pool, name), count in counts.items()
        if count > 1
    ]


def owner_faults(slices: Iterable[Object], node_name: str) -> list[str]:
    """Return the slices that stay when their node is deleted: the node does not own them."""
    return [
        f"slice {text(one, 'metadata', 'name')} has no owner reference to the node"
        for one in slices
        if not any(
            text(owner, "kind") == "Node" and text(owner, "name") == node_name
            for owner in entries(one, "metadata", "ownerReferences")
        )
    ]


def taint_times(slices: Iterable[Object]) -> dict[tuple[str, str, str, str], str]:
    """Return when each taint was added, by pool, device, key and effect."""
    return {
        (pool, text(device, "name"), text(taint, "key"), text(taint, "effect")): text(taint, "timeAdded")
        for pool, some in _pools(slices).items()
        for one in some
        for device in entries(one, "spec", "devices")
        for taint in entries(device, "taints")
    }


def moved_taints(
    before: Mapping[tuple[str, str, str, str], str], after: Mapping[tuple[str, str, str, str], str]
) -> list[str]:
    """Return the taints that were added at another time than `before`, or are not there any more."""
    return [
        f"the taint {key[2]} of {key[1]} was added at {at}, and now at {after.get(key)}"
        for key, at in before.items()
        if after.get(key) != at
    ]


def has_devices_of(slices: Sequence[Object], before: Sequence[Object]) -> bool:
    """Whether slices say of devices what they said before; their names and generations may differ.

    There may be more now: a driver with several pools may not have written all of them before.
    """
    return _content(before) <= _content(slices)


def _content(slices: Iterable[Object]) -> set[tuple[str, str, str]]:
    return {
        (pool, text(device, "name"), repr(_untimed(fields(device))))
        for pool, some in _pools(slices).items()
        for one in some
        for device in entries(one, "spec", "devices")
    }


def _untimed(device: Object) -> list[tuple[str, object]]:
    taints = [{**fields(one), "timeAdded": ""} for one in entries(device, "taints")]
    return sorted({**device, "taints": taints}.items())
