"""Names that containers were given: kept, led elsewhere, or dropped, as devices and holders come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devplug.daemon.cdi.files import CdiFolder
from devplug.daemon.cdi.shelf import CdiShelf, name_of, names_that_are_held
from devplug.daemon.cdi.spec import UNPLUGGED_PATH, kind_of, qualified_name
from devplug.daemon.responses import shares_of
from devplug.daemon.sources.host import Host
from devplug.devices import Device
from devplug.exchange import ContainerDevices, ContainerResources, PodResources
from tests.daemon.hosts import link, resource, source

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


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
    shelf = CdiShelf(one, cdi, Host())
    await shelf.publish(shares_of([Device(name) for name in found], found, one))
    if is_next:
        shelf = CdiShelf(one, cdi, Host())
    await shelf.refresh(found if is_present else {}, held)
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
