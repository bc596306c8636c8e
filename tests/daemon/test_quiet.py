"""Nothing is sent when nothing has changed; and what no event tells of is seen all the same."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.devices import DeviceNode
from devplug.errors import UnhealthyDeviceError
from tests.daemon.hosts import needs_mknod, resource
from tests.daemon.machines import Machine, machine_with_usb
from tests.virtualtime import now, on_virtual_time, passes

anyio_backend = on_virtual_time
KINDS = {
    "usb": 'usb: {vendor: "0403"}',
    "pci": 'pci: {class: "0c"}',
    "sysfs": "sysfs: {subsystem: tty}",
    "net": 'net: {address: "0000:*"}',
}


def plugin_on(machine: Machine, kind: str = "usb") -> ConfiguredPlugin:
    context = DaemonContext(machine.host, clock=lambda: asyncio.get_running_loop().time())
    return ConfiguredPlugin(resource(f"discover: {{{KINDS[kind]}}}"), context)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_hour_of_resyncs_without_a_change_sends_nothing(tmp_path: Path, kind: str) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", number=2)
    machine.node(machine.interface(usb_device), "tty", "ttyUSB0")
    plugin = plugin_on(machine, kind)
    async with aclosing(plugin.devices()) as lists, asyncio.TaskGroup() as group:
        await anext(lists)
        more = group.create_task(anext(lists))
        began = now()
        await passes(3600)
        assert now() - began >= 3600
        assert not more.done()
        more.cancel()


async def test_a_usb_device_of_which_no_event_tells_is_found_by_the_resync(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    plugin = plugin_on(machine)
    async with aclosing(plugin.devices()) as lists, asyncio.TaskGroup() as group:
        assert await anext(lists) == ()
        machine.usb_device(bus, "1", "A1", number=2)
        more = group.create_task(anext(lists))
        await passes(31)
        assert more.done()
        assert [device.id for device in more.result()] == ["0403:6001:A1"]


@needs_mknod
async def test_a_usb_device_that_was_plugged_in_again_a_moment_ago_is_given_with_its_new_node(
    tmp_path: Path,
) -> None:
    """The look for it is not due yet, but the pod that asks now would fail for good."""
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", number=2)
    plugin = plugin_on(machine)
    async with aclosing(plugin.devices()) as lists:
        (device,) = await anext(lists)
        assert (await plugin.allocate([device])).device_nodes == (DeviceNode("/dev/bus/usb/001/002"),)
        machine.unplug(usb_device)
        with pytest.raises(UnhealthyDeviceError, match="node missing"):
            await plugin.allocate([device])
        machine.usb_device(bus, "2", "A1", number=7)
        assert (await plugin.allocate([device])).device_nodes == (DeviceNode("/dev/bus/usb/001/007"),)


@needs_mknod
async def test_what_has_the_place_and_the_numbers_of_another_usb_device_is_not_given_as_that_one(
    tmp_path: Path,
) -> None:
    """The look that shows it is not due yet; the kernel makes another folder of the same name."""
    machine, bus = machine_with_usb(tmp_path)
    before = machine._minors
    usb_device = machine.usb_device(bus, "1", "A1", number=2)
    plugin = plugin_on(machine)
    async with aclosing(plugin.devices()) as lists:
        (device,) = await anext(lists)
        await plugin.allocate([device])
        Path(machine.host.inside(usb_device)).rename(tmp_path / "gone")
        machine.remove("/dev/bus/usb/001/002")
        machine.remove("/sys/bus/usb/devices/1-1")
        machine._minors = before
        machine.usb_device(bus, "1", "B1", number=2)
        with pytest.raises(UnhealthyDeviceError, match="unplugged"):
            await plugin.allocate([device])


def test_a_usb_device_that_was_plugged_in_again_as_it_was_is_checked_anew(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", number=2)
    source = machine.usb_source(f"discover: {{{KINDS['usb']}}}")
    (first,) = source.look()
    assert source.look() == (first,)
    Path(machine.host.inside(usb_device)).rename(tmp_path / "gone")
    shutil.copytree(tmp_path / "gone", machine.host.inside(usb_device), symlinks=True)
    (again,) = source.look()
    assert again != first
    assert again.plugged_in != first.plugged_in
