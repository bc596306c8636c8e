"""Devices that really come and go: a terminal for everybody, a loop device for those who may."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from devplug.cli.hotplug import LoopPlug, TerminalPlug, best_plug

FREE_LOOP = 1_000 + os.getpid() % 500 * 10
"""The first of ten numbers that no other test run uses at the same time."""


def _may_make_loops() -> bool:
    return isinstance(best_plug(), LoopPlug)


needs_loops = pytest.mark.skipif(
    not _may_make_loops(), reason="only uid 0 with the kernel's own /dev makes loop devices"
)


async def test_a_terminal_has_a_node_while_it_is_plugged() -> None:
    plug = TerminalPlug()
    await plug.plug()
    path = Path(plug.path)
    assert path.is_char_device()
    assert path.match(plug.glob)
    await plug.unplug()
    assert not path.exists()


async def test_a_terminal_may_be_unplugged_twice_and_plugged_again() -> None:
    plug = TerminalPlug()
    for _ in range(2):
        await plug.plug()
        await plug.unplug()
        await plug.unplug()
    assert plug.path == ""


async def test_the_times_of_a_terminal_are_those_of_the_calls() -> None:
    plug = TerminalPlug()
    before = time.monotonic()
    plugged_at = await plug.plug()
    between = time.monotonic()
    assert before <= plugged_at <= between <= await plug.unplug() <= time.monotonic()


@needs_loops
async def test_a_loop_device_has_a_node_while_it_is_plugged() -> None:
    plug = LoopPlug(FREE_LOOP)
    await plug.plug()
    path = Path(plug.path)
    assert path.is_block_device()
    assert path.match(plug.glob)
    await plug.unplug()
    assert not path.exists()
    await plug.unplug()


@needs_loops
async def test_the_time_of_a_loop_device_is_before_the_end_of_the_call() -> None:
    plug = LoopPlug(FREE_LOOP + 1)
    before = time.monotonic()
    plugged_at = await plug.plug()
    between = time.monotonic()
    unplugged_at = await plug.unplug()
    assert before < plugged_at <= between < unplugged_at <= time.monotonic()


@needs_loops
async def test_a_number_that_somebody_else_took_meanwhile_is_left_to_them() -> None:
    theirs, ours = LoopPlug(FREE_LOOP + 2), LoopPlug(FREE_LOOP + 2)
    await theirs.plug()
    try:
        await ours.plug()
        assert ours.path == f"/dev/loop{FREE_LOOP + 3}"
        await ours.unplug()
        assert Path(theirs.path).exists()
    finally:
        await ours.unplug()
        await theirs.unplug()


@needs_loops
async def test_a_loop_device_that_cannot_be_removed_yet_can_be_removed_later() -> None:
    plug = LoopPlug(FREE_LOOP + 4)
    await plug.plug()
    path = Path(plug.path)
    holder = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as busy:
            await plug.unplug()
        assert busy.value.errno == errno.EBUSY
    finally:
        os.close(holder)
    await plug.unplug()
    assert not path.exists()


@needs_loops
def test_the_best_plug_has_a_number_that_is_free() -> None:
    plug = best_plug()
    assert isinstance(plug, LoopPlug)
    assert not Path(f"/dev/loop{plug.number}").exists()
