"""The process's one inotify descriptor: which folders it watches for whom, and whom an event wakes."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import resource
import shutil
import sys
from contextlib import ExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devplug.linux import inotify
from devplug.linux.inotify import (
    EventKind,
    FileEvent,
    Watcher,
    folders_to_watch,
    shared_watcher,
    until_absent,
    until_present,
)
from tests.wire.fakes import open_descriptors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from types import FrameType
    from typing import Any

EVENTS_KEPT = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
"""How many events the kernel keeps for a reader."""

IN_CLOSE_WRITE = 0x8  # inotify(7)


def play(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(50):
            await story

    asyncio.run(bounded())


def overflow(folder: Path) -> None:
    """Make more events than the kernel keeps: two by each change of a name."""
    names = folder / "noise", folder / "sound"
    names[0].touch()
    for number in range(EVENTS_KEPT // 2 + 1):
        names[number % 2].rename(names[1 - number % 2])


async def turns(count: int = 10) -> None:
    """Let the loop read what the kernel has told by now: its queue is filled before a call returns."""
    for _ in range(count):
        await asyncio.sleep(0)


# ── which folders ──


def plan(folder: Path, *patterns: str) -> dict[str, set[str]]:
    """The folders to watch for patterns below `folder`, named from there; those above it left out."""
    found = folders_to_watch(f"{folder}/{pattern}" for pattern in patterns)
    return {
        os.path.relpath(path, folder): names
        for path, names in found.items()
        if path == str(folder) or path.startswith(f"{folder}/")
    }


def test_the_folder_of_a_path_is_watched_for_its_name(short_dir: Path) -> None:
    assert plan(short_dir, "node") == {".": {"node"}}


def test_every_folder_on_the_way_is_watched_for_the_next_one(short_dir: Path) -> None:
    (short_dir / "a" / "b").mkdir(parents=True)
    assert plan(short_dir, "a/b/tty*") == {".": {"a"}, "a": {"b"}, "a/b": {"tty*"}}


def test_the_root_is_on_every_way() -> None:
    assert folders_to_watch(["/missing/x"]) == {"/": {"missing"}}
    assert folders_to_watch(["/missing"]) == {"/": {"missing"}}


def test_the_way_ends_where_a_folder_is_missing(short_dir: Path) -> None:
    (short_dir / "a").mkdir()
    assert plan(short_dir, "a/b/c/d") == {".": {"a"}, "a": {"b"}}


def test_a_file_in_the_place_of_a_folder_is_no_folder(short_dir: Path) -> None:
    (short_dir / "a").touch()
    assert plan(short_dir, "a/b") == {".": {"a"}}


def test_a_glob_in_the_middle_is_every_folder_that_matches(short_dir: Path) -> None:
    for name in ("card0", "card1", "other"):
        (short_dir / name).mkdir()
    (short_dir / "card2").touch()
    assert plan(short_dir, "card*/dev") == {".": {"card*"}, "card0": {"dev"}, "card1": {"dev"}}


def test_a_glob_whose_folder_cannot_be_read_matches_none(short_dir: Path) -> None:
    assert plan(short_dir, "missing/*/x") == {".": {"missing"}}


def test_a_link_to_a_folder_is_a_folder(short_dir: Path) -> None:
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to("real")
    assert plan(short_dir, "link/x") == {".": {"link"}, "link": {"x"}}


def test_patterns_that_share_a_folder_share_its_watch(short_dir: Path) -> None:
    (short_dir / "a").mkdir()
    assert plan(short_dir, "a/x", "a/y*", "b") == {".": {"a", "b"}, "a": {"x", "y*"}}


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
    async def story() -> None:
        async with shared_watcher() as watcher:
            seen.append(watcher)

    seen: list[Watcher] = []
    play(story())
    play(story())
    assert seen[0] is not seen[1]


# ── whom an event wakes ──


async def test_a_subscriber_is_woken_by_its_own_names_only(short_dir: Path) -> None:
    woken: list[str] = []
    async with shared_watcher() as watcher:
        with ExitStack() as stack:
            for name in ("a", "b*"):
                on_change = lambda name=name: woken.append(name)  # noqa: E731 -- one word is enough
                stack.enter_context(watcher.subscribe(on_change)).arm([f"{short_dir}/{name}"])
            (short_dir / "b1").touch()
            await turns()
            assert set(woken) == {"b*"}
            (short_dir / "x").touch()
            await turns()
            assert set(woken) == {"b*"}
            (short_dir / "a").touch()
            await turns()
            assert set(woken) == {"a", "b*"}


def calls_for_an_event(folder: Path, waiting: int) -> int:
    """How many functions of the watcher run for one event that concerns one of so many who wait there."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == inotify.__file__

    async def story() -> None:
        woken: list[int] = []
        async with shared_watcher() as watcher:
            with ExitStack() as stack:
                for number in range(waiting):
                    on_change = lambda number=number: woken.append(number)  # noqa: E731 -- as above
                    stack.enter_context(watcher.subscribe(on_change)).arm([f"{folder}/{number}"])
                await turns()
                (folder / "1").touch()
                sys.setprofile(count)
                try:
                    await turns()
                finally:
                    sys.setprofile(None)
        assert set(woken) == {1}

    play(story())
    (folder / "1").unlink()
    return calls


