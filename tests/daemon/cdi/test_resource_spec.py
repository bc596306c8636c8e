"""The CDI spec of one resource.

Names that were given out are kept, led elsewhere or dropped, and looked at when written.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from devplug.cdi.spec import UNPLUGGED_PATH, CdiSpec, kind_of, parse, qualified_name
from devplug.daemon.cdi.resource_spec import ResourceCdiSpec, name_of, names_that_are_held
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from devplug.daemon.config.types import Resource
from devplug.daemon.container_response import Share, share_of, shares_of
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.daemon.sources.host import Host
from devplug.devices import Device
from devplug.errors import AllocationError, ForbiddenPathError, KubeletError, UnhealthyDeviceError
from devplug.wire.values import ContainerDevices, ContainerResources, PodResources
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, resource, source
from tests.waiting import until

NULL = (1, 3)


class Shelved:
    """The CDI file of a resource with one device, behind a link."""

    def __init__(self, folder: Path, expose: str = "strategy: cdi", host: Host | None = None) -> None:
        self.resource: Resource = resource(f'discover: {{path: "{folder}/*"}}, expose: {{{expose}}}')
        self.folder = CdiFolder(folder / "cdi")
        self.cdi_spec = ResourceCdiSpec(self.resource, self.folder, host or Host())
        self.path = link(folder / "x")
        self.found = HostDevice("x", (HostDeviceNode(str(self.path), NULL),))

    def publish(self) -> list[str]:
        shares = shares_of([Device("x")], {"x": self.found}, self.resource)
        return asyncio.run(self.cdi_spec.publish(shares))

    def refresh(self) -> None:
        asyncio.run(self.cdi_spec.refresh({"x": self.found}, None))

    def leads_to(self, target: str | Path) -> None:
        self.path.unlink()
        self.path.symlink_to(target)

    def written(self) -> list[str]:
        files = [*self.folder.folder.glob("*.json")] if self.folder.folder.is_dir() else []
        devices: list[Any] = [one for file in files for one in json.loads(file.read_text())["devices"]]
        return [
            node.get("hostPath", node["path"])
            for device in devices
            for node in device["containerEdits"]["deviceNodes"]
        ]


@pytest.fixture
def shelved(short_dir: Path) -> Shelved:
    return Shelved(short_dir)


EVILS = {
    "another device": ("/dev/zero", UnhealthyDeviceError),
    "a file": ("/etc/passwd", UnhealthyDeviceError),
    "a folder": ("/dev", UnhealthyDeviceError),
    "nothing": ("/dev/devplug-none", UnhealthyDeviceError),
    "a link of proc": ("/proc/self/root/dev/null", ForbiddenPathError),
}


@pytest.mark.parametrize("evil", EVILS)
def test_a_path_that_leads_elsewhere_since_it_was_found_is_not_written(shelved: Shelved, evil: str) -> None:
    target, error = EVILS[evil]
    shelved.leads_to(target)
    with pytest.raises(error):
        shelved.publish()
    assert shelved.written() == []


@pytest.mark.parametrize("evil", EVILS)
def test_what_was_given_leads_nowhere_once_its_path_leads_elsewhere(shelved: Shelved, evil: str) -> None:
    """A container that starts again would get what the spec names then."""
    shelved.publish()
    assert shelved.written() == ["/dev/null"]
    shelved.leads_to(EVILS[evil][0])
    shelved.refresh()
    assert shelved.written() == [UNPLUGGED_PATH]
    shelved.leads_to("/dev/null")
    shelved.refresh()
    assert shelved.written() == ["/dev/null"]


def test_the_error_names_the_device_so_that_it_is_unhealthy(shelved: Shelved) -> None:
    shelved.leads_to("/dev/zero")
    with pytest.raises(UnhealthyDeviceError) as refused:
        shelved.publish()
    assert [device.id for device in refused.value.devices] == ["x"]
    assert refused.value.reason == "its node is another device now"


@needs_mknod
def test_a_disk_that_appears_in_a_folder_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "dev" / "snd").mkdir(parents=True)
    char_node(tmp_path / "dev" / "snd" / "timer", 33, 116)
    host = Host(tmp_path)
    one = resource("discover: {static: {ids: [x]}}, expose: {strategy: cdi, directories: [/dev/snd]}")
    folder = CdiFolder(tmp_path / "cdi")
    cdi_spec = ResourceCdiSpec(one, folder, host)
    shares = shares_of([Device("x")], {"x": HostDevice("x")}, one)
    asyncio.run(cdi_spec.publish(shares))
    (file,) = (tmp_path / "cdi").glob("*.json")
    assert "/dev/snd/timer" in file.read_text()
    block_node(tmp_path / "dev" / "snd" / "sda")
    with pytest.raises(AllocationError, match="is a disk"):
        asyncio.run(cdi_spec.publish(shares))
    asyncio.run(cdi_spec.refresh({"x": HostDevice("x")}, None))
    assert "sda" not in file.read_text()
    assert UNPLUGGED_PATH in file.read_text()


@pytest.fixture(params=[False, True], ids=["same daemon", "next daemon"])
def is_next(request: pytest.FixtureRequest) -> bool:
    """Whether another daemon than the one that gave the names out looks after them."""
    return bool(request.param)


async def paths_after(
    folder: Path, held: Collection[str] | None, *, is_next: bool, is_present: bool = True
) -> dict[str, tuple[str, ...]]:
    """The names of the file and what they lead to, once one was given out and then looked after."""
    rest = f"discover: {{path: {link(folder / 'dev' / 'x0')}}}, expose: {{strategy: cdi}}"
    cdi, one = CdiFolder(folder / "cdi"), resource(rest)
    found = {each.name: each for each in source(rest).look()}
    cdi_spec = ResourceCdiSpec(one, cdi, Host())
    await cdi_spec.publish(shares_of([Device(name) for name in found], found, one))
    if is_next:
        cdi_spec = ResourceCdiSpec(one, cdi, Host())
    await cdi_spec.refresh(found if is_present else {}, held)
    spec = cdi.read(kind_of(one.name))
    cdi.close()
    devices = () if spec is None else spec.devices
    return {each.name: tuple(node.host_path for node in each.nodes) for each in devices}


async def test_a_name_stays_while_nobody_knows_who_holds_what(tmp_path: Path, *, is_next: bool) -> None:
    assert await paths_after(tmp_path, None, is_next=is_next) == {"x0": ("/dev/null",)}


async def test_a_name_stays_while_a_container_holds_its_device(tmp_path: Path, *, is_next: bool) -> None:
    assert await paths_after(tmp_path, {"x0"}, is_next=is_next) == {"x0": ("/dev/null",)}


async def test_a_held_name_leads_nowhere_while_its_device_is_gone(tmp_path: Path, *, is_next: bool) -> None:
    left = await paths_after(tmp_path, {"x0"}, is_next=is_next, is_present=False)
    assert left == {"x0": (UNPLUGGED_PATH,)}


async def test_a_name_that_nobody_holds_is_dropped_with_its_file(tmp_path: Path, *, is_next: bool) -> None:
    assert await paths_after(tmp_path, set(), is_next=is_next) == {}


def test_all_names_that_a_listed_container_may_have_are_held() -> None:
    """One for each rank that a device may have in it, and for a replica that of its device."""
    name = "example.com/a"
    devices = tuple(ContainerDevices(name, (device_id,)) for device_id in ("x0", "x1::2"))
    held = names_that_are_held([PodResources("p", "default", (ContainerResources("main", devices),))])
    given = {qualified_name(kind_of(name), name_of(found, rank)) for found in ("x0", "x1") for rank in (0, 1)}
    assert given <= held
    assert qualified_name(kind_of(name), "x2") not in held


NODES = {"x0": ("/dev/null", (1, 3)), "x1": ("/dev/zero", (1, 5)), "x2": ("/dev/full", (1, 7))}
"""Nodes that every machine has."""

ONE = resource('discover: {path: "/dev/x*"}, expose: {strategy: cdi}')


class SlowFolder(CdiFolder):
    """A folder on a disk that takes as long for a write as a test says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.begun = 0
        self.go_on = threading.Event()
        self.fault: Exception | None = None

    def write(self, spec: CdiSpec) -> bool:
        self.begun += 1
        self.go_on.wait(10)
        if self.fault is not None:
            raise self.fault
        return super().write(spec)


