"""The state of one resource name, as a value with rules for its next value, and the node's numbers. Pure.

Which container holds which device is `allocation`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY, UNHEALTHY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from devplug.wire.values import AdvertisedDevice

GRACE_PERIOD_SECONDS: Final = 300.0
"""How long a resource stays on the node after its plugin is gone (devicemanager/types.go)."""

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class ResourceState:
    """The state of one resource name. Replaced as a whole at every change.

    A set that is None does not exist: the real kubelet asks whether its maps have the key, and so do we
    (manager.go isDevicePluginResource, GetCapacity).
    """

    devices: Mapping[str, AdvertisedDevice] = field(default_factory=dict)
    """The last list, by ID, ascending. Outlives the two sets below."""
    healthy: frozenset[str] | None = None
    unhealthy: frozenset[str] | None = None
    allocated: frozenset[str] | None = None
    """IDs that are not available: those assigned, and those that a failed allocation left behind."""

    @property
    def is_device_plugin_resource(self) -> bool:
        """Whether limits under this name are the device manager's business (isDevicePluginResource)."""
        return self.healthy is not None or self.allocated is not None

    @property
    def available(self) -> frozenset[str]:
        """Healthy devices that are not allocated (manager.go getAvailableDevices)."""
        return (self.healthy or _NONE) - (self.allocated or _NONE)


UNKNOWN: Final = ResourceState()
"""The state of a name that no plugin ever served."""


def listed(state: ResourceState, devices: Iterable[AdvertisedDevice]) -> ResourceState:
    """Return the state after one list, which replaces the last (manager.go genericDeviceUpdateCallback).

    Exactly `Healthy` is healthy. An ID that is given with both healths stands in both sets, and counts twice.
    """
    devices = sorted(devices, key=attrgetter("id"))
    return replace(
        state,
        devices={device.id: device for device in devices},
        healthy=frozenset(device.id for device in devices if device.health == HEALTHY),
        unhealthy=frozenset(device.id for device in devices if device.health != HEALTHY),
    )


def changed_health(before: ResourceState, devices: Iterable[AdvertisedDevice]) -> frozenset[str]:
    """Return the devices of a new list whose health is another than before, or that were not in the list.

    One that was not there may have been and still be held, so its holder's status has to be written. One that
    has vanished is not among them, and neither are those of a plugin that is lost.
    """
    old = {device_id: device.health for device_id, device in before.devices.items()}
    return frozenset(device.id for device in devices if old.get(device.id) != device.health)


def health_in_status(state: ResourceState, device_id: str) -> str:
    """Return a device's health as a pod's status shows it: as listed, healthy if it is not listed."""
    device = state.devices.get(device_id)
    return HEALTHY if device is None or device.health == HEALTHY else UNHEALTHY


def disconnected(state: ResourceState) -> ResourceState:
    """Return the state after the plugin is lost: what was healthy is unhealthy (markResourceUnhealthy).

    The devices themselves keep the health that they were listed with.
    """
    return replace(
        state,
        healthy=None if state.healthy is None else _NONE,
        unhealthy=(state.unhealthy or _NONE) | (state.healthy or _NONE),
    )


def restored(state: ResourceState) -> ResourceState:
    """Return the state of a resource that stood in the checkpoint: known, but empty until its first list."""
    return replace(state, healthy=_NONE, unhealthy=_NONE)


def dropped(state: ResourceState) -> ResourceState:
    """Return the state after the grace period: the node forgets the devices, the assignments stay."""
    return replace(state, healthy=None, unhealthy=None)


def grace_is_over(stopped_at_seconds: float | None, now_seconds: float) -> bool:
    """Whether a plugin has been gone for more than the grace period (endpoint.go stopGracePeriodExpired)."""
    return stopped_at_seconds is not None and now_seconds - stopped_at_seconds > GRACE_PERIOD_SECONDS


# ── capacity ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Capacity:
    """The device manager's numbers for the node: a count per resource name (manager.go GetCapacity)."""

    capacity: Mapping[str, int]
    """Healthy and unhealthy devices."""
    allocatable: Mapping[str, int]
    """Healthy devices; no entry for a plugin that never sent a list."""
    deleted: tuple[str, ...]
    """Names whose plugin has been gone for longer than the grace period."""


def count(resources: Mapping[str, ResourceState], gone: Collection[str]) -> Capacity:
    """Return the counts. `gone` are the names without an endpoint, or with one whose grace period is over.

    Assignments change neither count.
    """
    known = {
        name: state
        for name, state in sorted(resources.items())
        if state.healthy is not None or state.unhealthy is not None
    }
    here = {name: state for name, state in known.items() if name not in gone}
    return Capacity(
        {name: len(state.healthy or ()) + len(state.unhealthy or ()) for name, state in here.items()},
        {name: len(state.healthy) for name, state in here.items() if state.healthy is not None},
        tuple(name for name in known if name in gone),
    )


# ── topology ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Split:
    """Available devices by how they lie to the NUMA nodes that a container should stay on; each sorted."""

    aligned: list[str]
    unaligned: list[str]
    no_affinity: list[str]


def split_by_affinity(
    state: ResourceState,
    available: Collection[str],
    numa_nodes: Collection[int] | None,
) -> Split:
    """Sort `available` into the three groups (manager.go filterByAffinity).

    `numa_nodes` is None where the topology manager has no opinion, as always under policy none. A device on
    two nodes is aligned if one of them fits. -1 is the kubelet's own name for no node.
    """
    ordered = [device_id for device_id in state.devices if device_id in available]
    if numa_nodes is None or not any(device.numa_nodes for device in state.devices.values()):
        return Split([], [], ordered)
    split = Split([], [], [])
    groups: dict[tuple[int, ...] | None, list[str]] = {}
    for nodes in {device.numa_nodes for device in state.devices.values()}:
        real = {*(nodes or ())} - {-1}
        is_aligned = not real.isdisjoint(numa_nodes)
        groups[nodes] = split.no_affinity if not real else split.aligned if is_aligned else split.unaligned
    for device_id in ordered:
        groups[state.devices[device_id].numa_nodes].append(device_id)
    return split


# ── the node's numbers ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Capacity and allocatable per resource name, as last reported. Outlives the kubelet's processes."""

    capacity: Mapping[str, int] = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)

    def updated(self, counts: Capacity) -> NodeStatus:
        """Return the next report.

        A resource whose plugin has been gone for too long stays, with 0. Where the device manager has no
        count of healthy devices, allocatable is the capacity. What others have put there stays as it is.
        """
        capacity = {**self.capacity, **counts.capacity, **dict.fromkeys(counts.deleted, 0)}
        return NodeStatus(capacity, {**capacity, **counts.allocatable})

    def patched(self, resource_name: str, count: int) -> NodeStatus:
        """Return the status after somebody has set a resource that no plugin serves."""
        return replace(self, capacity={**self.capacity, resource_name: count})

    def replaced(self, capacity: Mapping[str, int]) -> NodeStatus:
        """Return the status after the Node object was read again; what its capacity lacks is forgotten."""
        return replace(self, capacity=dict(capacity))
