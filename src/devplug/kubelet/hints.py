"""The device manager's hints: on which NUMA nodes a request can be met (topology_hints.go). Pure."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletCrashError
from devplug.kubelet.gotext import go_quoted
from devplug.kubelet.topology import TopologyHint, mask_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from devplug.kubelet.allocation import DeviceAllocations
    from devplug.kubelet.pods import Container, Pod
    from devplug.kubelet.topology import Hints
    from devplug.wire.values import AdvertisedDevice

_NONE: Final[frozenset[str]] = frozenset()

_PLACE: Final = "generateDeviceTopologyHints"

_NODES_LIMIT: Final = 16
"""More nodes than this have too many subsets to try; the real kubelet tries."""


def container_hints(
    allocations: DeviceAllocations,
    pod: Pod,
    container: Container,
    machine_nodes: Sequence[int],
    *,
    compat: bool,
) -> dict[str, Hints]:
    """Return the hints for each device plugin resource among a container's limits, also for a limit of 0.

    What init containers of the pod have left over counts as available. Raises `KubeletCrashError`.
    """
    reusable = allocations.reusable.get(pod.uid, {})
    return {
        name: _request_hints(
            allocations,
            name,
            required,
            allocations.held_ids(name, pod.uid, container.name),
            reusable.get(name, _NONE),
            machine_nodes,
            compat=compat,
        )
        for name, required in sorted(container.limits.items())
        if allocations.state(name).is_device_plugin_resource
    }


def pod_hints(
    allocations: DeviceAllocations,
    pod: Pod,
    machine_nodes: Sequence[int],
    *,
    compat: bool,
) -> dict[str, Hints]:
    """Return the hints for all requests of a pod; nothing is reused here. Raises `KubeletCrashError`."""
    return {
        name: _request_hints(
            allocations,
            name,
            required,
            allocations.held_ids(name, pod.uid),
            _NONE,
            machine_nodes,
            compat=compat,
        )
        for name, required in sorted(pod.limits().items())
        if allocations.state(name).is_device_plugin_resource
    }


def _request_hints(
    allocations: DeviceAllocations,
    resource_name: str,
    required: int,
    held: frozenset[str],
    reusable: frozenset[str],
    machine_nodes: Sequence[int],
    *,
    compat: bool,
) -> Hints:
    state = allocations.state(resource_name)
    if not any(device.numa_nodes for device in state.devices.values()):
        return None
    if held:
        if len(held) != required:
            return ()
        return hints_for(state.devices, held, _NONE, required, machine_nodes, compat=compat)
    available = state.available
    if len(available | reusable) < required:
        return ()
    return hints_for(state.devices, available, reusable, required, machine_nodes, compat=compat)


def hints_for(
    devices: Mapping[str, AdvertisedDevice],
    available: Collection[str],
    reusable: Collection[str],
    required: int,
    machine_nodes: Sequence[int],
    *,
    compat: bool,
) -> Hints:
    """Return every set of NUMA nodes that can meet a request, by size and then by node numbers.

    Preferred are those of the smallest size at which the devices would do if all of them were free. Devices
    without a node count for no set. A set that leaves out a reusable device with topology cannot be. Looked
    at are the nodes that have devices; all of the machine's if none of those is known to it. With `compat`
    this raises `KubeletCrashError` for a device that has left the list, and for more nodes than can be.
    """
    free = _masks(devices, available, compat=compat)
    bound = _masks(devices, reusable, compat=compat, keep_empty=True)
    groups = _masks(devices, devices, compat=compat)
    nodes = sorted(node for node in machine_nodes if any(mask >> node & 1 for mask in groups))
    if not nodes and required > 0:
        return ()
    nodes = nodes or list(machine_nodes)
    if len(nodes) > _NODES_LIMIT:
        if compat:
            raise KubeletCrashError(
                f"out of memory: {len(nodes)} NUMA nodes have 2**{len(nodes)} subsets", _PLACE
            )
        return None
    minimum, bound_count = len(nodes), bound.total()
    found: list[int] = []
    for mask in _subsets(nodes):
        if mask.bit_count() < minimum and _count(groups, mask) >= required:
            minimum = mask.bit_count()
        if all(mask & one for one in bound) and bound_count + _count(free, mask) >= required:
            found.append(mask)
    return [TopologyHint(mask, mask.bit_count() == minimum) for mask in found]


def _masks(
    devices: Mapping[str, AdvertisedDevice],
    device_ids: Collection[str],
    *,
    compat: bool,
    keep_empty: bool = False,
) -> Counter[int]:
    """Count devices by their nodes; `keep_empty` also those whose topology is there and says nothing."""
    lost = [device_id for device_id in device_ids if device_id not in devices]
    if lost and compat:
        raise KubeletCrashError(
            f"device {go_quoted(min(lost))} left its plugin's list while a container held it",
            _PLACE,
        )
    masks: Counter[int] = Counter()
    places = Counter(devices[device_id].numa_nodes for device_id in device_ids if device_id in devices)
    for nodes, count in places.items():
        if nodes or (keep_empty and nodes is not None):
            masks[mask_of(nodes)] += count
    return masks


def _subsets(nodes: Sequence[int]) -> Iterator[int]:
    """Yield all sets of nodes but the empty one, by size and then in the order of their numbers."""
    bits = [1 << node for node in nodes]
    for size in range(1, len(bits) + 1):
        yield from map(sum, combinations(bits, size))


def _count(masks: Counter[int], within: int) -> int:
    return sum(count for mask, count in masks.items() if mask & within)
