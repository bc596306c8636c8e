"""Two daemons on one node, in two processes, whose resources want the same sticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick
from tests.ownership.node import KUBELET_FORGETS_SECONDS, node, path, usb
from tests.ownership.test_cleanup import BROKEN
from tests.virtualtime import on_virtual_time, passes

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
FIRST, STRANGER = Stick("first", "S"), Stick("stranger", "T")


@pytest.mark.parametrize("other", [usb(OTHER), path(OTHER, "/dev/ttyUSB*")], ids=["usb", "path"])
async def test_stick_that_another_process_has_given_out_is_not_given_out(
    short_dir: Path, other: dict[str, object]
) -> None:
    """Rule 1: everybody's holds count for everybody."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        async with here.another_daemon(other):
            assert await here.run("q", OTHER) is None
            here.nothing_was_wrong()
            here.end("p")
            await here.quiet()
            await here.must_run("q", OTHER)
            await here.quiet()
            assert await here.run("r", ANY) is None
            here.nothing_was_wrong()


async def test_stick_that_another_process_offers_goes_to_one_pod(short_dir: Path) -> None:
    """Rule 6: both list it, and two pods come at the same moment."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        async with here.another_daemon(usb(OTHER)):
            await here.run("p", ANY)
            await here.run("q", OTHER)
            here.nothing_was_wrong()
            assert here.owner(FIRST)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
async def test_stick_that_an_ended_process_left_is_cleaned_before_the_next_pod(
    short_dir: Path, *, is_killed: bool
) -> None:
    """Rules 1 and 8: the process that finds the stick cleans it."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        async with here.another_daemon(usb(OTHER, **here.cleaning())):
            await (here.kill() if is_killed else here.stop())
            here.end("p")
            await here.quiet()
            assert here.cleaned() == ["first"]
            await here.must_run("q", OTHER)
            await here.start()
            assert here.cleaned() == ["first"]
            here.nothing_was_wrong()


@pytest.mark.parametrize("other", [{}, BROKEN], ids=["no command", "a command that fails"])
async def test_stick_that_no_process_could_clean_is_offered_by_none(
    short_dir: Path, other: dict[str, Any]
) -> None:
    """Rule 8: the process that gave it out cleans it when it comes back."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        async with here.another_daemon(usb(OTHER, **other)):
            await here.kill()
            here.end("p")
            await here.quiet()
            assert here.healthy() == {}
            await here.start()
            assert here.cleaned() == ["first"]
            await here.must_run("q", ANY)
            here.nothing_was_wrong()


async def test_process_that_comes_back_has_its_holds_to_itself(short_dir: Path) -> None:
    """What the other process knew of them meanwhile is forgotten."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.quiet()
        async with here.another_daemon(usb(OTHER)):
            await here.kill()
            here.end("p")
            await here.quiet()
            await here.start()
            await here.stop()
            await here.quiet()
            await here.must_run("q", OTHER)
            here.nothing_was_wrong()


async def test_renamed_resource_of_an_ended_process_stays_registered_while_held(short_dir: Path) -> None:
    """Rule 4: a rollout in which the new process starts before the old one ends."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        async with here.another_daemon(usb(OTHER)):
            await here.stop()
            await here.quiet()
            await here.restart_kubelet()
            await passes(KUBELET_FORGETS_SECONDS)
            assert here.healthy() == {ANY: 1, OTHER: 1}
            here.end("p")
            await here.quiet()
            await passes(KUBELET_FORGETS_SECONDS)
            assert here.capacity() == {OTHER: 2}
            here.nothing_was_wrong()


async def test_process_that_comes_back_gets_its_resource_from_the_one_that_kept_it(short_dir: Path) -> None:
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(STRANGER, "2")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        async with here.another_daemon(usb(OTHER, vendor="1a86")):
            await here.kill()
            await here.quiet()
            assert here.healthy() == {ANY: 1}
            await here.start()
            assert here.healthy() == {ANY: 2}
            here.nothing_was_wrong()
