"""Held sticks whose names become doubtful: twins, moves, other sticks in a port, edits and renames."""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick, Udev
from tests.ownership.node import Described, Node, node, path, usb
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER, LINKS = "example.com/any", "example.com/other", "example.com/links"
FIRST, TWIN, STRANGER = Stick("first", "S"), Stick("twin", "S"), Stick("stranger", "T")
NO_SERIAL, SAME_MAKE = Stick("no serial"), Stick("same make")

Change = Callable[[Node], Awaitable[None]]

CHANGES: dict[str, Change] = {
    "none": lambda here: here.quiet(),
    "restart": lambda here: here.restart(),
    "kill": lambda here: here.restart(is_killed=True),
    "env": lambda here: here.edit(usb(ANY, expose={"env": {"A": "1"}})),
    "prefer": lambda here: here.edit(usb(ANY, prefer="none")),
    "another resource": lambda here: here.edit(usb(ANY), usb(OTHER, vendor="1a86")),
    "id": lambda here: here.edit(usb(ANY, id="stick-{serial}")),
    "id by port": lambda here: here.edit(usb(ANY, id="port-{attr.devpath}")),
    "selector": lambda here: here.edit(usb(ANY, selector={"product": "6001"})),
    "path": lambda here: here.edit({"name": ANY, "discover": {"path": "/dev/ttyUSB*"}}),
    "rename": lambda here: here.edit(usb(OTHER)),
    "rename while down": lambda here: here.restart(usb(OTHER)),
    "both names": lambda here: here.edit(usb(OTHER), usb(ANY)),
    "both names while down": lambda here: here.restart(usb(OTHER), usb(ANY)),
}

BRIEF = {"kill", "env", "id", "rename while down"}
"""The changes that `make test` tries; `make test-all` tries all of them."""

after = pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=[] if name in BRIEF else pytest.mark.nightly)
        for name, change in CHANGES.items()
    ],
)

with_links = pytest.mark.parametrize(
    "udev",
    [
        pytest.param("none", marks=pytest.mark.nightly),
        "by-path",
        pytest.param("all", marks=pytest.mark.nightly),
    ],
)


@after
async def test_twin_does_not_make_held_stick_free(short_dir: Path, change: Change) -> None:
    """Rules 2, 3 and 4: the twin gets another name, and the held stick stays held."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.plug(TWIN, "2")
        await here.quiet()
        await change(here)
        await here.each_stick_has_one_pod()


@after
async def test_twins_both_held_stay_held(short_dir: Path, change: Change) -> None:
    """Rules 2, 3 and 4: two pods have the twins, and no third pod gets one."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(TWIN, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.must_run("q", ANY)
        await change(here)
        await here.each_stick_has_one_pod()


@after
async def test_held_stick_stays_held(short_dir: Path, change: Change) -> None:
    """Rules 1, 2 and 4: whatever its name is now, the stick belongs to its pod."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await change(here)
        await here.each_stick_has_one_pod()


@after
async def test_stick_is_offered_after_its_release(short_dir: Path, change: Change) -> None:
    """Rules 4 and 5: once the pod has ended, the stick is offered exactly once, under its new name."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.plug(TWIN, "2")
        await here.quiet()
        await change(here)
        here.end("p")
        await here.quiet()
        assert sum(here.healthy().values()) == 2
        await here.each_stick_has_one_pod()


