"""Plugins found in `plugins_registry` that are asked again, replaced or lost, and two of one name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.kubelet.fakes import RESOURCE, Clock, FakePlugin, healthy, register
from tests.kubelet.watched import (
    ACCEPTED,
    ACTUAL,
    DESIRED,
    INFO,
    WatchedPlugin,
    failures,
    in_state,
    listed,
    looked,
    registry,
    watching,
)
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


# ── again ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_refused_plugin_is_asked_again_ever_more_slowly(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C26; half a second and twice as long each time, on a clock that the test moves."""
    clock = Clock()
    info = replace(INFO, name="gpu")
    async with (
        watching(short_dir, clock=clock) as kubelet,
        WatchedPlugin(registry(short_dir), info=info).serving() as plugin,
    ):
        for attempt, wait_seconds in enumerate((0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122), 1):
            assert (await plugin.told(attempt)).error
            await kubelet.wait(lambda: failures(caplog) == len(plugin.statuses))
            clock.seconds += wait_seconds
            await looked(short_dir)
            assert len(plugin.statuses) == attempt
            clock.seconds += 0.01
        plugin.info = replace(info, name=RESOURCE)
        assert await plugin.told(11) == ACCEPTED
        assert len(plugin.called("GetInfo")) == 11


async def test_a_new_socket_at_the_path_of_a_failure_has_to_wait_too(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait is the path's, whoever listens there."""
    clock = Clock()
    async with watching(short_dir, clock=clock) as kubelet:
        async with WatchedPlugin(registry(short_dir), info=PluginInfo("X", "", "", ())).serving() as bad:
            await bad.told()
            await kubelet.wait(lambda: failures(caplog))
        async with WatchedPlugin(registry(short_dir)).serving() as good:
            await looked(short_dir)
            assert good.calls == []
            clock.seconds += 0.6
            assert await good.told() == ACCEPTED


async def test_a_removed_socket_disconnects_its_resource(short_dir: Path) -> None:
    """C29."""
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        assert in_state(kubelet, plugin.socket_path)
        assert in_state(kubelet, plugin.socket_path, DESIRED)
        plugin.socket_path.unlink()
        await plugin.streams(0)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 1}, {RESOURCE: 0})
        assert str(plugin.socket_path) not in kubelet.metrics.exposition()


@pytest.mark.parametrize("pause", [False, True], ids=["at once", "after it was noticed"])
async def test_a_socket_that_is_made_again_is_unregistered_and_registered(
    short_dir: Path, pause: bool
) -> None:
    """C29."""
    async with watching(short_dir) as kubelet:
        plugin, successor = (WatchedPlugin(registry(short_dir)) for _ in range(2))
        await plugin.listen()
        await plugin.told()
        await listed(kubelet)
        plugin.socket_path.unlink()
        if pause:
            await plugin.streams(0)
        successor.devices = healthy("x", "y")
        async with successor.serving():
            await plugin.streams(0)
            assert await successor.told() == ACCEPTED
            await listed(kubelet, 2)
        await plugin.die()


