"""Who owns what the kubelet opens: nothing is left when its block is left, however that happens."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import types
from pathlib import Path

import pytest

from devplug.devices import ContainerResponse
from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.sockets import socket_identity
from tests.kubelet.fakes import RESOURCE, FakePlugin, healthy, pod, register, registered, running
from tests.virtualtime import on_virtual_time
from tests.wire.fakes import eventually, open_descriptors

anyio_backend = on_virtual_time


def our_tasks() -> set[asyncio.Task[object]]:
    """All tasks but those inside gRPC's compiled code, which it ends in its own time."""
    return {task for task in asyncio.all_tasks() if isinstance(task.get_coro(), types.CoroutineType)}


async def eventful_life(folder: Path) -> None:
    """Registrations, takeovers, refusals, pods and restarts."""
    async with running(folder) as kubelet:
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


async def test_nothing_is_left_open_after_a_kubelets_life(short_dir: Path) -> None:
    await eventful_life(short_dir)  # whatever gRPC opens once and keeps
    descriptors, threads, tasks = open_descriptors(), threading.active_count(), our_tasks()
    for _ in range(3):
        await eventful_life(short_dir)
        assert our_tasks() == tasks
    gc.collect()
    assert eventually(lambda: open_descriptors() <= descriptors)
    assert threading.active_count() <= threads


async def test_an_error_in_the_block_comes_out_as_it_is(short_dir: Path) -> None:
    kubelet = Kubelet(short_dir)
    with pytest.raises(ZeroDivisionError):
        async with kubelet.running():
            raise ZeroDivisionError
    assert not kubelet.is_running


async def test_a_cancelled_block_cleans_up_and_stays_cancelled(short_dir: Path) -> None:
    kubelet = Kubelet(short_dir)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10), kubelet.running():
            await asyncio.get_running_loop().create_future()
    assert not kubelet.is_running


async def test_leaving_does_not_wait_for_a_plugin_that_is_being_dialled(short_dir: Path) -> None:
    async def refused(plugin: FakePlugin) -> str:
        with pytest.raises(RemoteError) as caught:
            await plugin.register()
        return caught.value.status

    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        async with Kubelet(short_dir, KubeletSettings(dial_timeout_seconds=60)).running():
            with socket.socket(socket.AF_UNIX) as silent:
                silent.setblocking(False)
                silent.bind(str(short_dir / "p.sock"))
                silent.listen()
                registering = tasks.create_task(refused(FakePlugin(short_dir)))
                connection, _ = await loop.sock_accept(silent)
        connection.close()
        assert await registering in {"Canceled", "Unavailable"}


async def test_two_kubelets_in_one_process_do_not_know_each_other(short_dir: Path) -> None:
    async with running(short_dir / "one") as one, registered(one, healthy("a")):
        async with running(short_dir / "two") as two, registered(two, healthy("b", "c")):
            await two.run_pod(pod("u", 2))
            assert (one.capacity(), two.capacity()) == ({RESOURCE: 1}, {RESOURCE: 2})
            assert one.allocations() == ()
        assert (one.is_running, two.is_running) == (True, False)
        await one.run_pod(pod("u"))


async def test_a_second_kubelet_in_a_folder_takes_it_over(short_dir: Path) -> None:
    """The first one keeps a socket that nobody can reach, and does not remove the other's when it ends."""
    second = Kubelet(short_dir)
    async with running(short_dir) as first, second.running(), registered(second, healthy("a")):
        assert (first.capacity(), second.capacity()) == ({}, {RESOURCE: 1})
        identity = socket_identity(second.socket_path)
        assert identity is not None
        await first.device_manager.stop(orderly=True)
        assert socket_identity(second.socket_path) == identity


async def test_a_kubelet_that_ends_during_an_admission_tells_nobody(short_dir: Path) -> None:
    """As a process that ends: the pod is there for the next one, and those that waited come to nothing."""
    entered = asyncio.Event()

    async def never(_: tuple[str, ...]) -> list[ContainerResponse]:
        entered.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def refused(kubelet: Kubelet) -> str:
        with pytest.raises(KubeletError) as caught:
            await kubelet.admit(pod("behind"))
        return str(caught.value)

    kubelet = Kubelet(short_dir)
    plugin = FakePlugin(short_dir, devices=healthy("a"), on_allocate=never)
    async with asyncio.TaskGroup() as tasks, kubelet.running(), plugin.serving():
        await register(kubelet, plugin)
        waiting = tasks.create_task(kubelet.admit(pod("u")))
        await entered.wait()
        behind = tasks.create_task(refused(kubelet))
        await kubelet.device_manager.stop()
        assert (await waiting).phase is PodPhase.PENDING
        assert await behind == "the kubelet is not running"
    assert (kubelet.events, kubelet.allocations()) == ([], ())
    async with kubelet.running():
        assert "no healthy devices present" in kubelet.pod("u").message


async def test_a_start_that_fails_half_way_leaves_nothing_running(short_dir: Path) -> None:
    """Plugins could register already when the socket for monitors turns out to be impossible."""
    kubelet = Kubelet.under(short_dir)
    async with kubelet.running():
        (short_dir / "pod-resources").rename(short_dir / "moved")
        (short_dir / "pod-resources").touch()
        with pytest.raises(KubeletError):
            await kubelet.restart()
        assert not kubelet.is_running
        with pytest.raises(RemoteError) as caught:
            await FakePlugin(kubelet.plugin_dir).register(timeout_seconds=30)
        assert caught.value.status == "Unavailable"


async def test_a_pod_admitted_while_nothing_runs_is_an_error(short_dir: Path) -> None:
    kubelet = Kubelet(short_dir)
    with pytest.raises(KubeletError, match="the kubelet is not running"):
        await kubelet.admit(pod("u"))
    with pytest.raises(KubeletError, match="there is no pod u on this node"):
        kubelet.pod("u")


async def test_a_kubelet_that_runs_cannot_be_run_again(short_dir: Path) -> None:
    kubelet = Kubelet(short_dir)
    async with kubelet.running():
        with pytest.raises(KubeletError, match="running already"):
            async with kubelet.running():
                pass
        assert kubelet.is_running


async def test_pods_are_admitted_again_only_by_a_kubelet_that_runs(short_dir: Path) -> None:
    with pytest.raises(KubeletError, match="not running"):
        await Kubelet(short_dir).readmit()
