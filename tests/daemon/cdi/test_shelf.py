"""What a CDI spec names is looked at when it is written, whatever it was when the device was found."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from devplug.daemon.cdi.files import CdiFolder
from devplug.daemon.cdi.shelf import CdiShelf
from devplug.daemon.cdi.spec import UNPLUGGED_PATH
from devplug.daemon.responses import shares_of
from devplug.daemon.sources.found import Found, FoundNode
from devplug.daemon.sources.host import Host
from devplug.devices import Device
from devplug.errors import AllocationError, ForbiddenPathError, UnhealthyDeviceError
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, resource

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.daemon.grammar.config import Resource

NULL = (1, 3)


class Shelved:
    """The CDI file of a resource with one device, behind a link."""

    def __init__(self, folder: Path, expose: str = "strategy: cdi", host: Host | None = None) -> None:
        self.resource: Resource = resource(f'discover: {{path: "{folder}/*"}}, expose: {{{expose}}}')
        self.folder = CdiFolder(folder / "cdi")
        self.shelf = CdiShelf(self.resource, self.folder, host or Host())
        self.path = link(folder / "x")
        self.found = Found("x", (FoundNode(str(self.path), NULL),))

    def publish(self) -> list[str]:
        shares = shares_of([Device("x")], {"x": self.found}, self.resource)
        return asyncio.run(self.shelf.publish(shares))

    def refresh(self) -> None:
        asyncio.run(self.shelf.refresh({"x": self.found}, None))

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
    shelf = CdiShelf(one, folder, host)
    shares = shares_of([Device("x")], {"x": Found("x")}, one)
    asyncio.run(shelf.publish(shares))
    (file,) = (tmp_path / "cdi").glob("*.json")
    assert "/dev/snd/timer" in file.read_text()
    block_node(tmp_path / "dev" / "snd" / "sda")
    with pytest.raises(AllocationError, match="is a disk"):
        asyncio.run(shelf.publish(shares))
    asyncio.run(shelf.refresh({"x": Found("x")}, None))
    assert "sda" not in file.read_text()
    assert UNPLUGGED_PATH in file.read_text()
