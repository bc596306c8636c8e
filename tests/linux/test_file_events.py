"""The events of a watched folder: what each of them says of its files."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devplug.linux.inotify import EventKind, FileEvent, shared_watcher
from tests.linux.inotify_queue import FEW_EVENTS_KEPT, overflow, turns


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


@FEW_EVENTS_KEPT
async def test_a_reader_is_told_that_events_were_lost(short_dir: Path) -> None:
    async with following(short_dir) as told:
        overflow(short_dir)
        while told[-1:] != [(EventKind.MISSED, "")]:
            await turns(1)


async def test_a_reader_without_a_descriptor_is_told_every_second_that_events_are_lost(
    short_dir: Path,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    told: list[FileEvent] = []
    woken = asyncio.Event()
    async with shared_watcher() as watcher:
        with watcher.subscribe(woken.set, told.append) as subscription:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            try:
                subscription.arm_folders([str(short_dir)])
                await woken.wait()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert told == [FileEvent(EventKind.MISSED)]
            subscription.arm_folders([str(short_dir)])
            (short_dir / "a").touch()
            await turns()
            assert told[1:] == [FileEvent(EventKind.APPEARED, f"{short_dir}/a")]
