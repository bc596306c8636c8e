"""The process's one inotify descriptor: which folders it watches for whom, and whom an event wakes."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from devplug.linux import inotify
from devplug.linux.inotify import (
    FileEvent,
    Subscription,
    Watcher,
    folders_to_watch,
    shared_watcher,
    until_absent,
    until_present,
)
from tests.linux.inotify_queue import FEW_EVENTS_KEPT, overflow, turns
from tests.wire.fakes import open_descriptors

IN_CLOSE_WRITE = 0x8  # inotify(7)


# ── which folders ──


@pytest.mark.parametrize(
    ("there", "patterns", "planned"),
    [
        ("", ["node"], {".": {"node"}}),
        ("a/b/", ["a/b/tty*"], {".": {"a"}, "a": {"b"}, "a/b": {"tty*"}}),
        ("a/", ["a/b/c/d"], {".": {"a"}, "a": {"b"}}),
        ("a", ["a/b"], {".": {"a"}}),
        ("card0/ card1/ card2 other/", ["card*/dev"], {".": {"card*"}, "card0": {"dev"}, "card1": {"dev"}}),
        ("", ["missing/*/x"], {".": {"missing"}}),
        ("real/ link->real", ["link/x"], {".": {"link"}, "link": {"x"}}),
        ("a/", ["a/x", "a/y*", "b"], {".": {"a", "b"}, "a": {"x", "y*"}}),
    ],
    ids=[
        "the folder of a path for its name",
        "every folder on the way for the next one",
        "no further than to a folder that is missing",
        "a file in the place of a folder is no folder",
        "a glob in the middle is every folder that matches",
        "a glob whose folder cannot be read matches none",
        "a link to a folder is a folder",
        "patterns that share a folder share its watch",
    ],
)
def test_the_folders_to_watch_are_those_on_the_way_to_each_pattern(
    short_dir: Path, there: str, patterns: list[str], planned: dict[str, set[str]]
) -> None:
    for one in there.split():
        name, _, target = one.partition("->")
        if target:
            (short_dir / name).symlink_to(target)
        else:
            (short_dir / name).mkdir(parents=True) if name.endswith("/") else (short_dir / name).touch()
    found = folders_to_watch(f"{short_dir}/{pattern}" for pattern in patterns)
    below = [path for path in found if path == str(short_dir) or path.startswith(f"{short_dir}/")]
    assert {os.path.relpath(path, short_dir): found[path] for path in below} == planned


def test_the_root_is_on_every_way() -> None:
    assert folders_to_watch(["/missing/x"]) == {"/": {"missing"}}
    assert folders_to_watch(["/missing"]) == {"/": {"missing"}}


def test_no_pattern_needs_no_folder() -> None:
    assert folders_to_watch([]) == {}


# ── one descriptor ──


async def test_all_who_watch_share_one_descriptor_and_the_last_gives_it_back(short_dir: Path) -> None:
    before = open_descriptors()
    async with shared_watcher() as one:
        async with shared_watcher() as other:
            assert one is other
            with one.subscribe(lambda: None) as first, other.subscribe(lambda: None) as second:
                assert open_descriptors() == before
                first.arm([f"{short_dir}/a"])
                second.arm([f"{short_dir}/b", "/missing"])
                assert open_descriptors() == before + 1
        with one.subscribe(lambda: None) as third:
            third.arm([f"{short_dir}/c"])
            assert open_descriptors() == before + 1
    assert open_descriptors() == before
    async with shared_watcher() as later:
        assert later is not one


def test_each_loop_has_a_watcher_of_its_own() -> None:
    async def watcher() -> Watcher:
        async with shared_watcher() as one:
            return one

    assert asyncio.run(watcher()) is not asyncio.run(watcher())


# ── whom an event wakes ──


@asynccontextmanager
async def woken_of(*paths: object) -> AsyncIterator[list[str]]:
    """The file names of those paths, each with a subscriber of its own, whose subscriber was woken."""
    woken: list[str] = []
    async with shared_watcher() as watcher:
        with ExitStack() as stack:
            for path in map(str, paths):
                on_change = partial(woken.append, path)
                stack.enter_context(watcher.subscribe(on_change)).arm([path])
            yield woken


@asynccontextmanager
async def subscribed() -> AsyncIterator[tuple[Subscription, list[None]]]:
    """A subscription, and an entry for each time that it is woken."""
    woken: list[None] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append(None)) as subscription:
            yield subscription, woken


async def test_a_subscriber_is_woken_by_its_own_names_only(short_dir: Path) -> None:
    async with woken_of(short_dir / "a", short_dir / "b*") as woken:
        for name, expected in (("b1", {"b*"}), ("x", {"b*"}), ("a", {"a", "b*"})):
            (short_dir / name).touch()
            await turns()
            assert {Path(path).name for path in woken} == expected


async def calls_for_an_event(folder: Path, waiting: int) -> int:
    """How many functions of the watcher run for one event that concerns one of so many who wait there."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == inotify.__file__

    async with woken_of(*(folder / str(number) for number in range(waiting))) as woken:
        await turns()
        (folder / "1").touch()
        sys.setprofile(count)
        try:
            await turns()
        finally:
            sys.setprofile(None)
    assert set(woken) == {str(folder / "1")}
    (folder / "1").unlink()
    return calls


