"""The folder `plugins_registry`: which files are plugins' sockets, over renames, removals and lost events."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.kubelet.fakes import OTHER_RESOURCE, RESOURCE, healthy, pod, registered
from tests.kubelet.watched import (
    ACCEPTED,
    DESIRED,
    INFO,
    WatchedPlugin,
    in_state,
    listed,
    looked,
    registry,
    watching,
)
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


# ── found ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["kubelet", "plugin"])
async def test_a_socket_is_asked_and_told_that_its_plugin_is_registered(short_dir: Path, first: str) -> None:
    """C23: a socket that was there before the kubelet is one that was made."""
    plugin = WatchedPlugin(registry(short_dir), devices=healthy("a", "b"))
    if first == "plugin":
        await plugin.listen()
    async with watching(short_dir) as kubelet:
        if first == "kubelet":
            await plugin.listen()
        assert await plugin.told() == ACCEPTED
        await listed(kubelet, 2)
        assert plugin.called("GetInfo") == [()]
        assert plugin.called("GetDevicePluginOptions") == [()]
        assert (await kubelet.run_pod(pod("u"))).containers[0].options is not None
    assert plugin.statuses == [ACCEPTED]
    await plugin.die()


async def test_the_folder_is_made_for_all_to_enter(short_dir: Path) -> None:
    async with watching(short_dir):
        assert (short_dir / "plugins_registry").stat().st_mode & 0o777 == 0o755


async def test_a_folder_that_cannot_be_made_is_logged_and_the_kubelet_runs(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (short_dir / "plugins_registry").touch()
    async with watching(short_dir) as kubelet, registered(kubelet, healthy("a")):
        assert kubelet.is_running
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "cannot watch for plugins"
    ]


async def test_registering_this_way_is_not_counted(short_dir: Path) -> None:
    """C30."""
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        assert kubelet.registrations(RESOURCE) == 0


async def test_plugins_are_registered_side_by_side(short_dir: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    folder = registry(short_dir)
    async with watching(short_dir), WatchedPlugin(folder, "slow", on_info=hang).serving() as slow:
        await slow.asked()
        info = replace(INFO, name=OTHER_RESOURCE)
        async with WatchedPlugin(folder, "q", info=info).serving() as quick:
            assert await quick.told() == ACCEPTED
        assert slow.statuses == []


# ── what is a plugin's socket ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["kubelet", "plugin"])
async def test_folders_below_are_watched_however_deep(short_dir: Path, first: str) -> None:
    """C28."""
    plugin = WatchedPlugin(registry(short_dir) / "a" / "b", socket_name="c/p.sock")
    if first == "plugin":
        await plugin.listen()
    async with watching(short_dir):
        if first == "kubelet":
            await plugin.listen()
        assert await plugin.told() == ACCEPTED
    await plugin.die()


@pytest.mark.parametrize("first", ["kubelet", "others"])
async def test_dot_files_and_what_is_no_socket_are_passed_over(short_dir: Path, first: str) -> None:
    """C28."""
    folder = registry(short_dir)
    hidden = WatchedPlugin(folder, socket_name=".p.sock")

    async def make() -> None:
        await hidden.listen()
        (folder / "file.sock").touch()
        (folder / "nowhere.sock").symlink_to("nothing")

    if first == "others":
        await make()
    async with watching(short_dir) as kubelet:
        if first == "kubelet":
            await make()
        async with WatchedPlugin(folder, "q").serving() as plugin:
            await plugin.told()
        assert hidden.calls == []
        shown = kubelet.metrics.exposition()
        assert not [line for line in shown.splitlines() if "socket_path" in line and "q.sock" not in line]
    await hidden.die()


async def test_a_folder_with_a_dot_is_looked_into_only_if_it_was_there_before(short_dir: Path) -> None:
    """Its name is looked at when it appears, and not when the folder around it is read."""
    folder = registry(short_dir)
    (folder / ".old").mkdir()
    info = replace(INFO, name=OTHER_RESOURCE)
    async with (
        watching(short_dir),
        WatchedPlugin(folder / ".new", info=info).serving() as new,
        WatchedPlugin(folder / ".old").serving() as old,
    ):
        await old.told()
        assert new.calls == []


async def test_a_link_to_a_socket_is_one(short_dir: Path) -> None:
    async with watching(short_dir), WatchedPlugin(short_dir / "elsewhere").serving() as plugin:
        (registry(short_dir) / "link.sock").symlink_to(plugin.socket_path)
        assert await plugin.told() == ACCEPTED


async def test_a_link_to_a_folder_is_watched_and_not_read(short_dir: Path) -> None:
    """Go's filepath.Walk follows no links; so only what is made later is found there."""
    far = short_dir / "far"
    later = WatchedPlugin(far, "later", info=replace(INFO, name=OTHER_RESOURCE))
    async with watching(short_dir), WatchedPlugin(far, "before").serving() as before:
        (registry(short_dir) / "link").symlink_to(far)
        await looked(short_dir)
        async with later.serving():
            assert await later.told() == ACCEPTED
        assert before.calls == []


