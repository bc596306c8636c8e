"""Plugins whose `devices` is asked, and the inventory that it fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from devplug import Device, DevicePlugin, PluginError
from devplug.plugin.discovery import discover
from devplug.plugin.inventory import Inventory
from tests.plugin.fakes import RESOURCE, Time

A, B = Device("a"), Device("b")


class Asked(DevicePlugin):
    """A plugin whose `devices` is a function of how often it was asked before."""

    resource_name = RESOURCE

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.answer = answer
        self.times = 0

    def devices(self) -> Any:
        self.times += 1
        return self.answer(self.times - 1)


@asynccontextmanager
async def discovered(plugin: DevicePlugin, time: Time | None = None) -> AsyncIterator[Inventory]:
    """The inventory of a plugin that is asked for its devices meanwhile."""
    time = time or Time()
    inventory = Inventory(plugin.resource_name)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(discover(plugin, inventory, clock=time.clock, sleep=time.sleep))
        try:
            yield inventory
        finally:
            asking.cancel()


def listed(inventory: Inventory) -> dict[str, str]:
    """What is advertised, with the reasons."""
    return {device.id: device.health.reason for device in inventory.snapshot.devices.values()}


async def refused(plugin: DevicePlugin) -> str:
    inventory = Inventory(plugin.resource_name)
    with pytest.raises(PluginError) as caught:
        await discover(plugin, inventory)
    assert not inventory.is_ready
    return str(caught.value)