@after
async def test_twin_does_not_get_the_name_of_an_unplugged_stick(short_dir: Path, change: Change) -> None:
    """Rules 2 and 3: the first stick is pulled out; the twin is other hardware, and free."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(TWIN, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        (held,) = here.pods["p"].given
        (free,) = here.machine.sticks - {held}
        here.machine.unplug(held)
        await here.quiet()
        await change(here)
        await here.fill()
        assert here.owner(free) not in {"", "p"}
        here.machine.plug(held, "1" if held is FIRST else "2")
        await here.quiet()
        assert here.owner(held) == "p"
        await here.each_stick_has_one_pod()


@after
@pytest.mark.parametrize("udev", [pytest.param("none", marks=pytest.mark.nightly), "by-path"])
async def test_stranger_in_the_port_of_a_held_stick_is_not_given_out(
    short_dir: Path, change: Change, udev: Udev
) -> None:
    """Rule 2: the container of the pod can open it, now or after a restart."""
    async with node(short_dir, udev) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.unplug(FIRST)
        await here.quiet()
        here.machine.plug(STRANGER, "1")
        await here.quiet()
        await change(here)
        await here.fill()
        here.nothing_was_wrong()
        for name in [*here.pods]:
            here.end(name)
        await here.quiet()
        assert sum(here.healthy().values()) == 1
        await here.each_stick_has_one_pod()


@after
async def test_another_stick_of_the_make_in_the_port_is_not_given_out(
    short_dir: Path, change: Change
) -> None:
    """Rules 2 and 3: without a serial number the port is the name, and the hold stays."""
    async with node(short_dir) as here:
        here.machine.plug(NO_SERIAL, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.unplug(NO_SERIAL)
        await here.quiet()
        here.machine.plug(SAME_MAKE, "1")
        await here.quiet()
        await change(here)
        await here.each_stick_has_one_pod()


@after
@with_links
async def test_held_stick_that_moves_stays_held(short_dir: Path, change: Change, udev: Udev) -> None:
    """Rule 3: the same self at another place, with the old one empty, is the same hardware."""
    async with node(short_dir, udev) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.move(FIRST, "3")
        await here.quiet()
        await change(here)
        await here.each_stick_has_one_pod()


@after
@with_links
async def test_sticks_that_change_device_numbers_stay_held(
    short_dir: Path, change: Change, udev: Udev
) -> None:
    """Rule 2: the number that a container may open, and the stick that it was given, are both its own."""
    async with node(short_dir, udev) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.renumber(FIRST, STRANGER)
        await here.quiet()
        await change(here)
        await here.fill()
        here.nothing_was_wrong()


async def test_number_of_a_stick_that_waits_for_its_clean_up_is_free(short_dir: Path) -> None:
    """Rule 2: after the release no container can open anything by it."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        here.machine.unplug(FIRST)
        here.machine.plug(STRANGER, "1")
        await here.quiet()
        assert await here.run("too early", ANY) is None
        here.end("p")
        await here.quiet()
        await here.must_run("q", ANY)
        here.nothing_was_wrong()


async def test_released_stick_whose_number_a_pod_has_is_not_offered(short_dir: Path) -> None:
    """Rules 2 and 8: it waits, also for its clean-up, until the other pod has ended."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.must_run("q", ANY)
        here.machine.renumber(FIRST, STRANGER)
        here.end("q")
        await here.quiet()
        assert here.healthy() == {ANY: 1}
        assert await here.run("too early", ANY) is None
        here.end("p")
        await here.quiet()
        assert here.healthy() == {ANY: 2}
        assert sorted(here.cleaned()) == ["first", "stranger"]
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("how", ["damaged", "of a newer version", "not written"])
async def test_held_stick_of_a_removed_resource_stays_held_without_its_file(
    short_dir: Path, how: str
) -> None:
    """Rule 1: the checkpoint and names.json know it. A killed process may not have written its file."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        await here.kill()
        (file,) = (one for one in here.memory() if one.name.startswith("held-"))
        if how == "not written":
            file.unlink()
        else:
            file.write_text("{" if how == "damaged" else '{"version": 7}')
        await here.start(usb(OTHER))
        assert here.counted() == {ANY: 1}
        assert await here.run("q", OTHER) is None
        here.end("p")
        await here.quiet()
        await here.must_run("q", OTHER)


async def test_held_stick_stays_held_after_the_folder_of_records_was_removed(short_dir: Path) -> None:
    """Also by the next process: the records are written again at once."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        shutil.rmtree(here.kubelet.plugin_dir / ".devplug")
        await here.edit(usb(OTHER))
        await here.quiet()
        await here.restart(is_killed=True)
        assert await here.run("q", OTHER) is None


@pytest.mark.parametrize("how", ["damaged", "lost"])
async def test_held_stick_with_another_id_stays_held_after_a_loss_of_records(
    short_dir: Path, how: str
) -> None:
    """Rules 3 and 8: the register of names tells which hardware has the ID that the kubelet names."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.edit(usb(ANY, id="stick-{serial}", **here.cleaning()))
        await here.stop()
        for file in here.memory():
            if file.name.startswith("held-"):
                file.unlink() if how == "lost" else file.write_text("{")
        await here.start()
        assert here.cleaned() == []
        assert here.health("p") == {"Healthy"}
        await here.each_stick_has_one_pod()