async def test_an_event_costs_the_same_however_many_wait_for_other_names(short_dir: Path) -> None:
    """Or a program with a thousand resources would look at a million names when the kubelet restarts."""
    # Others make files in /tmp, too, and whoever watches below it is told.
    few = min([await calls_for_an_event(short_dir, waiting=3) for _ in range(3)])
    many = min([await calls_for_an_event(short_dir, waiting=300) for _ in range(3)])
    assert many < 2 * few


async def test_a_subscriber_that_has_more_names_than_before_is_woken_by_each_of_them(short_dir: Path) -> None:
    """By names as they stand and by globs, in any order: what was armed last is the whole of it."""
    async with subscribed() as (subscription, woken):
        for plan in (["a"], ["a", "b"], ["a", "b*"], ["b", "c"], ["*"], ["c"], []):
            subscription.arm([f"{short_dir}/{name}" for name in plan])
            for name in "abc":
                woken.clear()
                (short_dir / name).touch()
                (short_dir / name).unlink()
                await turns()
                assert bool(woken) == any(fnmatchcase(name, one) for one in plan), (plan, name)


async def test_a_name_without_wildcards_is_compared_and_not_compiled(short_dir: Path) -> None:
    compiled: list[object] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is fnmatch.translate.__code__:
            compiled.append(frame.f_locals["pat"])

    path = short_dir / f"new-every-time-{os.getpid()}"
    sys.setprofile(note)
    try:
        async with woken_of(path) as woken:
            for name in ("another", path.name):
                (short_dir / name).touch()
                await turns()
                assert bool(woken) == (name == path.name)
    finally:
        sys.setprofile(None)
    assert not [pattern for pattern in compiled if "new-every-time" in str(pattern)]


async def test_arming_wakes_nobody(short_dir: Path) -> None:
    async with subscribed() as (subscription, woken):
        for _ in range(5):
            subscription.arm([f"{short_dir}/a"])
        await turns()
        assert woken == []


async def test_a_subscription_that_has_ended_is_woken_no_more_and_the_others_are(short_dir: Path) -> None:
    woken: list[str] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append("stays")) as stays:
            stays.arm([f"{short_dir}/a"])
            with watcher.subscribe(lambda: woken.append("ends")) as ends:
                ends.arm([f"{short_dir}/a"])
            (short_dir / "a").touch()
            await turns()
    assert set(woken) == {"stays"}


@pytest.mark.parametrize("loss", ["removed", "renamed"])
async def test_the_loss_of_a_folder_wakes_all_who_watch_in_it(short_dir: Path, loss: str) -> None:
    folder = short_dir / "folder"
    folder.mkdir()
    async with woken_of(folder / "a", folder / "b") as woken:
        folder.rmdir() if loss == "removed" else folder.rename(short_dir / "aside")
        await turns()
    assert set(woken) == {f"{folder}/a", f"{folder}/b"}


async def test_two_ways_to_one_folder_keep_both_their_names(short_dir: Path) -> None:
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to("real")
    async with subscribed() as (subscription, woken):
        for name in ("a", "b"):
            subscription.arm([f"{short_dir}/link/a", f"{short_dir}/real/b"])
            await turns()
            woken.clear()
            (short_dir / "real" / name).touch()
            await turns()
            assert woken, name


