"""How a served plugin is at this moment, as the value that people and monitors see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from devplug.devices import HEALTHY, UNHEALTHY, HealthState
from devplug.status.values import DeviceStatus, ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devplug.devices import Device
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.lifecycle import Lifecycle

__all__ = ["Describe", "device_statuses", "faults_of", "health_word", "resource_status"]


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
    """Return what keeps these resources from being ready, each with its name."""
    return tuple(f"{one.name}: {one.fault}" for one in resources if one.fault)