def share(name: str) -> Share:
    return share_of(HostDevice(name, (HostDeviceNode(*NODES[name]),)), 0, ONE.expose)


def names(folder: Path) -> list[str]:
    spec = parse((folder / file_name(kind_of(ONE.name))).read_bytes())
    return [] if spec is None else [device.name for device in spec.devices]


async def test_a_write_that_nobody_waits_for_any_more_does_not_end_after_a_later_one(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    cdi_spec = ResourceCdiSpec(ONE, folder, Host())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(cdi_spec.publish([share("x0")]))
        await until(lambda: folder.begun)
        first.cancel()
        second = group.create_task(cdi_spec.publish([share("x1")]))
        await until(first.done)
        for _ in range(10):
            await asyncio.sleep(0)
        assert folder.begun == 1
        folder.go_on.set()
        await second
    assert names(tmp_path) == ["x0", "x1"]
    folder.close()


async def test_a_write_that_failed_unseen_is_no_fault_of_the_next_one(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    folder.fault = KubeletError("no room")
    cdi_spec = ResourceCdiSpec(ONE, folder, Host())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(cdi_spec.publish([share("x0")]))
        await until(lambda: folder.begun)
        first.cancel()
        folder.go_on.set()
    with pytest.raises(AllocationError, match="no room"):
        await cdi_spec.publish([share("x0")])
    folder.fault = None
    await cdi_spec.publish([share("x0")])
    assert names(tmp_path) == ["x0"]
    folder.close()
