"""A resource that the file no longer has, while containers still hold its devices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.devices import Device, Health
from devplug.errors import UnhealthyDeviceError
from devplug.plugin.contract import DevicePlugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug.daemon.custody import Custody
    from devplug.devices import ContainerResponse

__all__ = ["RetiredPlugin"]

REASON: Final = "its resource was removed from the configuration"


class RetiredPlugin(DevicePlugin):
    """Lists what is held, Unhealthy, until nobody holds it any more; `is_over` is set then.

    A kubelet that looks up a device that has left the list may crash (manager.go devicesToAllocate).
    """

    def __init__(self, resource_name: str, custody: Custody) -> None:
        self.resource_name = resource_name
        self.custody = custody
        self.is_over = asyncio.Event()

    async def devices(self) -> AsyncIterator[Sequence[Device]]:
        """Yield what is still held, whenever that changes."""
        async with asyncio.TaskGroup() as group:
            releases = group.create_task(self.custody.run())
            self.custody.follow((), is_any_gone=True)
            try:
                while True:
                    self.custody.changed.clear()
                    held = sorted(self.custody.held_ids())
                    yield [Device(device_id, health=Health.unhealthy(REASON)) for device_id in held]
                    if not held:
                        self.is_over.set()
                    await self.custody.changed.wait()
            except GeneratorExit:
                # A task group would make an error of it.
                return
            finally:
                releases.cancel()

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Give nothing out any more."""
        raise UnhealthyDeviceError(REASON, *devices)
