"""Names that containers were given: kept, led elsewhere, or dropped, as devices and holders come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from devplug.daemon.cdi.files import CdiFolder
from devplug.daemon.cdi.shelf import CdiShelf
from devplug.daemon.cdi.spec import UNPLUGGED_PATH, kind_of
from devplug.daemon.responses import shares_of
from devplug.daemon.sources.host import Host
from devplug.devices import Device
from tests.daemon.hosts import link, resource, source

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def paths_after(
    folder: Path, held: Collection[str] | None, *, is_present: bool = True
) -> dict[str, tuple[str, ...]]:
    """The names of the file and what they lead to, once one was given out and then looked after."""
    rest = f"discover: {{path: {link(folder / 'dev' / 'x0')}}}, expose: {{strategy: cdi}}"
    cdi, one = CdiFolder(folder / "cdi"), resource(rest)
    found = {each.name: each for each in source(rest).look()}

    async def story() -> None:
        shelf = CdiShelf(one, cdi, Host())
        await shelf.publish(shares_of([Device(name) for name in found], found, one))
        await shelf.refresh(found if is_present else {}, held)

    asyncio.run(story())
    spec = cdi.read(kind_of(one.name))
    cdi.close()
    devices = () if spec is None else spec.devices
    return {each.name: tuple(node.host_path for node in each.nodes) for each in devices}


def test_a_name_stays_while_nobody_knows_who_holds_what(tmp_path: Path) -> None:
    assert paths_after(tmp_path, None) == {"x0": ("/dev/null",)}


def test_a_name_stays_while_a_container_holds_its_device(tmp_path: Path) -> None:
    assert paths_after(tmp_path, {"x0"}) == {"x0": ("/dev/null",)}


def test_a_held_name_leads_nowhere_while_its_device_is_gone(tmp_path: Path) -> None:
    assert paths_after(tmp_path, {"x0"}, is_present=False) == {"x0": (UNPLUGGED_PATH,)}


def test_a_name_that_nobody_holds_is_dropped_with_its_file(tmp_path: Path) -> None:
    assert paths_after(tmp_path, set()) == {}
