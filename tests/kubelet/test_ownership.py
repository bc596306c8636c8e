"""Who owns what the kubelet opens: nothing is left when its block is left, however that happens."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import types
from typing import TYPE_CHECKING

import pytest

from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.manager import Kubelet
from devplug.kubelet.settings import KubeletSettings
from tests.kubelet.fakes import FakePlugin, healthy, pod, register, registered, running
from tests.wire.fakes import eventually, open_descriptors

if TYPE_CHECKING:
    from pathlib import Path


def our_tasks() -> set[asyncio.Task[object]]:
    """All tasks but those inside gRPC's compiled code, which it ends in its own time."""
    return {task for task in asyncio.all_tasks() if isinstance(task.get_coro(), types.CoroutineType)}


async def eventful_life(folder: Path) -> None:
    """Registrations, takeovers, refusals, pods and restarts."""
    async with running(folder, dial_timeout_seconds=1) as kubelet:
        async with (
            registered(kubelet, healthy("a", "b")) as plugin,
            registered(kubelet, healthy("c"), name="q"),
        ):
            await kubelet.run_pod(pod("u"))
            with pytest.raises(RemoteError):
                await plugin.register(endpoint="nothing.sock")
            await kubelet.restart()
        async with FakePlugin(folder, devices=healthy("a")).serving() as plugin:
            await register(kubelet, plugin)
            # Left with a stream open, and another one that nobody knows any more.
            await register(kubelet, plugin)


def test_nothing_is_left_open_after_a_kubelets_life(short_dir: Path) -> None:
    async def scenario() -> None:
        await eventful_life(short_dir)  # whatever gRPC opens once and keeps
        descriptors, threads = open_descriptors(), threading.active_count()
        for _ in range(3):
            await eventful_life(short_dir)
            assert our_tasks() == {asyncio.current_task()}
        gc.collect()
        assert eventually(lambda: open_descriptors() <= descriptors)
        assert threading.active_count() <= threads

    asyncio.run(scenario())


def test_an_error_in_the_block_comes_out_as_it_is(short_dir: Path) -> None:
    async def scenario() -> None:
        kubelet = Kubelet(short_dir)
        with pytest.raises(ZeroDivisionError):
            async with kubelet.running():
                raise ZeroDivisionError
        assert not kubelet.is_running

    asyncio.run(scenario())


def test_a_cancelled_block_cleans_up_and_stays_cancelled(short_dir: Path) -> None:
    async def scenario() -> None:
        kubelet = Kubelet(short_dir)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), kubelet.running():
                await asyncio.get_running_loop().create_future()
        assert not kubelet.is_running

    asyncio.run(scenario())


def test_leaving_does_not_wait_for_a_plugin_that_is_being_dialled(short_dir: Path) -> None:
    async def refused(plugin: FakePlugin) -> str:
        with pytest.raises(RemoteError) as caught:
            await plugin.register()
        return caught.value.status

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            async with Kubelet(short_dir, KubeletSettings(dial_timeout_seconds=60)).running():
                with socket.socket(socket.AF_UNIX) as silent:
                    silent.setblocking(False)
                    silent.bind(str(short_dir / "p.sock"))
                    silent.listen()
                    registering = tasks.create_task(refused(FakePlugin(short_dir)))
                    connection, _ = await loop.sock_accept(silent)
            connection.close()
            assert await registering in {"Canceled", "Unavailable"}

    asyncio.run(scenario())


def test_a_pod_admitted_while_nothing_runs_is_an_error(short_dir: Path) -> None:
    async def scenario() -> None:
        kubelet = Kubelet(short_dir)
        with pytest.raises(KubeletError, match="the kubelet is not running"):
            await kubelet.admit(pod("u"))
        with pytest.raises(KubeletError, match="there is no pod u on this node"):
            kubelet.pod("u")

    asyncio.run(scenario())
