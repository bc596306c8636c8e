"""A plugin in code whose devices pods get by claims: what containers get, and get when they restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from devplug.devices import ContainerResponse, Device, DeviceNode, Health
from devplug.driver.node_driver import NodeDriver
from devplug.driver.parameters import DeviceConfig
from devplug.errors import NotReadyError
from devplug.plugin.claimed_plugin import ClaimedPlugin
from devplug.plugin.contract import DevicePlugin
from devplug.plugin.counters import PluginCounters
from devplug.plugin.inventory import Inventory


class Scanner(DevicePlugin):
    resource_name = "example.com/scanner"

    def __init__(self, link: Path) -> None:
        self.link = link
        self.prepared: list[str] = []

    async def prepare(self, devices: Sequence[Device], /) -> None:
        self.prepared += [device.id for device in devices]

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse(device_nodes=[DeviceNode(self.link, "/dev/scanner", "r")])


async def claimed(plugin: Scanner, folder: Path, *devices: Device) -> ClaimedPlugin:
    inventory = Inventory(plugin.resource_name)
    await inventory.replace(devices)
    driver = NodeDriver("d.example.com", "n", lambda _: (DeviceConfig(), ()), kubelet_root=folder)
    return ClaimedPlugin(plugin, inventory, PluginCounters(), driver, lambda: None)


async def test_a_claim_gets_the_kernel_s_own_node_and_a_restart_the_one_of_then(
    short_dir: Path, tmp_path: Path
) -> None:
    """CDI follows no link; what is prepared once is not prepared under a container that runs."""
    plugin = Scanner(tmp_path / "by-id")
    plugin.link.symlink_to("/dev/zero")
    one = await claimed(plugin, short_dir, Device("a"), Device("b"))
    nothing, given = ContainerResponse(), DeviceNode("/dev/zero", "/dev/scanner", "r")
    assert await one.prepare([["a", "b"]]) == [[ContainerResponse(device_nodes=[given]), nothing]]
    plugin.link.unlink()
    plugin.link.symlink_to("/dev/full")
    given = DeviceNode("/dev/full", "/dev/scanner", "r")
    assert await one.current([["a", "b"]]) == [[ContainerResponse(device_nodes=[given]), nothing]]
    assert plugin.prepared == ["a", "b"]


async def test_where_a_sick_device_is_nobody_asks_its_code(short_dir: Path, tmp_path: Path) -> None:
    one = await claimed(Scanner(tmp_path), short_dir, Device("a", health=Health.unhealthy("hot")))
    with pytest.raises(NotReadyError, match="hot"):
        await one.current([["a"]])


async def test_annotations_that_no_container_can_get_are_told_of_once(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Annotated(Scanner):
        async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            return ContainerResponse(annotations={"example.com/mode": devices[0].id})

    one = await claimed(Annotated(short_dir), short_dir, Device("a"), Device("b"))
    await one.prepare([["a"]])
    await one.prepare([["a"], ["b"]])
    (told,) = [record for record in caplog.records if "no annotations" in record.message]
    assert vars(told)["annotations"] == ["example.com/mode"]
