"""Clean-up that fails closed: no pod gets a stick whose last use was not cleaned up."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from devplug.holds.held_devices import LAST_RETRY_SECONDS
from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick
from tests.ownership.node import KUBELET_FORGETS_SECONDS, Node, node, usb
from tests.virtualtime import on_virtual_time, passes

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
FIRST, TWIN, STRANGER = Stick("first", "S"), Stick("twin", "S"), Stick("stranger", "T")
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def full_disk(folder: Path) -> Iterator[Callable[[], Path]]:
    """Have a folder on a small disk; yield what fills it. A test skips where mounts are refused."""
    folder.mkdir(parents=True)
    if _libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"size=64k,mode=700"):
        pytest.skip(f"cannot mount here: {os.strerror(ctypes.get_errno())}")
    filler = folder / "filler"

    def fill() -> Path:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass
        return filler

    try:
        yield fill
    finally:
        _libc.umount2(os.fsencode(folder), _MNT_DETACH)


async def used_once(here: Node) -> None:
    """Have a pod use the only stick."""
    here.machine.plug(FIRST, "1")
    await here.start(usb(ANY, **here.cleaning()))
    await here.must_run("p", ANY)
    await here.quiet()


async def test_stick_is_cleaned_once_between_two_pods(short_dir: Path) -> None:
    """Rule 8."""
    async with node(short_dir) as here:
        await used_once(here)
        here.end("p")
        await here.quiet()
        assert here.cleaned() == ["first"]
        await here.must_run("q", ANY)
        assert here.cleaned() == ["first"]


BROKEN: dict[str, Any] = {"onRelease": {"exec": {"command": ["/bin/false"]}}}


async def test_retired_resource_lists_what_it_could_not_clean_as_unhealthy(short_dir: Path) -> None:
    """Rules 4 and 8: the resource is renamed, and the command stays broken."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **BROKEN))
        await here.must_run("p", ANY)
        here.end("p")
        await here.quiet()
        await here.edit(usb(OTHER, **BROKEN))
        await here.quiet()
        assert here.healthy() == {}


@pytest.mark.parametrize("name", [ANY, OTHER], ids=["same name", "renamed"])
async def test_edit_that_repairs_the_command_has_the_stick_cleaned(short_dir: Path, name: str) -> None:
    """Rule 8."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **BROKEN))
        await here.must_run("p", ANY)
        here.end("p")
        await here.quiet()
        await here.edit(usb(name, **here.cleaning()))
        await passes(LAST_RETRY_SECONDS)
        assert here.cleaned() == ["first"]
        assert here.healthy() == {name: 1}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
async def test_stick_is_cleaned_after_a_release_that_the_daemon_missed(
    short_dir: Path, is_killed: bool
) -> None:
    """Rule 8."""
    async with node(short_dir) as here:
        await used_once(here)
        await (here.kill if is_killed else here.stop)()
        here.end("p")
        await here.start()
        await here.must_run("q", ANY)
        assert here.cleaned() == ["first"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
async def test_stick_that_was_given_right_before_the_end_is_cleaned(short_dir: Path, is_killed: bool) -> None:
    """Rules 1 and 8: the hold is written before the container has the stick."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.must_run("p", ANY)
        await (here.kill if is_killed else here.stop)()
        here.end("p")
        await here.start()
        await here.must_run("q", ANY)
        assert here.cleaned() == ["first"]


async def test_stick_under_another_name_is_cleaned(short_dir: Path) -> None:
    """Rules 1 and 8: the resource is renamed while the daemon is down, and the pod ends."""
    async with node(short_dir) as here:
        await used_once(here)
        await here.stop()
        here.end("p")
        await here.start(usb(OTHER, **here.cleaning()))
        await here.must_run("q", OTHER)
        assert here.cleaned() == ["first"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
async def test_clean_up_of_an_unplugged_stick_waits_for_it_over_a_restart(
    short_dir: Path, is_killed: bool
) -> None:
    """Rules 3 and 8: no device is listed for it meanwhile, and no command runs without it."""
    async with node(short_dir) as here:
        await used_once(here)
        here.unplug(FIRST)
        here.end("p")
        await here.restart(is_killed=is_killed)
        assert here.capacity() == {}
        here.machine.plug(FIRST, "3")
        await here.quiet()
        assert here.cleaned() == ["first"]
        assert here.healthy() == {ANY: 1}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["edit", "restart"])
async def test_stick_that_another_resource_finds_now_is_cleaned(short_dir: Path, is_restarted: bool) -> None:
    """Rule 8: its own resource selects other sticks since the edit."""
    async with node(short_dir) as here:
        await used_once(here)
        other = usb(OTHER, **here.cleaning())
        await (here.restart if is_restarted else here.edit)(usb(ANY, vendor="1a86", **here.cleaning()), other)
        here.end("p")
        await here.quiet()
        assert here.cleaned() == ["first"]
        await here.must_run("q", OTHER)
        here.nothing_was_wrong()


@pytest.mark.parametrize("is_removed", [False, True], ids=["kept", "removed"])
async def test_stick_that_comes_back_to_another_resource_is_cleaned(
    short_dir: Path, is_removed: bool
) -> None:
    """Rule 8: it is unplugged when its pod ends, and plugged in again after the edit."""
    async with node(short_dir) as here:
        await used_once(here)
        here.unplug(FIRST)
        here.end("p")
        await here.quiet()
        kept = [] if is_removed else [usb(ANY, vendor="1a86", **here.cleaning())]
        await here.edit(*kept, usb(OTHER, **here.cleaning()))
        assert here.cleaned() == []
        here.machine.plug(FIRST, "1")
        await here.quiet()
        assert here.cleaned() == ["first"]
        await here.must_run("q", OTHER)
        here.nothing_was_wrong()


