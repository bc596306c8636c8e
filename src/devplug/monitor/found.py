"""Devices as they were found: the replicas that stand for one are taken together. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY, UNHEALTHY

if TYPE_CHECKING:
    from devplug.status.values import DeviceStatus, Holder, ResourceStatus

__all__ = ["FoundDevice", "found_devices", "found_id"]

_REPLICA: Final = re.compile(r"(?s)(.+)::[0-9]+")
"""Our IDs of replicas, and NVIDIA's (k8s-device-plugin internal/rm/device_map.go)."""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """What a person would count as one device."""

    id: str
    devices: tuple[DeviceStatus, ...]
    """At least one; several if it is shared."""
    worst: DeviceStatus
    """The one that tells how it is: the first that is Unhealthy, or else of unknown health."""
    held: int
    """How many of them a container holds, or may hold."""

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds any of them, each once."""
        return tuple(sorted({holder for device in self.devices for holder in device.holders}))


def _badness(device: DeviceStatus) -> int:
    return {UNHEALTHY: 0, HEALTHY: 2}.get(device.health, 1)


def found_id(resource: ResourceStatus, device_id: str) -> str:
    """Return the ID without the number of a replica.

    Of a plugin that is not ours nobody tells whether it has replicas; its IDs are taken at their looks.
    """
    if resource.process is not None and resource.replicas == 1:
        return device_id
    replica = _REPLICA.fullmatch(device_id)
    return replica[1] if replica else device_id


def found_devices(resource: ResourceStatus) -> tuple[FoundDevice, ...]:
    """Return a resource's devices, in the order in which they are listed first."""
    if resource.process is not None and resource.replicas == 1:
        return tuple(_found(device.id, (device,)) for device in resource.devices)
    together: dict[str, list[DeviceStatus]] = {}
    for device in resource.devices:
        together.setdefault(found_id(resource, device.id), []).append(device)
    return tuple(_found(name, tuple(devices)) for name, devices in together.items())


def _found(name: str, devices: tuple[DeviceStatus, ...]) -> FoundDevice:
    if len(devices) == 1:
        return FoundDevice(name, devices, devices[0], int(devices[0].is_held))
    held = sum(device.is_held for device in devices)
    return FoundDevice(name, devices, min(devices, key=_badness), held)