def test_an_event_costs_the_same_however_many_wait_for_other_names(short_dir: Path) -> None:
    """Or a program with a thousand resources would look at a million names when the kubelet restarts."""
    # Others make files in /tmp, too, and whoever watches below it is told.
    few, many = (
        min(calls_for_an_event(short_dir, waiting=waiting) for _ in range(3)) for waiting in (3, 300)
    )
    assert many < 2 * few


async def test_a_subscriber_that_has_more_names_than_before_is_woken_by_each_of_them(short_dir: Path) -> None:
    """By names as they stand and by globs, in any order: what was armed last is the whole of it."""
    plans = (["a"], ["a", "b"], ["a", "b*"], ["b", "c"], ["*"], ["c"])

    woken: list[int] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append(1)) as subscription:
            for plan in plans:
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

    async def scenario() -> None:
        woken: list[str] = []
        async with shared_watcher() as watcher:
            with watcher.subscribe(lambda: woken.append("woken")) as subscription:
                subscription.arm([f"{short_dir}/new-every-time-{os.getpid()}"])
                (short_dir / "another").touch()
                await turns()
                assert not woken
                (short_dir / f"new-every-time-{os.getpid()}").touch()
                await turns()
                assert woken

    sys.setprofile(note)
    try:
        await scenario()
    finally:
        sys.setprofile(None)
    assert not [pattern for pattern in compiled if "new-every-time" in str(pattern)]


async def test_arming_wakes_nobody(short_dir: Path) -> None:
    woken: list[int] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append(1)) as subscription:
            for _ in range(5):
                subscription.arm([f"{short_dir}/a"])
            await turns()
    assert woken == []


async def test_a_name_that_is_no_longer_armed_wakes_nobody(short_dir: Path) -> None:
    woken: list[int] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append(1)) as subscription:
            subscription.arm([f"{short_dir}/a"])
            subscription.arm([f"{short_dir}/b"])
            (short_dir / "a").touch()
            await turns()
            assert woken == []
            subscription.arm([])
            (short_dir / "b").touch()
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
    woken: list[str] = []
    async with shared_watcher() as watcher:
        with ExitStack() as stack:
            for name in ("a", "b"):
                on_change = lambda name=name: woken.append(name)  # noqa: E731 -- as above
                stack.enter_context(watcher.subscribe(on_change)).arm([f"{folder}/{name}"])
            folder.rmdir() if loss == "removed" else folder.rename(short_dir / "aside")
            await turns()
    assert set(woken) == {"a", "b"}


async def test_two_ways_to_one_folder_keep_both_their_names(short_dir: Path) -> None:
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to("real")
    woken: list[int] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append(1)) as subscription:
            for name in ("a", "b"):
                subscription.arm([f"{short_dir}/link/a", f"{short_dir}/real/b"])
                await turns()
                woken.clear()
                (short_dir / "real" / name).touch()
                await turns()
                assert woken, name


async def test_more_events_than_the_kernel_keeps_wake_everybody(short_dir: Path) -> None:
    """Nobody knows what was lost, so everybody has to look."""
    if EVENTS_KEPT > 100_000:
        pytest.skip(f"this kernel keeps {EVENTS_KEPT} events, which is too many to make here")

    noisy, quiet = short_dir / "noisy", short_dir / "quiet"
    noisy.mkdir()
    quiet.mkdir()
    woken: list[str] = []
    async with shared_watcher() as watcher:
        with ExitStack() as stack:
            for folder in (noisy, quiet):
                on_change = lambda name=folder.name: woken.append(name)  # noqa: E731 -- as above
                stack.enter_context(watcher.subscribe(on_change)).arm([f"{folder}/wanted"])
            overflow(noisy)
            while set(woken) != {"noisy", "quiet"}:
                await turns(1)


