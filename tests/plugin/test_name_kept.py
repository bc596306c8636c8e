"""What befalls a name at the plugin's end: lost streams, a kubelet that has forgotten it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from devplug import Serving, serve
from devplug.plugin.takeover import TakeoverDetector
from devplug.status import Takeover
from devplug.wire.values import RegisterRequest
from tests.kubelet.fakes import FakePlugin, healthy
from tests.plugin.fakes import RESOURCE, Fed, Listed, Registrar, allocatable, registered, served
from tests.virtualtime import on_virtual_time
from tests.waiting import until

anyio_backend = on_virtual_time


def takeover(serving: Serving) -> Takeover | None:
    return serving.guards[RESOURCE].takeover


async def test_three_streams_that_a_living_kubelet_ends_are_a_sign_and_leave_the_plugin_ready(
    short_dir: Path,
) -> None:
    async with registered(short_dir, Fed("a", "b")) as (kubelet, serving):
        for _ in range(3):
            assert takeover(serving) is None
            kubelet.drop_stream(RESOURCE)
            await kubelet.wait(lambda: allocatable(kubelet) == 2)
        await until(lambda: takeover(serving))
        (status,) = serving.statuses()
        assert status.takeover is not None
        assert (status.takeover.signs, status.takeover.is_lost) == (("cut",), False)
        await serving.wait_registered()
        assert serving.faults() == {}


async def test_kubelets_that_restart_are_no_sign(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (kubelet, serving):
        for _ in range(5):
            await kubelet.restart()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            await serving.wait_registered()
        assert takeover(serving) is None


async def test_a_stream_that_is_ended_here_ends_in_order_and_the_next_one_goes_on(short_dir: Path) -> None:
    async with served(short_dir, Listed(), [*await Listed().devices()]) as stage:
        first, second = stage.lists(), stage.lists()
        await anext(first)
        await anext(second)
        stage.service.streams.end()
        assert [one async for one in first] == []
        assert [one async for one in second] == []
        async with aclosing(stage.lists()) as third:
            assert [device.id for device in await anext(third)] == ["a"]
            await stage.inventory.replace([])
            assert not await anext(third)


async def test_a_kubelet_that_has_forgotten_the_name_is_registered_with_again_and_that_is_no_sign(
    short_dir: Path,
) -> None:
    """In 1.36 it has forgotten both plugins of a name when the last that registered ends."""
    async with registered(short_dir, Fed("a")) as (kubelet, serving):
        guard = serving.guards[RESOURCE]
        for _ in range(4):
            other = FakePlugin(short_dir, "vendor", healthy("x"))
            async with other.serving():
                await other.register(RESOURCE)
                await kubelet.wait(lambda: [one.id for one in kubelet.devices(RESOURCE)] == ["x"])
            await kubelet.wait(lambda: allocatable(kubelet) == 0)
            forgotten(guard)
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            assert [one.id for one in kubelet.devices(RESOURCE)] == ["a"]
            await serving.wait_registered()
            assert takeover(serving) is None


def forgotten(guard: TakeoverDetector) -> None:
    """Have the guard think that the kubelet was asked and lists nothing, now and five seconds later."""
    listed = guard.listed()
    assert listed is not None
    now = asyncio.get_running_loop().time()
    for later, told in ((0, listed.devices), (1, ()), (7, ())):
        guard.compare(now + later, listed, told)


async def test_a_registration_that_takes_long_is_no_lost_stream(short_dir: Path) -> None:
    """A kubelet that never opens a stream is registered with again, and has ended none."""

    async def accept(_: RegisterRequest) -> None:
        return

    registrar = Registrar(short_dir, accept)
    async with registrar.running(), serve(Fed("a"), plugin_dir=short_dir) as serving:
        await until(lambda: registrar.requests)
        assert takeover(serving) is None