async def test_next_pod_gets_all_sticks_of_a_pod_that_ended(short_dir: Path) -> None:
    """Rule 6: what the Allocate itself releases is free for it, also where the sticks changed numbers."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY, 2)
        here.machine.renumber(FIRST, STRANGER)
        await here.quiet()
        here.end("p")
        await here.must_run("q", ANY, 2)
        here.nothing_was_wrong()


@after
async def test_stick_with_the_number_of_an_unplugged_one_is_not_given_out(
    short_dir: Path, change: Change
) -> None:
    """Rule 2: the running container of the unplugged stick can open it."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.unplug(FIRST)
        await here.quiet()
        here.machine.plug(STRANGER, "2")
        await here.quiet()
        await change(here)
        await here.fill()
        here.nothing_was_wrong()
        here.machine.plug(FIRST, "1")
        await here.quiet()
        here.end("p")
        await here.quiet()
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
async def test_free_stick_is_offered_although_its_new_id_is_held(
    short_dir: Path, *, is_restarted: bool
) -> None:
    """Everything free is offered once: the serial number of each stick is the other one's port."""
    async with node(short_dir, "none") as here:
        here.machine.plug(Stick("x", "2"), "1")
        here.machine.plug(Stick("y", "1"), "2")
        await here.start(usb(ANY, id="{attr.devpath}"))
        await here.must_run("p", ANY)
        edited = usb(ANY, id="{serial}")
        await (here.restart(edited) if is_restarted else here.edit(edited))
        await here.must_run("q", ANY)
        here.end("p")
        await here.quiet()
        await here.must_run("r", ANY)
        await here.each_stick_has_one_pod()


async def test_free_link_is_offered_while_another_one_of_its_name_is_held(short_dir: Path) -> None:
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        here.machine.link("/dev/l/cam", FIRST)
        here.machine.link("/dev/r/cam", STRANGER)
        links: Described = {"name": LINKS, "id": "{file}", "discover": {"path": ["/dev/l/cam", "/dev/r/cam"]}}
        await here.start(links)
        await here.must_run("p", LINKS)
        (here.machine.root / "dev/l/cam").unlink()
        here.machine.unplug(FIRST)
        await here.restart({**links, "expose": {"env": {"A": "1"}}})
        assert here.healthy() == {LINKS: 1}
        await here.must_run("q", LINKS)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same daemon", "new daemon"])
async def test_held_stick_without_a_serial_number_stays_held_when_it_moves(
    short_dir: Path, *, is_restarted: bool
) -> None:
    """Rule 3: no other stick of its make was seen."""
    async with node(short_dir) as here:
        here.machine.plug(NO_SERIAL, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.move(NO_SERIAL, "3", tty=7)
        await here.quiet()
        if is_restarted:
            await here.restart()
        assert await here.run("q", ANY) is None
        assert here.capacity() == {ANY: 1}


FIELDS = ("name", "hardware", "numbers", "paths", "boot", "shared", "dirty")
"""What an older daemon does not write of a hold."""


def age(here: Node) -> None:
    """Make the files of the daemon what one wrote that knew holds by device ID alone."""
    for file in here.memory():
        if file.name == "names.json":
            file.unlink()
        elif file.name.startswith("held-"):
            content = json.loads(file.read_text())
            for entry in content["held"].values():
                for field in FIELDS:
                    entry.pop(field, None)
            file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "edited",
    [
        usb(ANY),
        usb(OTHER),
        usb(ANY, id="stick-{serial}"),
        path(OTHER, "/dev/ttyUSB*"),
    ],
    ids=["same file", "renamed", "another id", "path"],
)
async def test_held_stick_stays_held_after_an_upgrade(short_dir: Path, edited: Described) -> None:
    """The configuration may be edited in the same step."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        await here.stop()
        age(here)
        await here.start(edited)
        await here.fill()
        here.nothing_was_wrong()