async def test_a_file_that_is_renamed_over_a_socket_is_the_socket_made_again(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        async with WatchedPlugin(short_dir / "far", devices=healthy("x", "y")).serving() as successor:
            successor.socket_path.rename(plugin.socket_path)
            await successor.told()
            await listed(kubelet, 2)


async def test_a_plugin_that_dies_and_leaves_its_socket_is_never_tried_again(short_dir: Path) -> None:
    """Only the end of its stream is noticed; to the watcher it stays registered."""
    clock = Clock()
    async with watching(short_dir, clock=clock) as kubelet:
        plugin = WatchedPlugin(registry(short_dir))
        await plugin.listen()
        await plugin.told()
        await listed(kubelet)
        await plugin.die(keep_file=True)
        await listed(kubelet, 0)
        clock.seconds += 1000
        await looked(short_dir)
        assert in_state(kubelet, plugin.socket_path)
        async with WatchedPlugin(registry(short_dir)).serving() as successor:
            await successor.told()
            await listed(kubelet)


async def test_a_stream_that_is_lost_is_not_followed_by_a_question(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        kubelet.drop_stream(RESOURCE)
        await plugin.streams(0)
        await looked(short_dir)
        assert len(plugin.called("GetInfo")) == 1


async def test_a_socket_that_goes_while_its_plugin_is_asked_is_unregistered_after_that(
    short_dir: Path,
) -> None:
    async def lose_the_socket(_: RegistrationStatus) -> None:
        await plugin.streams(1)
        plugin.socket_path.unlink()
        await looked(short_dir)
        assert in_state(kubelet, plugin.socket_path)

    plugin = WatchedPlugin(registry(short_dir), on_status=lose_the_socket)
    async with watching(short_dir) as kubelet, plugin.serving():
        assert await plugin.told() == ACCEPTED
        await plugin.streams(0)
        await kubelet.wait(lambda: not in_state(kubelet, plugin.socket_path))


async def test_a_kubelet_that_restarts_finds_all_sockets_again(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        for times in range(1, 4):
            assert await plugin.told(times) == ACCEPTED
            await listed(kubelet)
            await kubelet.restart()
            assert plugin.socket_path.is_socket()
            assert kubelet.registrations(RESOURCE) == 0


async def test_a_kubelet_that_stops_breaks_its_questions_off(short_dir: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with WatchedPlugin(registry(short_dir), on_info=hang).serving() as plugin:
        async with watching(short_dir):
            await plugin.asked()
        async with watching(short_dir) as kubelet:
            await plugin.asked(2)
            await kubelet.restart()
            await plugin.asked(3)
        assert plugin.statuses == []


# ── two plugins of one name ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("compat", "allocatable"), [(True, 0), (False, 2)])
async def test_removing_the_socket_of_an_old_plugin_disconnects_the_new_one_in_1_36(
    short_dir: Path, compat: bool, allocatable: int
) -> None:
    """DeRegister ignores the endpoint (kubelet.md 9, 2); mended, it looks for the client at that socket."""
    folder = registry(short_dir)
    async with watching(short_dir, compat=compat) as kubelet, WatchedPlugin(folder, "old").serving() as old:
        await old.told()
        await listed(kubelet)
        async with WatchedPlugin(folder, "new", devices=healthy("x", "y")).serving() as new:
            await new.told()
            await listed(kubelet, 2)
            old.socket_path.unlink()
            await kubelet.wait(lambda: not in_state(kubelet, old.socket_path))
            await looked(short_dir)
            assert kubelet.allocatable()[RESOURCE] == allocatable
            assert in_state(kubelet, new.socket_path)
            assert old.open_streams == 1


@pytest.mark.parametrize(("compat", "allocatable"), [(True, 0), (False, 1)])
async def test_removing_a_socket_disconnects_a_plugin_that_called_register(
    short_dir: Path, compat: bool, allocatable: int
) -> None:
    """Both ways share one table of clients."""
    async with watching(short_dir, compat=compat) as kubelet:
        plugin = WatchedPlugin(registry(short_dir))
        async with plugin.serving():
            await plugin.told()
            await listed(kubelet)
            async with FakePlugin(kubelet.plugin_dir, devices=healthy("x")).serving() as caller:
                await register(kubelet, caller)
                plugin.socket_path.unlink()
                await kubelet.wait(lambda: not in_state(kubelet, plugin.socket_path))
                await looked(short_dir)
                assert kubelet.allocatable()[RESOURCE] == allocatable


async def test_one_name_may_be_registered_over_two_sockets(short_dir: Path) -> None:
    folder = registry(short_dir)
    async with (
        watching(short_dir) as kubelet,
        WatchedPlugin(folder, "one").serving() as one,
        WatchedPlugin(folder, "two", devices=healthy("x", "y")).serving() as two,
    ):
        assert [await one.told(), await two.told()] == [ACCEPTED, ACCEPTED]
        await kubelet.wait(lambda: all(in_state(kubelet, p.socket_path, ACTUAL) for p in (one, two)))
