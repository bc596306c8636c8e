"""A listener on real sockets: whose file it is, what survives the loss of it, and what is left at the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from devplug import errors
from devplug.errors import KubeletError
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, connected, socket_identity
from devplug.wire.values import PluginOptions
from tests.wire.fakes import LIST, FolderEvents, Plugin, eventually, open_descriptors, refusal, served

pytestmark = pytest.mark.usefixtures("pairing")


async def test_a_listener_takes_over_the_file_of_a_dead_server(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with served(path, Plugin()) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


async def test_a_listener_leaves_nothing_but_its_file_and_removes_that(short_dir: Path) -> None:
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    await listener.bind()
    assert [file.name for file in short_dir.iterdir()] == ["p.sock"]
    assert listener.is_bound()
    await listener.close()
    assert list(short_dir.iterdir()) == []
    assert not listener.is_bound()


async def test_closing_again_is_harmless(short_dir: Path) -> None:
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    await listener.close()
    await listener.bind()
    await listener.close()
    (short_dir / "p.sock").touch()
    await listener.close()
    assert (short_dir / "p.sock").exists()


async def test_closing_leaves_the_file_of_another_server(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    first, second = Listener(path, Plugin().bindings()), Listener(path, Plugin().bindings())
    await first.bind()
    await second.bind()
    assert not first.is_bound()
    await first.close()
    assert second.is_bound()
    async with connected(path) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
    await second.close()


async def test_listeners_of_one_folder_can_bind_at_the_same_time(short_dir: Path) -> None:
    """Their names differ in the first letter only, and each of them gets its own calls."""
    plugins = {name: Plugin() for name in "abcdefgh"}
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            for name, plugin in plugins.items():
                listener = Listener(short_dir / f"{name}.sock", plugin.bindings())
                stack.push_async_callback(listener.close)
                group.create_task(listener.bind())
        for name, plugin in plugins.items():
            plugin.error = errors.AllocationError(name)
            async with connected(short_dir / f"{name}.sock") as peer:
                assert (await refusal(peer)).text == name


async def test_binding_again_keeps_streams_and_calls_of_the_lost_file(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    async with (
        connected(listener.path) as old,
        aclosing(old.stream(deviceplugin.LIST_AND_WATCH, None)) as answers,
        asyncio.TaskGroup() as group,
    ):
        plugin.answers.put_nowait(LIST)
        await anext(answers)
        plugin.entered.clear()
        call = group.create_task(old.call(deviceplugin.ALLOCATE, [("a",)]))
        await plugin.entered.wait()

        listener.path.unlink()
        assert not listener.is_bound()
        await listener.bind()
        assert listener.is_bound()

        async with connected(listener.path) as new:
            assert await new.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        plugin.answers.put_nowait(())
        assert await anext(answers) == ()
        plugin.hold.set()
        assert (await call)[0].envs == {"IDS": "a"}
    await listener.close()


@asynccontextmanager
async def call_in_flight(folder: Path, *, by_rename: bool = False) -> AsyncIterator[Listener]:
    """A listener with a call that is answered only at the end of the block, and then has to be."""
    plugin = Plugin()
    plugin.hold.clear()
    listener = Listener(folder / "p.sock", plugin.bindings(), by_rename=by_rename)
    await listener.bind()
    async with connected(listener.path) as peer, asyncio.TaskGroup() as group:
        call = group.create_task(peer.call(deviceplugin.ALLOCATE, [("a",)]))
        await plugin.entered.wait()
        yield listener
        plugin.hold.set()
        assert (await call)[0].envs == {"IDS": "a"}
    await listener.close()


@pytest.mark.parametrize("tidies", [False, True])
async def test_binding_again_and_tidying_up_keep_a_call_of_the_lost_file(
    short_dir: Path, *, tidies: bool
) -> None:
    async with call_in_flight(short_dir) as listener:
        listener.path.unlink()
        await listener.bind()
        if tidies:
            await listener.tidy()


async def test_closing_lets_a_call_in_flight_end_within_the_grace(short_dir: Path) -> None:
    async with asyncio.TaskGroup() as group, call_in_flight(short_dir) as listener:
        group.create_task(listener.close(grace_seconds=40))
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(8))
async def test_a_listener_may_be_cancelled_at_any_moment_of_its_binding(short_dir: Path, turns: int) -> None:
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    async with asyncio.TaskGroup() as group:
        binding = group.create_task(listener.bind())
        for _ in range(turns):
            await asyncio.sleep(0)
        binding.cancel()
    await listener.close()
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize("turns", range(1, 5))
async def test_a_close_that_is_cancelled_leaves_nothing_open(short_dir: Path, turns: int) -> None:
    listener = Listener(short_dir / "x.sock", ())
    await listener.bind()
    await listener.close()
    before = open_descriptors()  # with those that grpcio keeps from its first server on
    await listener.bind()
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(listener.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
    assert eventually(lambda: open_descriptors() <= before)


@pytest.mark.parametrize(
    ("by_rename", "events"), [(False, ["removed", "made"]), (True, ["removed", "moved in"])]
)
async def test_watchers_see_the_socket_made_or_moved_in(
    short_dir: Path, *, by_rename: bool, events: list[str]
) -> None:
    path = short_dir / "kubelet.sock"
    path.touch()
    with FolderEvents(short_dir) as seen:
        async with served(path, Plugin(), by_rename=by_rename) as peer:
            assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
            assert seen.of("kubelet.sock") == events
            assert list(short_dir.iterdir()) == [path]
    assert list(short_dir.iterdir()) == []


async def test_a_listener_that_renames_binds_again_and_keeps_its_calls(short_dir: Path) -> None:
    async with call_in_flight(short_dir, by_rename=True) as listener:
        await listener.bind()
        assert listener.is_bound()
    assert list(short_dir.iterdir()) == []


async def test_a_listener_that_ends_at_once_leaves_the_socket_that_took_its_place(short_dir: Path) -> None:
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    await listener.bind()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(short_dir / "q.sock"))
        (short_dir / "q.sock").rename(listener.path)
        theirs = socket_identity(listener.path)
        async with asyncio.TaskGroup() as group:
            binding = group.create_task(listener.bind())
            for _ in range(8):
                await asyncio.sleep(0)
            binding.cancel()
        await listener.close()
        assert socket_identity(listener.path) == theirs


async def test_a_folder_that_is_not_there_is_named(short_dir: Path) -> None:
    folder = short_dir / "missing"
    with pytest.raises(KubeletError, match=f"^cannot listen in {folder}: the folder does not exist; mount"):
        await Listener(folder / "p.sock", ()).bind()


@pytest.mark.parametrize("by_rename", [False, True])
async def test_a_folder_in_the_place_of_the_socket_is_left_alone(short_dir: Path, *, by_rename: bool) -> None:
    path = short_dir / "p.sock"
    path.mkdir()
    with pytest.raises(KubeletError, match=f"^cannot make the socket {path}: Is a directory$"):
        await Listener(path, (), by_rename=by_rename).bind()
    assert list(short_dir.iterdir()) == [path]


def test_the_identity_of_a_socket_changes_with_its_file(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    seen = [socket_identity(path)]
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
        seen.append(socket_identity(path))
        path.unlink()
    assert seen[0] is None
    assert len(set(seen)) == 4


def test_nothing_is_left_open(short_dir: Path) -> None:
    async def story() -> None:
        plugin = Plugin()
        plugin.answers.put_nowait(LIST)
        async with served(short_dir / "p.sock", plugin) as peer:
            await peer.call(deviceplugin.ALLOCATE, [("a",)])
            async with aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as answers:
                await anext(answers)
        # gRPC's own task for a call ends a moment after the call; one that was left would never.
        while asyncio.all_tasks() != {asyncio.current_task()}:  # noqa: ASYNC110 -- no event tells
            await asyncio.sleep(0)

    asyncio.run(story())  # gRPC keeps a few descriptors of its own for ever
    before = open_descriptors()
    stories = 8
    for _ in range(stories):
        asyncio.run(story())
    # It may open one or two more of those now and then; a leak would be one for each story.
    assert eventually(lambda: open_descriptors() < before + stories // 2)
