"""What is wrong with a list of devices, or with a row of lists; values in, sentences out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from devplug.devices import DEVICE_ID_LIMIT_BYTES, HEALTHY, LIST_LIMIT_BYTES, UNHEALTHY
from devplug.errors import quoted
from devplug.wire.methods import LIST_AND_WATCH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from devplug.exchange import AdvertisedDevice

__all__ = [
    "absent_numa_faults",
    "awkward_id_faults",
    "duplicate_faults",
    "empty_id_faults",
    "empty_topology_faults",
    "flapping",
    "health_faults",
    "is_same_list",
    "is_too_large",
    "is_undecodable",
    "largest_size_bytes",
    "long_id_faults",
    "numa_faults",
    "repeats",
    "size_faults",
    "summary",
]

NUMA_LIMIT: Final = 1023
"""The highest number that a NUMA node of Linux can have (CONFIG_NODES_SHIFT is at most 10)."""

SHOWN: Final = 3
"""How many faults of one list are told in full."""


def summary(faults: Sequence[str]) -> str:
    """Return the first few faults in one line, with the number of the others."""
    more = len(faults) - SHOWN
    return "; ".join(faults[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


# ── one list ──


def empty_id_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the places that have no ID."""
    return [
        f"device {number} of {len(devices)} has an empty ID"
        for number, device in enumerate(devices, 1)
        if not device.id
    ]


def duplicate_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the IDs that are there more than once; an empty one is another fault."""
    counts = Counter(device.id for device in devices if device.id)
    return [f"ID {quoted(id_)} is listed {count} times" for id_, count in counts.items() if count > 1]


def health_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the health words that the API does not have."""
    return [
        f"device {quoted(device.id)} has the health {quoted(device.health)}"
        for device in devices
        if device.health not in {HEALTHY, UNHEALTHY}
    ]


def long_id_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the IDs that are longer than the API text allows."""
    return [
        f"ID {quoted(device.id)} has {length} bytes; at most {DEVICE_ID_LIMIT_BYTES} are allowed"
        for device in devices
        if (length := len(device.id.encode())) > DEVICE_ID_LIMIT_BYTES
    ]


def awkward_id_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the IDs that break a list in an environment variable, or do not show in a log."""
    return [
        f"ID {quoted(device.id)} contains {quoted(found)}"
        for device in devices
        if (found := next((one for one in device.id if not "!" <= one <= "~" or one in ",="), None))
    ]


def numa_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the numbers that are none of a NUMA node."""
    return [
        f"device {quoted(device.id)} has the NUMA node {node}"
        for device in devices
        for node in device.numa_nodes or ()
        if not 0 <= node <= NUMA_LIMIT
    ]


def empty_topology_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return the devices that have a topology message with no node in it."""
    return [
        f"device {quoted(device.id)} has a topology without a node"
        for device in devices
        if device.numa_nodes == ()
    ]


def absent_numa_faults(devices: Sequence[AdvertisedDevice], present: Collection[int]) -> list[str]:
    """Return the NUMA nodes that could be, but are not among those of the machine."""
    return [
        f"device {quoted(device.id)} has the NUMA node {node}; the machine has {sorted(present)}"
        for device in devices
        for node in device.numa_nodes or ()
        if 0 <= node <= NUMA_LIMIT and node not in present
    ]


def largest_size_bytes(devices: Sequence[AdvertisedDevice]) -> int:
    """Return the size of this list as a message if all its devices were Unhealthy.

    If some have NUMA nodes, all are taken to have one.
    """
    nodes = (0,) if any(device.numa_nodes for device in devices) else None
    worst = [
        replace(device, health=UNHEALTHY, numa_nodes=device.numa_nodes or nodes or device.numa_nodes)
        for device in devices
    ]
    return len(LIST_AND_WATCH.response.encode(worst))


def size_faults(devices: Sequence[AdvertisedDevice]) -> list[str]:
    """Return whether the list outgrows what the kubelet takes, and how many of its devices would fit."""
    size_bytes = largest_size_bytes(devices)
    if size_bytes <= LIST_LIMIT_BYTES:
        return []
    fitting = len(devices) * LIST_LIMIT_BYTES // size_bytes
    fault = (
        f"the list of {len(devices)} devices takes {size_bytes:,} bytes when all are Unhealthy, "
        f"{LIST_LIMIT_BYTES:,} are safe: about {fitting} such devices fit"
    )
    return [fault]


def is_undecodable(end_reason: str) -> bool:
    """Whether a stream ended because a list was no valid message."""
    return "cannot decode" in end_reason


def is_too_large(end_reason: str) -> bool:
    """Whether a stream ended because a list was larger than the kubelet takes."""
    return "larger than max" in end_reason


# ── a row of lists ──


def is_same_list(one: Sequence[AdvertisedDevice], other: Sequence[AdvertisedDevice]) -> bool:
    """Whether two lists say the same; their order says nothing."""
    return one == other or (len(one) == len(other) and Counter(one) == Counter(other))


def repeats(lists: Sequence[Sequence[AdvertisedDevice]]) -> int:
    """Return how many of the lists say the same as the one before."""
    return sum(is_same_list(one, next_) for one, next_ in pairwise(lists))


def flapping(lists: Iterable[Sequence[AdvertisedDevice]]) -> list[str]:
    """Return the devices that were dropped by a list and brought back by a later one."""
    listed: set[str] = set()
    dropped: set[str] = set()
    returns: Counter[str] = Counter()
    for devices in lists:
        ids = {device.id for device in devices}
        returns.update(dropped & ids)
        dropped = (dropped | listed) - ids
        listed = ids
    return [
        f"device {quoted(id_)} was dropped and came back {count} times"
        if count > 1
        else f"device {quoted(id_)} was dropped and came back"
        for id_, count in sorted(returns.items())
    ]
