"""Several resources that want one stick: who gets it, and when that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick
from tests.ownership.node import Node, node, path, usb
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, SPECIAL, PORTS = "example.com/any", "example.com/special", "example.com/ports"
FIRST, STRANGER = Stick("first", "S"), Stick("stranger", "T")
LEFT, RIGHT = "example.com/left", "example.com/right"

special = usb(SPECIAL, selector={"serial": "S"})
ports = path(PORTS, "/dev/ttyUSB*")


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
async def test_resource_put_first_gets_the_stick_after_its_release(
    short_dir: Path, is_restarted: bool
) -> None:
    """Rule 5: while its pod runs the stick stays with the old resource, then it goes to the first one."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        here.machine.plug(STRANGER, "2")
        await here.quiet()
        await (here.restart if is_restarted else here.edit)(special, usb(ANY))
        assert await here.run("too early", SPECIAL) is None
        here.end("p")
        await here.quiet()
        assert here.healthy() == {SPECIAL: 1, ANY: 1}
        await here.each_stick_has_one_pod()


async def test_resources_that_swap_places_swap_the_stick(short_dir: Path) -> None:
    """Rule 5: with nothing held, the order in the file decides at once, and both ways."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(special, usb(ANY))
        assert here.healthy() == {SPECIAL: 1}
        await here.edit(usb(ANY), special)
        assert here.healthy() == {ANY: 1}
        await here.edit(special, usb(ANY))
        assert here.healthy() == {SPECIAL: 1}
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
async def test_first_resource_waits_for_the_holder_over_a_restart(short_dir: Path, is_killed: bool) -> None:
    """Rules 1 and 5: the second resource holds the stick, which the first one wants at the start."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.restart(special, usb(ANY), is_killed=is_killed)
        await here.restart(is_killed=is_killed)
        assert await here.run("too early", SPECIAL) is None
        here.end("p")
        await here.quiet()
        assert here.healthy() == {SPECIAL: 1}
        await here.each_stick_has_one_pod()


async def test_removed_resource_leaves_its_stick_to_the_next_one(short_dir: Path) -> None:
    """Rules 4 and 5: not before the pod has ended."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(special, usb(ANY))
        await here.must_run("p", SPECIAL)
        await here.edit(usb(ANY))
        assert here.healthy() == {SPECIAL: 1}
        here.end("p")
        await here.quiet()
        assert here.healthy() == {ANY: 1}
        await here.each_stick_has_one_pod()


async def test_removed_resource_gives_out_nothing_more(short_dir: Path) -> None:
    """Rule 4: it lists what is held, and refuses the rest."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.edit(usb("example.com/none", vendor="ffff"))
        assert await here.run("q", ANY) is None
        here.end("p")
        await here.quiet()
        assert here.capacity() == {}
        await here.edit(usb(ANY))
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("first", [ports, special], ids=["path", "usb"])
async def test_two_kinds_of_source_count_a_stick_once(short_dir: Path, first: dict[str, object]) -> None:
    """Rules 2 and 5: a path and a USB device are one piece of hardware."""
    second = special if first is ports else ports
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(first, second)
        assert here.capacity() == {first["name"]: 1}
        await here.must_run("p", str(first["name"]))
        await here.restart(second, first)
        await here.each_stick_has_one_pod()


# ── links ──


async def with_two_links(here: Node) -> None:
    here.machine.plug(FIRST, "1")
    here.machine.plug(STRANGER, "2")
    lead(here, FIRST, STRANGER)
    await here.start(path(LEFT, "/dev/mine/left"), path(RIGHT, "/dev/mine/right"))


def lead(here: Node, left: Stick, right: Stick) -> None:
    here.machine.link("/dev/mine/left", left)
    here.machine.link("/dev/mine/right", right)


async def test_links_that_swap_and_swap_back_leave_nothing_out(short_dir: Path) -> None:
    """Rule 5: ownership is decided again after every change."""
    async with node(short_dir) as here:
        await with_two_links(here)
        lead(here, STRANGER, FIRST)
        await here.quiet()
        assert here.healthy() == {LEFT: 1, RIGHT: 1}
        lead(here, FIRST, STRANGER)
        await here.quiet()
        assert here.healthy() == {LEFT: 1, RIGHT: 1}
        await here.each_stick_has_one_pod()


async def test_links_that_meet_and_part_leave_nothing_out(short_dir: Path) -> None:
    """Rule 5: for a while both lead to one stick."""
    async with node(short_dir) as here:
        await with_two_links(here)
        lead(here, STRANGER, STRANGER)
        await here.quiet()
        assert sum(here.healthy().values()) == 1
        lead(here, FIRST, STRANGER)
        await here.quiet()
        assert here.healthy() == {LEFT: 1, RIGHT: 1}
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["scan", "restart"])
async def test_links_that_swap_under_a_holder_give_its_sticks_to_nobody(
    short_dir: Path, is_restarted: bool
) -> None:
    """Rule 2: the pod can open one stick now, and the other one after a restart of its container."""
    async with node(short_dir) as here:
        await with_two_links(here)
        await here.must_run("p", LEFT)
        lead(here, STRANGER, FIRST)
        await here.quiet()
        if is_restarted:
            await here.restart()
        await here.fill()
        here.nothing_was_wrong()
        lead(here, FIRST, STRANGER)
        await here.quiet()
        await here.each_stick_has_one_pod()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
async def test_link_of_a_removed_resource_gives_no_other_stick_away(
    short_dir: Path, *, is_restarted: bool
) -> None:
    """Rule 2: a container opens at its restart what its host path leads to by then."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        cam = here.machine.root / "dev/cam"
        cam.symlink_to("ttyUSB0")
        await here.start(path(LEFT, "/dev/cam"), usb(ANY))
        await here.must_run("p", LEFT)
        await here.quiet()
        await (here.restart(usb(ANY)) if is_restarted else here.edit(usb(ANY)))
        for target in ("ttyUSB0", "ttyUSB1"):
            cam.unlink()  # no event of the kernel has the daemon look at sticks
            cam.symlink_to(target)
            await here.quiet()
        assert await here.run("q", ANY) is None
        await here.start_again("p")
        await here.each_stick_has_one_pod()


async def test_held_stick_counts_for_when_none(short_dir: Path) -> None:
    """The daemon starts: the only stick is held by a pod under another name, and is offered later."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.restart({**ports, "whenNone": "fail"})
        here.end("p")
        await here.quiet()
        assert here.healthy() == {PORTS: 1}