async def test_a_socket_that_is_renamed_into_the_folder_is_found(short_dir: Path) -> None:
    async with watching(short_dir), WatchedPlugin(short_dir / "elsewhere").serving() as plugin:
        plugin.socket_path.rename(registry(short_dir) / "p.sock")
        assert await plugin.told() == ACCEPTED


async def test_a_folder_that_is_renamed_into_the_folder_is_looked_into(short_dir: Path) -> None:
    async with watching(short_dir), WatchedPlugin(short_dir / "elsewhere").serving() as plugin:
        plugin.folder.rename(registry(short_dir) / "sub")
        assert await plugin.told() == ACCEPTED


async def test_a_socket_that_is_renamed_away_stays_registered(short_dir: Path) -> None:
    """Only its removal is noticed."""
    folder = registry(short_dir)
    async with watching(short_dir) as kubelet, WatchedPlugin(folder).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        plugin.socket_path.rename(short_dir / "aside")
        info = replace(INFO, name=OTHER_RESOURCE)
        async with WatchedPlugin(folder, "q", info=info).serving() as later:
            await later.told()
        assert in_state(kubelet, plugin.socket_path, DESIRED)
        assert plugin.open_streams == 1


# ── folders that go, and events that are missed ────────────────────────────────────────────────────


async def test_a_folder_below_that_is_removed_and_made_again_is_watched_again(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet:
        for _ in range(3):
            plugin = WatchedPlugin(registry(short_dir) / "sub")
            async with plugin.serving():
                await plugin.told()
                await listed(kubelet)
            plugin.folder.rmdir()
            await listed(kubelet, 0)


async def test_a_folder_below_that_is_renamed_is_watched_under_its_new_name(short_dir: Path) -> None:
    """What was in it counts as made there, and stays registered under the old name as well."""
    async with watching(short_dir) as kubelet:
        plugin = WatchedPlugin(registry(short_dir) / "old")
        await plugin.listen()
        await plugin.told()
        plugin.folder.rename(registry(short_dir) / "new")
        await plugin.told(2)
        paths = [registry(short_dir) / name / "p.sock" for name in ("old", "new")]
        await kubelet.wait(lambda: all(in_state(kubelet, path) for path in paths))
        paths[1].unlink()
        await kubelet.wait(lambda: not in_state(kubelet, paths[1]))
        assert in_state(kubelet, paths[0])
        await plugin.die()


async def test_a_kubelet_whose_folder_is_removed_is_blind_until_its_next_start(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet:
        registry(short_dir).rmdir()
        async with asyncio.TaskGroup() as tasks, WatchedPlugin(registry(short_dir)).serving() as plugin:
            # Its own calls go on; nothing in the new folder is seen.
            async with registered(kubelet, healthy("x"), OTHER_RESOURCE):
                assert plugin.calls == []
            told = tasks.create_task(plugin.told())
            await kubelet.restart()
            assert await told == ACCEPTED


async def test_lost_events_cost_no_socket(short_dir: Path) -> None:
    """The real kubelet would not notice; ours looks at the whole folder."""
    with open("/proc/sys/fs/inotify/max_queued_events") as limit:  # noqa: PTH123 -- one number
        kept = int(limit.read())
    if kept > 100_000:
        pytest.skip(f"this kernel keeps {kept} events, which is too many to make here")

    def plugin(name: str) -> WatchedPlugin:
        return WatchedPlugin(registry(short_dir), name, info=replace(INFO, name=f"a.io/{name}"))

    async with watching(short_dir) as kubelet:
        plugins = gone, replaced, stays = plugin("gone"), plugin("replaced"), plugin("stays")
        for each in plugins:
            await each.listen()
            await each.told()
        for _ in range(kept // 2 + 1):
            os.close(os.open(registry(short_dir) / ".noise", os.O_CREAT))
            (registry(short_dir) / ".noise").unlink()
        gone.socket_path.unlink()
        replaced.socket_path.unlink()
        async with plugin("replaced").serving() as successor:
            await successor.told()
            await kubelet.wait(lambda: not in_state(kubelet, gone.socket_path))
            await gone.streams(0)
            assert len(stays.statuses) == 1
        for each in plugins:
            await each.die()
