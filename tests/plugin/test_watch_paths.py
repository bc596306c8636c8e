"""Paths that come and go, as the kernel tells: on real files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug import Device, DevicePlugin, PluginError, watch_paths
from devplug.plugin.discovery import LOOKS_AT_ONCE, LOOKS_PER_SECOND
from tests.plugin.fakes import RESOURCE, allocatable, registered, start
from tests.virtualtime import now, on_virtual_time
from tests.wire.fakes import open_descriptors

anyio_backend = on_virtual_time
LONG = 3600
"""A resync that no test waits for: what is seen was told by the kernel."""


def watching(*globs: object, every_seconds: float = LONG) -> AsyncGenerator[list[Path], None]:
    lists = watch_paths(*map(str, globs), every_seconds=every_seconds)
    assert hasattr(lists, "aclose")
    return lists  # type: ignore[return-value]  # so that tests can close it


async def names(lists: AsyncIterator[list[Path]], *wanted: str) -> None:
    """Read until the list has these names: a change may be told in more than one step."""
    async for paths in lists:
        assert paths == sorted(paths)
        if [path.name for path in paths] == list(wanted):
            return


async def test_what_is_there_comes_first_and_sorted(short_dir: Path) -> None:
    for name in ("b1", "a1", "c"):
        (short_dir / name).touch()
    async with aclosing(watching(short_dir / "*1")) as lists:
        assert await anext(lists) == [short_dir / "a1", short_dir / "b1"]


async def test_nothing_is_a_list_too(short_dir: Path) -> None:
    async with aclosing(watching(short_dir / "*")) as lists:
        assert await anext(lists) == []


async def test_a_path_that_two_globs_match_is_listed_once(short_dir: Path) -> None:
    (short_dir / "a").touch()
    async with aclosing(watching(short_dir / "*", short_dir / "a")) as lists:
        assert await anext(lists) == [short_dir / "a"]


async def test_a_path_that_appears_vanishes_or_is_renamed_is_told(short_dir: Path) -> None:
    async with aclosing(watching(short_dir / "tty*")) as lists:
        await names(lists)
        (short_dir / "ttyUSB0").touch()
        await names(lists, "ttyUSB0")
        (short_dir / "ttyUSB0").rename(short_dir / "ttyUSB1")
        await names(lists, "ttyUSB1")
        (short_dir / "ttyUSB1").rename(short_dir / "other")
        await names(lists)
        (short_dir / "other").rename(short_dir / "tty")
        await names(lists, "tty")
        (short_dir / "tty").unlink()
        await names(lists)


@pytest.mark.parametrize("deep", ["by-id", "serial/by-id", "a/b/c/d"])
async def test_a_folder_that_does_not_exist_yet_is_waited_for(short_dir: Path, deep: str) -> None:
    folder = short_dir / deep
    async with aclosing(watching(folder / "*")) as lists:
        await names(lists)
        folder.mkdir(parents=True)
        (folder / "A1").touch()
        await names(lists, "A1")


async def test_a_folder_that_is_removed_and_made_again_is_watched_again(short_dir: Path) -> None:
    """As udev does with /dev/serial/by-id when the last adapter goes."""
    folder = short_dir / "serial" / "by-id"
    async with aclosing(watching(folder / "*")) as lists:
        for _ in range(5):
            await names(lists)
            folder.mkdir(parents=True)
            (folder / "A1").touch()
            await names(lists, "A1")
            (folder / "B1").touch()
            await names(lists, "A1", "B1")
            shutil.rmtree(short_dir / "serial")


async def test_a_folder_that_is_renamed_away_is_told(short_dir: Path) -> None:
    folder = short_dir / "by-id"
    folder.mkdir()
    (folder / "A1").touch()
    async with aclosing(watching(folder / "*")) as lists:
        await names(lists, "A1")
        folder.rename(short_dir / "aside")
        await names(lists)
        (short_dir / "aside").rename(folder)
        await names(lists, "A1")


async def test_a_glob_in_the_middle_follows_folders_that_come_and_go(short_dir: Path) -> None:
    async with aclosing(watching(short_dir / "card*" / "dev")) as lists:
        await names(lists)
        (short_dir / "card0").mkdir()
        (short_dir / "card0" / "dev").touch()
        await names(lists, "dev")
        (short_dir / "card1").mkdir()
        (short_dir / "card1" / "dev").touch()
        await names(lists, "dev", "dev")
        shutil.rmtree(short_dir / "card0")
        await names(lists, "dev")


async def test_a_link_is_there_while_its_target_is(short_dir: Path) -> None:
    (short_dir / "by-id").mkdir()
    node = short_dir / "ttyUSB0"
    (short_dir / "by-id" / "A1").symlink_to("../ttyUSB0")
    async with aclosing(watching(short_dir / "by-id" / "*")) as lists:
        await names(lists)
        for _ in range(3):
            node.touch()
            await names(lists, "A1")
            node.unlink()
            await names(lists)


async def test_a_link_that_is_turned_to_another_target_is_followed(short_dir: Path) -> None:
    link = short_dir / "A1"
    link.symlink_to(short_dir / "n" / "old")
    (short_dir / "n").mkdir()
    async with aclosing(watching(link)) as lists:
        await names(lists)
        fresh = short_dir / "fresh"
        fresh.symlink_to(short_dir / "n" / "new")
        fresh.rename(link)
        (short_dir / "n" / "new").touch()
        await names(lists, "A1")
        (short_dir / "n" / "new").unlink()
        await names(lists)


async def test_a_folder_that_is_a_link_is_watched_where_it_points(short_dir: Path) -> None:
    """And what matters there under one name is not forgotten for what matters under the other."""
    real, link = short_dir / "real", short_dir / "link"
    real.mkdir()
    link.symlink_to(real)
    (real / "A1").symlink_to(real / "node")
    async with aclosing(watching(link / "A*")) as lists:
        await names(lists)
        (real / "node").touch()
        await names(lists, "A1")
        (real / "A2").touch()
        await names(lists, "A1", "A2")
        (real / "node").unlink()
        await names(lists, "A2")


async def test_what_else_happens_in_the_folder_is_not_told(short_dir: Path) -> None:
    async with aclosing(watching(short_dir / "tty*")) as lists, asyncio.TaskGroup() as group:
        await anext(lists)
        following = group.create_task(anext(lists))
        for n in range(100):
            (short_dir / f"noise{n}").touch()
            await asyncio.sleep(0)
        assert not following.done()
        (short_dir / "tty").touch()
        assert await following == [short_dir / "tty"]


async def test_the_timer_tells_without_a_change(short_dir: Path) -> None:
    async with aclosing(watching(short_dir / "*", every_seconds=60)) as lists:
        for turn in range(5):
            assert await anext(lists) == []
            assert now() == 60 * turn


@pytest.mark.parametrize("glob", ["dev/ttyUSB*", "", "./x", "*"])
async def test_a_relative_glob_is_refused_by_name(glob: str) -> None:
    with pytest.raises(PluginError, match=r"^watch_paths: .* is not an absolute path$") as caught:
        await anext(watching("/dev/null", glob))
    assert f'"{glob}"' in str(caught.value)


async def test_all_relative_globs_are_named_at_once() -> None:
    with pytest.raises(PluginError) as caught:
        await anext(watching("a", "/b", "c"))
    assert len(caught.value.faults) == 2


async def test_nothing_is_left_open(short_dir: Path) -> None:
    before = open_descriptors()
    async with aclosing(watching(short_dir / "*")) as one, aclosing(watching(short_dir / "*")) as two:
        await anext(one)
        await anext(two)
        assert open_descriptors() == before + 1
    assert open_descriptors() == before


async def test_an_adapter_that_is_plugged_in_and_out_reaches_the_kubelet(short_dir: Path) -> None:
    class Serial(DevicePlugin):
        resource_name = RESOURCE

        async def devices(self) -> AsyncIterator[list[Device]]:
            async for paths in watch_paths(f"{nodes}/*", every_seconds=LONG):
                yield [Device(path.name, device_nodes=[path]) for path in paths]

    nodes = short_dir / "nodes"
    async with registered(short_dir, Serial()) as (kubelet, _):
        await kubelet.wait(lambda: RESOURCE in kubelet.capacity())
        nodes.mkdir()
        (nodes / "A1").touch()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        (nodes / "A1").unlink()
        await kubelet.wait(lambda: allocatable(kubelet) == 0)


def test_without_a_descriptor_for_inotify_changes_are_still_noticed(short_dir: Path) -> None:
    """The kernel gives a user 128 of them by default, and other programs may have used them up."""
    program = f"""
import asyncio, resource
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True: held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError: pass
    async for paths in watch_paths("{short_dir}/node", every_seconds=3600):
        print(*paths, flush=True)
        if paths: break
        os.mkfifo("{short_dir}/node")
asyncio.run(main())
"""
    process = start(program)
    output, errors = process.communicate(timeout=40)
    assert (process.returncode, output) == (0, f"\n{short_dir}/node\n"), errors
    assert "inotify is not available; looking for changes every second instead" in errors


async def test_a_storm_of_changes_is_looked_at_some_times_a_second_and_its_end_is_seen(
    short_dir: Path,
) -> None:
    looks: list[int] = []
    is_seen = asyncio.Event()

    async def look() -> None:
        async for paths in watch_paths(f"{short_dir}/n*"):
            looks.append(len(paths))
            if len(paths) == 300:
                is_seen.set()

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look())
        for number in range(300):
            (short_dir / f"n{number}").touch()
            for _ in range(5):
                await asyncio.sleep(0)
        await is_seen.wait()
        looking.cancel()
    assert len(looks) <= 1 + LOOKS_AT_ONCE + LOOKS_PER_SECOND * now() + 1
