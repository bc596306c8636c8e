"""How a served plugin is at this moment, as the value that people and monitors see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.devices import HEALTHY, UNHEALTHY, HealthState
from devplug.status.values import DeviceStatus, ResourceStatus

if TYPE_CHECKING:
    from devplug.devices import Device
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.lifecycle import Lifecycle

__all__ = ["resource_status"]


def resource_status(inventory: Inventory, lifecycle: Lifecycle) -> ResourceStatus:
    """Return how one plugin is: its list as the kubelet was told it, and whether a kubelet listens."""
    return ResourceStatus(
        name=str(inventory.resource_name),
        devices=tuple(
            _device_status(device, inventory.since.get(device.id), is_held=inventory.may_be_held(device.id))
            for device in inventory.snapshot.devices.values()
        ),
        is_registered=lifecycle.is_registered,
        registered_at=lifecycle.registered_at,
        fault=lifecycle.fault,
    )


def _device_status(device: Device, since: float | None, *, is_held: bool) -> DeviceStatus:
    return DeviceStatus(
        id=device.id,
        health=HEALTHY if device.health.state is HealthState.HEALTHY else UNHEALTHY,
        reason=device.health.reason,
        since=since,
        numa_nodes=device.numa_nodes,
        device_nodes=tuple(node.host_path for node in device.device_nodes),
        attributes=dict(device.attributes),
        is_held=is_held,
    )