@FEW_EVENTS_KEPT
async def test_more_events_than_the_kernel_keeps_wake_everybody(short_dir: Path) -> None:
    """Nobody knows what was lost, so everybody has to look."""
    noisy, quiet = short_dir / "noisy" / "wanted", short_dir / "quiet" / "wanted"
    noisy.parent.mkdir()
    quiet.parent.mkdir()
    async with woken_of(noisy, quiet) as woken:
        overflow(noisy.parent)
        while set(woken) != {str(noisy), str(quiet)}:
            await turns(1)


# ── folders that nobody wants ──


async def test_a_folder_that_goes_while_it_is_armed_is_no_error(short_dir: Path) -> None:
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: None) as subscription:
            watcher.arm(subscription, {f"{short_dir}/missing": {"a"}, str(short_dir): {"missing"}})


async def test_watches_of_folders_that_nobody_wants_are_given_back(short_dir: Path) -> None:
    """The kernel keeps a limited number of them for each user."""
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: None) as keeper, watcher.subscribe(lambda: None) as subscription:
            keeper.arm([f"{short_dir}/x"])
            before = len(kernel_watches())
            for n in range(20):
                (short_dir / f"d{n}").mkdir()
                subscription.arm([f"{short_dir}/d{n}/x"])
                assert len(kernel_watches()) == before + 1
            subscription.arm([])
            assert len(kernel_watches()) == before
            subscription.arm([f"{short_dir}/d0/x"])
            shutil.rmtree(short_dir / "d0")
            await turns()
            assert len(kernel_watches()) == before


async def test_writes_are_asked_of_the_kernel_in_their_folder_and_not_on_the_way_to_it(
    short_dir: Path,
) -> None:
    """On the way there may be /tmp, where everybody writes, and the kernel looks at all that lies there."""
    (short_dir / "in").mkdir()
    async with subscribed() as (subscription, woken):
        subscription.arm([f"{short_dir}/in/x"], writes_in=f"{short_dir}/in")
        masks = [int(facts["mask"], 16) for facts in kernel_watches()]
        assert [mask & IN_CLOSE_WRITE for mask in masks].count(IN_CLOSE_WRITE) == 1 < len(masks)
        (short_dir / "in/x").touch()
        await turns()
        woken.clear()
        (short_dir / "in/x").write_text("more")
        await turns()
        assert woken


def kernel_watches() -> list[dict[str, str]]:
    """The watches that the process has, as the kernel tells of them (proc(5))."""
    lines: list[str] = []
    for number in os.listdir("/proc/self/fdinfo"):  # noqa: PTH208 -- the numbers are what is wanted
        with suppress(FileNotFoundError):
            facts = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
            lines += [line for line in facts if line.startswith("inotify ")]
    return [dict(fact.split(":", 1) for fact in line.split()[1:]) for line in lines]


async def test_a_closed_watcher_can_be_closed_again() -> None:
    watcher = Watcher()
    watcher.close()
    with watcher.subscribe(lambda: None) as subscription:
        subscription.arm(["/missing"])
    watcher.close()
    watcher.close()


async def test_who_waits_for_a_path_is_woken_when_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "socket"
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(until_present(path))
        await asyncio.sleep(0)
        path.parent.mkdir()
        path.touch()
        await waiting
        await until_present(path)


async def test_who_waits_for_the_end_of_a_path_is_woken_when_its_folder_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    path.parent.mkdir()
    path.touch()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(until_absent(path))
        await asyncio.sleep(0)
        assert not waiting.done()
        shutil.rmtree(path.parent)
        await waiting
        await until_absent(path)


async def test_a_storm_of_events_is_read_in_several_turns_of_the_loop(short_dir: Path) -> None:
    wakes: list[None] = []
    is_all_read = asyncio.Event()

    def told(event: FileEvent) -> None:
        if Path(event.path).name == "last":
            is_all_read.set()

    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: wakes.append(None), told) as subscription:
            subscription.arm([f"{short_dir}/*"])
            for number in range(2000):
                (short_dir / f"{number}").touch()
            (short_dir / "last").touch()
            await is_all_read.wait()
    assert len(wakes) > 2
