"""The change of a resource between device plugin and claims: what containers hold from before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.daemon.config.types import Config, Resource
    from devplug.daemon.context import DaemonContext
    from devplug.holds.holders import Holders

LEAVES_SLICES: Final = "it is served once no ResourceSlice offers its devices for claims any more"
"""Why a resource that claims used is not served in another way yet: a scheduler goes by the slices that there
are, and a claim may get what they have."""


def driver_of(config: Config, resource: Resource) -> str:
    """Return the DRA driver by which a resource is served; empty for a device plugin."""
    return (config.driver or "") if resource.serve == "dra" else ""


async def held_before(context: DaemonContext, resource_name: str, driver: str) -> frozenset[str]:
    """Return the device IDs of a resource that containers hold by a DRA driver, or by a device plugin.

    The latter if `driver` is empty. The machine tells that at once, also to a daemon that has just begun, as
    after a rollout.
    """
    if not driver:
        return frozenset() if context.holders is None else await _allocated(context.holders, resource_name)
    if context.cdi is None:
        return frozenset()
    return await asyncio.to_thread(_claimed, context.cdi.folder, driver, resource_name)


async def _allocated(holders: Holders, resource_name: str) -> frozenset[str]:
    """Return what the kubelet's checkpoint names.

    It may name more than is held: the kubelet drops what an ended pod had when it next writes the file.
    """
    return frozenset(
        device_id
        for pod in await holders.checkpoint() or ()
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource_name
        for device_id in devices.device_ids
    )


def _claimed(folder: Path, driver: str, resource_name: str) -> frozenset[str]:
    """Return what the CDI files of claims name: a container can start with a device while one is there."""
    from devplug.driver.prepared_claims import published_uses

    devices = (device for use in published_uses(driver, folder) for device in use.devices)
    return frozenset(one.device_id for one in devices if one.resource_name == resource_name)
