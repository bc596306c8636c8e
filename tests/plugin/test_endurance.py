"""Many lives in a row: each ends registered, and none leaves a descriptor, a task or a thread behind."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import threading
from pathlib import Path

import pytest

from devplug import serve
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from tests.kubelet.fakes import happened
from tests.plugin.fakes import RESOURCE, Fed, allocatable, our_threads, plugin_sockets, registered
from tests.waiting import until

pytestmark = pytest.mark.parametrize(
    "part", [10, pytest.param(1, marks=pytest.mark.nightly)], ids=["a tenth", "all"]
)

SETTLE_SECONDS = 20
"""How long what ends in its own time may take to end."""

GRPC_THREADS = 16
"""How many threads gRPC may add to its pool while it is busy; it gives them back after half a minute."""


def held() -> tuple[int, int, int, int]:
    """How many descriptors, tasks and threads this process has, without what only waits to be collected."""
    gc.collect()
    return (
        len(os.listdir("/proc/self/fd")),  # noqa: PTH208 -- only their number matters
        len(asyncio.all_tasks()),
        threading.active_count(),
        len(os.listdir("/proc/self/task")),  # noqa: PTH208 -- as above
    )


async def settled(before: tuple[int, int, int, int]) -> None:
    """Wait until no more is held than before: gRPC closes its connections in its own time."""
    allowed = (*before[:3], before[3] + GRPC_THREADS)
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            await until(lambda: all(now <= then for now, then in zip(held(), allowed, strict=True)))
    except TimeoutError:
        assert held() <= allowed, f"{asyncio.all_tasks()}"


async def test_two_hundred_kubelet_restarts_end_registered_and_leave_nothing(
    short_dir: Path, part: int
) -> None:
    async with registered(short_dir, Fed("a", "b")) as (kubelet, _):
        before = held()
        for n in range(220 // part):
            await kubelet.restart()
            await kubelet.wait(lambda: allocatable(kubelet) == 2)
            assert kubelet.registrations(RESOURCE) == 1
            if n == 20 // part:
                before = held()
        assert len(plugin_sockets(short_dir)) == 1
        await settled(before)


@pytest.mark.nightly  # takes 6 s
async def test_kubelets_that_find_a_plugin_a_hundred_times_leave_nothing(short_dir: Path, part: int) -> None:
    """By a restart of the kubelet, and by a new socket after a lost one."""
    settings = KubeletSettings(reconcile_period_seconds=0.01)
    kubelet = Kubelet.under(short_dir, settings)
    async with (
        kubelet.running(),
        serve(Fed("a", "b"), plugin_dir=kubelet.plugin_dir, registration="watcher") as serving,
    ):
        before = held()
        for n in range(50 // part):
            await kubelet.wait(lambda: allocatable(kubelet) == 2)
            await serving.wait_registered()
            (path,) = plugin_sockets(short_dir / "plugins_registry")
            if n == 10 // part:
                before = held()
            with kubelet.changes() as changes:
                path.unlink()
                await happened(changes, ChangeKind.LISTED)
            await kubelet.restart()
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        await settled(before)


async def test_two_hundred_lost_streams_end_registered_and_leave_nothing(short_dir: Path, part: int) -> None:
    """Twenty-five plugins lose theirs at the same time, as each one waits for half a second in the end."""
    rounds = max(9 // part, 2)
    names = [f"example.com/r{n}" for n in range(25 // part)]
    async with registered(short_dir, *(Fed("a", resource_name=name) for name in names)) as (kubelet, _):
        before = held()
        for n in range(rounds):
            await kubelet.wait(lambda: all(allocatable(kubelet, name) == 1 for name in names))
            if n == 1:
                before = held()
            for name in names:
                kubelet.drop_stream(name)
        await kubelet.wait(lambda: all(allocatable(kubelet, name) == 1 for name in names))
        assert {kubelet.registrations(name) for name in names} == {rounds + 1}
        await settled(before)


@pytest.mark.nightly  # takes 6 s
async def test_fifty_starts_without_a_kubelet_end_registered_and_leave_nothing(
    short_dir: Path, part: int
) -> None:
    async def one_life(folder: Path) -> None:
        async with serve(Fed("a"), plugin_dir=folder) as serving:
            await asyncio.sleep(0)
            async with Kubelet(folder).running() as kubelet:
                await serving.wait_registered()
                await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert plugin_sockets(folder) == []
        shutil.rmtree(folder)

    await one_life(short_dir / "warm")
    await until(lambda: not our_threads())
    before = held()
    for n in range(50 // part):
        await one_life(short_dir / f"d{n % 5}")
    await until(lambda: not our_threads())
    await settled(before)
