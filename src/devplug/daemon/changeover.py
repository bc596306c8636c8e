"""The change of a resource from device plugin to claims: what containers hold of before this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.daemon.config.types import Config, Resource
    from devplug.holders.holders import Holders

__all__ = ["DRAINING", "driver_of", "plugin_held_ids"]

DRAINING: Final = "it is served in the old way until no container holds its devices"
"""Why a resource is not served as the file says, while it moves between device plugin and claims: no device
may be given out by both."""


def driver_of(config: Config, resource: Resource) -> str:
    """Return the DRA driver by which a resource is served; empty for a device plugin."""
    return (config.driver or "") if resource.serve == "dra" else ""


async def plugin_held_ids(holders: Holders, resource_name: str) -> frozenset[str]:
    """Return the device IDs of a resource that the kubelet has given to containers by a device plugin.

    Its checkpoint says that at once, also to a daemon that has just begun, as after a rollout. It may name
    more: the kubelet drops what an ended pod had when it next writes the file.
    """
    return frozenset(
        device_id
        for pod in await holders.checkpoint() or ()
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource_name
        for device_id in devices.device_ids
    )
