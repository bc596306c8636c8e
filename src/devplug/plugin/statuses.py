"""How a served plugin is at this moment, as the value that people and monitors see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.devices import HEALTHY, UNHEALTHY, HealthState
from devplug.status.values import DeviceStatus, ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devplug.devices import Device
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.lifecycle import Lifecycle

__all__ = ["Describe", "device_statuses", "faults_of", "faults_told", "health_word", "resource_status"]

NAMES_SHOWN: Final = 5
"""Of resources with the same fault: the kubelet is away for all of them, or for none."""


Describe: TypeAlias = "Callable[[Inventory], tuple[DeviceStatus, ...]]"
"""Makes the statuses of a plugin's devices."""


def resource_status(inventory: Inventory, lifecycle: Lifecycle, describe: Describe) -> ResourceStatus:
    """Return how one plugin is: its devices as `describe` tells them, and whether a kubelet listens."""
    return ResourceStatus(
        name=str(inventory.resource_name),
        devices=describe(inventory),
        is_registered=lifecycle.is_registered,
        registered_at=lifecycle.registered_at,
        fault=lifecycle.fault,
        takeover=lifecycle.guard.takeover,
        process=os.getpid(),
        given_at=inventory.given_at,
    )


def device_statuses(inventory: Inventory) -> tuple[DeviceStatus, ...]:
    """Return what devices say of themselves, as the kubelet was told them."""
    return tuple(
        DeviceStatus(
            id=device.id,
            health=health_word(device),
            reason=device.health.reason,
            since=inventory.since.get(device.id),
            numa_nodes=device.numa_nodes,
            device_nodes=tuple(node.host_path for node in device.device_nodes),
            attributes=dict(device.attributes),
            is_held=inventory.may_be_held(device.id),
        )
        for device in inventory.snapshot.devices.values()
    )


def health_word(device: Device) -> str:
    """Return what the kubelet was told of a device's health."""
    return HEALTHY if device.health.state is HealthState.HEALTHY else UNHEALTHY


def faults_of(resources: Iterable[ResourceStatus]) -> tuple[str, ...]:
    """Return what keeps these resources from being ready, with their names; see `faults_told`."""
    return faults_told((one.name, one.fault) for one in resources if one.fault)


def faults_told(faults: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return each reason once, with the resource names before it, the first five of them.

    `faults` are pairs of a resource name and what keeps it from being ready.
    """
    names: dict[str, list[str]] = {}
    for name, fault in faults:
        names.setdefault(fault, []).append(name)
    return tuple(f"{_some(those)}: {fault}" for fault, those in names.items())


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