# ── what an event tells ──


@asynccontextmanager
async def following(*folders: Path) -> AsyncIterator[list[tuple[EventKind, str]]]:
    """The events of some folders, in their order; paths are named from the first folder."""
    told: list[tuple[EventKind, str]] = []

    def note(event: FileEvent) -> None:
        told.append((event.kind, event.path and os.path.relpath(event.path, folders[0])))

    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: None, note) as subscription:
            subscription.arm_folders(map(str, folders))
            yield told


async def test_each_event_is_told_even_if_nothing_is_left_to_see(short_dir: Path) -> None:
    async with following(short_dir) as told:
        (short_dir / "a").touch()
        (short_dir / "a").unlink()
        (short_dir / ".b").mkdir()
        (short_dir / ".b").rmdir()
        await turns()
        assert told == [
            (EventKind.APPEARED, "a"),
            (EventKind.REMOVED, "a"),
            (EventKind.APPEARED, ".b"),
            (EventKind.REMOVED, ".b"),
        ]


async def test_a_rename_is_told_where_it_began_and_where_it_ended(short_dir: Path) -> None:
    inner, outside = short_dir / "inner", short_dir / "outside"
    inner.mkdir()
    outside.mkdir()
    (inner / "a").touch()
    async with following(inner) as told:
        (inner / "a").rename(inner / "b")
        (inner / "b").rename(outside / "b")
        (outside / "b").rename(inner / "c")
        await turns()
        assert told == [
            (EventKind.LEFT, "a"),
            (EventKind.APPEARED, "b"),
            (EventKind.LEFT, "b"),
            (EventKind.APPEARED, "c"),
        ]


@pytest.mark.parametrize(("loss", "kind"), [("removed", EventKind.REMOVED), ("renamed", EventKind.LEFT)])
async def test_the_loss_of_a_watched_folder_is_told_with_its_own_path(
    short_dir: Path, loss: str, kind: EventKind
) -> None:
    folder = short_dir / "folder"
    folder.mkdir()
    async with following(folder) as told:
        folder.rmdir() if loss == "removed" else folder.rename(short_dir / "aside")
        await turns()
        assert told == [(kind, ".")]


async def test_an_event_names_the_way_by_which_its_reader_knows_the_folder(short_dir: Path) -> None:
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to("real")
    async with (
        following(short_dir / "real") as real,
        following(short_dir / "link") as link,
        following(short_dir / "link", short_dir / "real") as both,
    ):
        (short_dir / "real" / "a").touch()
        await turns()
        assert real == link == both == [(EventKind.APPEARED, "a")]


async def test_a_reader_may_arm_another_folder_at_the_event_that_tells_of_it(short_dir: Path) -> None:
    told: list[str] = []

    def note(event: FileEvent) -> None:
        told.append(os.path.relpath(event.path, short_dir))
        subscription.arm_folders([str(short_dir), event.path])

    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: None, note) as subscription:
            subscription.arm_folders([str(short_dir)])
            (short_dir / "a").mkdir()
            await turns()
            (short_dir / "a" / "b").mkdir()
            await turns()
            assert told == ["a", "a/b"]


async def test_a_reader_is_told_that_events_were_lost(short_dir: Path) -> None:
    if EVENTS_KEPT > 100_000:
        pytest.skip(f"this kernel keeps {EVENTS_KEPT} events, which is too many to make here")

    async with following(short_dir) as told:
        overflow(short_dir)
        while told[-1:] != [(EventKind.MISSED, "")]:
            await turns(1)


async def test_a_reader_without_a_descriptor_is_told_every_second_that_events_are_lost(
    short_dir: Path,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story() -> None:
        async with shared_watcher() as watcher:
            told: list[FileEvent] = []
            woken = asyncio.Event()
            with watcher.subscribe(woken.set, told.append) as subscription:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
                subscription.arm_folders([str(short_dir)])
                await woken.wait()
                assert told == [FileEvent(EventKind.MISSED)]
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                subscription.arm_folders([str(short_dir)])
                (short_dir / "a").touch()
                await turns()
                assert told[1:] == [FileEvent(EventKind.APPEARED, f"{short_dir}/a")]

    try:
        await story()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


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

    woken: list[None] = []
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: woken.append(None)) as subscription:
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