async def test_twin_of_a_used_stick_is_not_cleaned_in_its_place(short_dir: Path) -> None:
    """Rules 3 and 8: the clean-up runs on the hardware that was used."""
    async with node(short_dir) as here:
        await used_once(here)
        here.machine.plug(TWIN, "2")
        await here.quiet()
        await here.restart()
        here.end("p")
        await here.quiet()
        assert here.cleaned() == ["first"]


async def test_clean_up_never_runs_on_a_stick_in_use(short_dir: Path) -> None:
    """Rule 8: the pod of an unplugged stick ends, while another pod has its twin."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        here.machine.plug(TWIN, "2")
        await here.start(usb(ANY, **here.cleaning()))
        (held,) = (await here.must_run("p", ANY)).given
        here.machine.unplug(held)
        await here.quiet()
        await here.restart()
        await here.must_run("q", ANY)
        here.end("p")
        await here.quiet()
        assert here.cleaned() == []
        here.machine.plug(held, "1" if held is FIRST else "2")
        await here.quiet()
        assert here.cleaned() == [held.name]


async def test_no_pod_gets_a_stick_whose_use_cannot_be_recorded(short_dir: Path) -> None:
    """Rule 8: the disk is full, and a daemon that died would forget to clean the stick."""
    async with node(short_dir) as here:
        with full_disk(here.folder / "device-plugins" / ".devplug") as fill:
            here.machine.plug(FIRST, "1")
            await here.start(usb(ANY, **here.cleaning()))
            filler = fill()
            assert await here.run("p", ANY) is None
            await here.quiet()
            assert here.healthy() == {}
            filler.unlink()
            await here.quiet()
            await here.must_run("q", ANY)
            await here.stop()


async def test_full_disk_refuses_no_stick_that_needs_no_clean_up(short_dir: Path) -> None:
    """Rule 8."""
    async with node(short_dir) as here:
        with full_disk(here.folder / "device-plugins" / ".devplug") as fill:
            here.machine.plug(FIRST, "1")
            await here.start(usb(ANY))
            fill()
            await here.must_run("p", ANY)
            await here.quiet()
            assert here.healthy() == {ANY: 1}
            await here.stop()


@pytest.mark.parametrize("how", ["damaged", "emptied", "lost"])
async def test_lost_records_clean_what_no_pod_holds(short_dir: Path, how: str) -> None:
    """Rule 8: every stick that no pod holds is cleaned once, and no other."""
    async with node(short_dir) as here:
        await used_once(here)
        here.machine.plug(STRANGER, "2")
        await here.quiet()
        await here.must_run("stays", ANY)
        await here.quiet()
        await here.stop()
        here.end("p")
        for file in here.memory():
            if how == "lost":
                file.unlink()
            else:
                file.write_text("" if how == "emptied" else "{")
        await here.start()
        await here.must_run("q", ANY)
        assert here.cleaned() == ["first"]


async def test_first_start_cleans_nothing(short_dir: Path) -> None:
    """Rule 8: a folder that never was is a first start."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, **here.cleaning()))
        await here.quiet()
        assert here.cleaned() == []


async def test_clean_up_that_an_edit_adds_runs_after_the_present_use(short_dir: Path) -> None:
    """Rules 8 and 9: the pod was there before the edit."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY))
        await here.must_run("p", ANY)
        await here.quiet()
        await here.edit(usb(ANY, **here.cleaning()))
        assert here.cleaned() == []
        here.end("p")
        await here.quiet()
        assert here.cleaned() == ["first"]


async def test_shared_stick_is_cleaned_after_its_last_use(short_dir: Path) -> None:
    """Rule 8."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(usb(ANY, share={"replicas": 2}, **here.cleaning()))
        await here.must_run("p", ANY)
        await here.must_run("q", ANY)
        await here.quiet()
        here.end("p")
        await here.quiet()
        assert here.cleaned() == []
        await here.restart()
        here.end("q")
        await here.quiet()
        assert here.cleaned() == ["first"]


async def test_uncleaned_stick_is_not_offered_by_a_resource_without_command(
    short_dir: Path,
) -> None:
    """Rule 8: the resource that had the command is configured no more, and the daemon has started again."""
    async with node(short_dir) as here:
        await used_once(here)
        await here.restart(usb(OTHER))
        here.end("p")
        await here.quiet()
        assert await here.run("q", OTHER) is None
        await here.edit(usb(OTHER, **here.cleaning()))
        await passes(LAST_RETRY_SECONDS)
        assert here.cleaned() == ["first"]
        await here.must_run("q", OTHER)
        here.nothing_was_wrong()


async def test_static_device_that_no_resource_has_any_more_ends_with_its_pod(short_dir: Path) -> None:
    """There is no hardware that could come back to be cleaned."""
    async with node(short_dir) as here:
        static = {"discover": {"static": {"ids": ["a"]}}, "expose": {"env": {"X": "1"}}}
        await here.start({"name": ANY, **static, "onRelease": {"exec": {"command": ["/bin/true"]}}})
        await here.must_run("p", ANY)
        await here.restart({"name": OTHER, **static})
        here.end("p")
        await here.quiet()
        await passes(KUBELET_FORGETS_SECONDS)
        assert here.capacity() == {OTHER: 1}
