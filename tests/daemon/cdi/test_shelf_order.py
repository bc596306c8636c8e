"""The CDI file of one resource: what was given out is in it, whoever gave up meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from devplug.daemon.cdi.files import CdiFolder, file_name
from devplug.daemon.cdi.shelf import CdiShelf
from devplug.daemon.cdi.spec import kind_of, parse
from devplug.daemon.responses import share_of
from devplug.daemon.sources.found import Found, FoundNode
from devplug.daemon.sources.host import Host
from devplug.errors import AllocationError, KubeletError
from tests.daemon.hosts import resource
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.daemon.cdi.spec import CdiSpec
    from devplug.daemon.responses import Share

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
    return share_of(Found(name, (FoundNode(*NODES[name]),)), 0, ONE.expose)


def names(folder: Path) -> list[str]:
    spec = parse((folder / file_name(kind_of(ONE.name))).read_bytes())
    return [] if spec is None else [device.name for device in spec.devices]


async def test_a_write_that_nobody_waits_for_any_more_does_not_end_after_a_later_one(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    shelf = CdiShelf(ONE, folder, Host())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shelf.publish([share("x0")]))
        await until(lambda: folder.begun)
        first.cancel()
        second = group.create_task(shelf.publish([share("x1")]))
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
    shelf = CdiShelf(ONE, folder, Host())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shelf.publish([share("x0")]))
        await until(lambda: folder.begun)
        first.cancel()
        folder.go_on.set()
    with pytest.raises(AllocationError, match="no room"):
        await shelf.publish([share("x0")])
    folder.fault = None
    await shelf.publish([share("x0")])
    assert names(tmp_path) == ["x0"]
    folder.close()
