"""The devices of the demo: the configuration that serves them, and one that comes and goes."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from devplug.cli.demo_devices import LoopPlug, TerminalPlug, best_plug, demo_config, devices_here, shared_here
from devplug.daemon.config.loader import load


@pytest.mark.parametrize("plug", [TerminalPlug(), LoopPlug(200)])
@pytest.mark.parametrize("present", [[], [("fuse", "/dev/fuse"), ("tun", "/dev/net/tun")]])
def test_the_configuration_loads(plug: TerminalPlug | LoopPlug, present: list[tuple[str, str]]) -> None:
    config = load(demo_config(present, plug, Path("/tmp/demo/firmware")), "demo.yaml")
    names = [*(f"example.com/{kind}" for kind, _ in present), f"example.com/{plug.kind}"]
    assert [resource.name for resource in config.resources] == names


@pytest.mark.parametrize("folder", ["/tmp/a b", "/tmp/a,b", "/tmp/{a}", "/tmp/[a]: b", "/tmp/é"])
def test_the_temporary_folder_may_have_any_name(folder: str) -> None:
    config = load(demo_config([], TerminalPlug(), Path(folder)), "demo.yaml")
    (mount,) = config.resources[0].expose.mounts
    assert mount.host_path.literal == folder


def test_what_is_shared_here_exists() -> None:
    assert all(Path(path).exists() for _, path in shared_here())


def test_a_device_here_has_its_row() -> None:
    config = load("version: 1\nresources: [{name: a.b/c, discover: {path: /dev/null}}]", "f.yaml")
    assert devices_here(config) == [
        {
            "resource": "a.b/c",
            "device": "null",
            "node": "/dev/null",
            "numa_node": None,
            "health": "Healthy",
            "replicas": 1,
        }
    ]


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
