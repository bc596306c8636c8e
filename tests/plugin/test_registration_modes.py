"""What holds for every plugin, whether it calls the kubelet or waits in `plugins_registry` to be found."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from devplug.kubelet.changes import ChangeKind
from devplug.wire.sockets import socket_identity
from tests.kubelet.fakes import happened
from tests.kubelet.watched import in_state
from tests.plugin.fakes import OTHER_RESOURCE, RESOURCE, Fed, Node, allocatable, devices, ended, start
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time

COMPAT = pytest.mark.parametrize("compat", [True, False], ids=["as 1.36", "mended"])


@pytest.fixture(params=["socket", "watcher"])
def node(request: pytest.FixtureRequest, short_dir: Path) -> Node:
    return Node(short_dir, request.param)


# ── getting registered ──


@pytest.mark.parametrize("missing", ["kubelet", "folder", "root"])
async def test_a_plugin_registers_with_a_kubelet_that_comes_later(node: Node, missing: str) -> None:
    if missing == "root":
        node = replace(node, root=node.root / "root")
    if missing == "kubelet":
        node.folder.mkdir()
    async with node.serving(Fed("a")) as serving:
        await until(node.sockets) if missing == "kubelet" else await passes(60)
        async with node.kubelet().running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            assert kubelet.registrations(RESOURCE) == node.calls


async def test_nothing_is_made_in_the_folder_before_the_first_list(node: Node) -> None:
    """A kubelet that hears of a resource without its devices refuses the pods that wait for them."""
    plugin = Fed()
    plugin.feed = type(plugin.feed)()
    async with node.kubelet().running() as kubelet, node.serving(plugin) as serving:
        await passes(10)
        assert kubelet.registrations(RESOURCE) == 0
        assert node.sockets() == []
        plugin.feed.put(*devices("a"))
        await serving.wait_registered()
        await kubelet.wait(lambda: kubelet.capacity().get(RESOURCE) == 1)


async def test_all_plugins_of_a_program_register(node: Node) -> None:
    names = [f"example.com/r{n}" for n in range(40)]
    async with node.registered(*(Fed("a", resource_name=name) for name in names)) as (kubelet, _):
        await kubelet.wait(lambda: all(allocatable(kubelet, name) == 1 for name in names))
        assert [kubelet.registrations(name) for name in names] == [node.calls] * 40
        assert len(node.sockets()) == 40


# ── staying registered ──


@COMPAT
async def test_a_plugin_registers_once_with_each_kubelet_that_starts(node: Node, compat: bool) -> None:
    async with node.registered(Fed("a", "b"), compat=compat) as (kubelet, serving):
        for _ in range(20):
            await kubelet.restart()
            await kubelet.wait(lambda: allocatable(kubelet) == 2)
            await serving.wait_registered()
            assert kubelet.registrations(RESOURCE) == node.calls
        assert len(node.sockets()) == 1


async def test_two_restarts_in_one_breath_lose_nothing(node: Node) -> None:
    async with node.registered(Fed("a")) as (kubelet, serving):
        for _ in range(10):
            await kubelet.restart()
            await kubelet.restart()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            await serving.wait_registered()


async def test_a_kubelet_that_stays_away_for_long_and_comes_back_is_registered_with(node: Node) -> None:
    async with node.serving(Fed("a")) as serving:
        for _ in range(3):
            async with node.kubelet().running() as kubelet:
                await kubelet.wait(lambda: allocatable(kubelet) == 1)
                await serving.wait_registered()
            await passes(60)


@COMPAT
async def test_a_lost_stream_is_followed_by_a_registration_after_a_quarter_of_a_second(
    node: Node, compat: bool
) -> None:
    """The way to be found again is a new socket."""
    async with node.registered(Fed("a"), compat=compat) as (kubelet, serving):
        (path,) = node.sockets()
        before = socket_identity(path)
        with kubelet.changes() as changes:
            kubelet.drop_stream(RESOURCE)
            assert allocatable(kubelet) == 0
            lost = await happened(changes, ChangeKind.DISCONNECTED)
            found = await happened(changes, ChangeKind.REGISTERED)
        assert 0.25 <= found.at_seconds - lost.at_seconds < 1
        await serving.wait_registered()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert kubelet.registrations(RESOURCE) == 2 * node.calls
        assert node.sockets() == [path]
        assert (socket_identity(path) == before) is (node.mode == "socket")


async def test_a_stream_that_is_cut_again_and_again_is_followed_ever_more_slowly(node: Node) -> None:
    async with node.registered(Fed("a")) as (kubelet, _):
        waits = []
        for _ in range(3):
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            cut_at = now()
            kubelet.drop_stream(RESOURCE)
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            waits.append(now() - cut_at)
        assert waits[0] >= 0.25
        assert min(waits[1:]) >= 0.5


@pytest.mark.parametrize("how", ["removed", "renamed away"])
async def test_a_folder_that_is_lost_between_two_kubelets_heals(node: Node, how: str) -> None:
    async with node.registered(Fed("a")) as (kubelet, serving):
        shutil.rmtree(node.folder) if how == "removed" else node.folder.rename(node.root / "old")
        await kubelet.restart()
        await kubelet.wait(lambda: kubelet.devices(RESOURCE))
        await serving.wait_registered()
        assert len(node.sockets()) == 1
    assert node.sockets() == []


async def test_plugins_that_come_and_go_do_not_touch_the_others(node: Node) -> None:
    async with node.registered(Fed("a")) as (kubelet, serving):
        with kubelet.changes() as changes:
            for _ in range(3):
                serving.add(Fed("x", "y", resource_name=OTHER_RESOURCE))
                assert [plugin.resource_name for plugin in serving.plugins] == [RESOURCE, OTHER_RESOURCE]
                await kubelet.wait(lambda: allocatable(kubelet, OTHER_RESOURCE) == 2)
                assert len(node.sockets()) == 2
                await serving.remove(OTHER_RESOURCE)
                assert [plugin.resource_name for plugin in serving.plugins] == [RESOURCE]
                assert len(node.sockets()) == 1
                await kubelet.wait(lambda: allocatable(kubelet, OTHER_RESOURCE) == 0)
            serving.add(Fed("a", resource_name="example.com/last"))
            async for change in changes:
                assert (change.kind, change.resource_name) != (ChangeKind.REGISTERED, RESOURCE)
                if (change.kind, change.resource_name) == (ChangeKind.LISTED, "example.com/last"):
                    break
        assert allocatable(kubelet) == 1


# ── ending ──


async def test_closing_takes_no_second_and_removes_the_socket_the_lock_and_nothing_of_others(
    node: Node,
) -> None:
    async with node.kubelet().running() as kubelet:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(node.folder / "other.sock"))
        (node.folder / "notes").touch()
        async with node.serving(Fed("a"), Fed("a", resource_name=OTHER_RESOURCE)) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == allocatable(kubelet, OTHER_RESOURCE) == 1)
            assert (node.folder / ".devplug").is_dir()
            paths, began = node.sockets(), now()
        assert now() - began < 1
        names = {path.name for path in node.folder.iterdir()}
        assert names - {"kubelet.sock", "kubelet_internal_checkpoint"} == {"notes", "other.sock"}
        await kubelet.wait(lambda: allocatable(kubelet) == allocatable(kubelet, OTHER_RESOURCE) == 0)
        await kubelet.wait(lambda: not any(in_state(kubelet, path) for path in paths))
        assert kubelet.capacity()[RESOURCE] == 1


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_second_process_waits_for_the_first_and_takes_over(
    node: Node, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    caplog.set_level(logging.INFO)
    async with node.kubelet().running() as kubelet:
        first = start(f"run(P(), registration={node.mode!r})", kubelet.plugin_dir)
        try:
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            async with node.serving(Fed("b", "c")) as serving:
                words = f"{RESOURCE} is served by process {first.pid} on this node; waiting until it ends"
                await until(lambda: words in caplog.text)
                assert kubelet.registrations(RESOURCE) == node.calls
                first.terminate() if end == "SIGTERM" else first.kill()
                await serving.wait_registered()
                await kubelet.wait(lambda: allocatable(kubelet) == 2)
                assert kubelet.registrations(RESOURCE) == 2 * node.calls
                assert len(node.sockets()) == 1
        finally:
            await asyncio.to_thread(ended, first)
