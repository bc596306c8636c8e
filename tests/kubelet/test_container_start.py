"""What happens at each start of a container: PreStartContainer, the cached response, late allocation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from devplug.errors import KubeletError
from devplug.exchange import PluginOptions
from devplug.kubelet.pods import Container, ContainerState, Event, Pod, PodPhase
from tests.kubelet.fakes import RESOURCE, Clock, FakePlugin, healthy, pod, register, registered, running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devplug.devices import ContainerResponse
    from tests.kubelet.fakes import Ids

PRE_STARTS = PluginOptions(pre_start_required=True)


def test_a_restart_of_a_container_uses_the_first_response_again(short_dir: Path) -> None:
    """C63."""

    async def scenario() -> None:
        async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
            first = (await kubelet.run_pod(pod("u"))).container("c")
            plugin.on_allocate = None
            again = await kubelet.start_container("u", "c")
            assert plugin.called("Allocate") == [("a",)]
            assert (again.options, again.restart_count) == (first.options, 1)
            assert again.options is not None
            assert again.options.envs == {"DEVS_P": "a"}

    asyncio.run(scenario())


def test_a_container_restarts_without_its_plugin(short_dir: Path) -> None:
    async def scenario() -> None:
        async with running(short_dir) as kubelet:
            async with registered(kubelet, healthy("a")):
                await kubelet.run_pod(pod("u"))
            await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 0})
            assert (await kubelet.start_container("u", "c")).state is ContainerState.RUNNING

    asyncio.run(scenario())


def test_pre_start_comes_before_every_start_with_the_containers_devices(short_dir: Path) -> None:
    """C64."""
    containers = (Container("c1", {RESOURCE: 2}), Container("c2", {RESOURCE: 1}), Container("none"))

    async def scenario() -> None:
        async with (
            running(short_dir) as kubelet,
            registered(kubelet, healthy(*"abc"), options=PRE_STARTS) as plugin,
        ):
            await kubelet.run_pod(Pod("u", "u", containers=containers))
            await kubelet.start_container("u", "c2")
            assert plugin.called("PreStartContainer") == [("a", "b"), ("c",), ("c",)]
            assert len(plugin.called("Allocate")) == 2

    asyncio.run(scenario())


def test_a_failed_pre_start_keeps_the_container_waiting_and_may_be_tried_again(short_dir: Path) -> None:
    """C65."""
    why = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not now"

    async def fail(_: Ids) -> None:
        raise KubeletError("not now")

    async def scenario() -> None:
        async with (
            running(short_dir) as kubelet,
            registered(kubelet, healthy("a"), options=PRE_STARTS) as plugin,
        ):
            plugin.on_pre_start = fail
            status = await kubelet.run_pod(pod("u"))
            container = status.container("c")
            assert status.phase is PodPhase.PENDING
            assert (container.state, container.reason) == (
                ContainerState.WAITING,
                "CreateContainerConfigError",
            )
            assert container.message == why
            assert kubelet.events == [Event("u", "Warning", "Failed", f"Error: {why}")]
            plugin.on_pre_start = None
            started = await kubelet.start_container("u", "c")
            assert (started.state, started.restart_count) == (ContainerState.RUNNING, 0)
            assert kubelet.pod("u").phase is PodPhase.RUNNING

    asyncio.run(scenario())


def test_pre_start_is_cut_off(short_dir: Path) -> None:
    """C66; after 30 s, here 0.05 s."""

    async def scenario() -> None:
        async def never(_: Ids) -> None:
            await asyncio.get_running_loop().create_future()

        async with (
            running(short_dir, pre_start_timeout_seconds=0.05) as kubelet,
            registered(kubelet, healthy("a"), options=PRE_STARTS) as plugin,
        ):
            plugin.on_pre_start = never
            container = (await kubelet.run_pod(pod("u"))).container("c")
            assert container.message == (
                "device plugin PreStartContainer rpc failed with err: "
                "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            )

    asyncio.run(scenario())


def test_no_container_starts_once_its_plugin_has_been_gone_for_five_minutes(short_dir: Path) -> None:
    """C67."""

    async def scenario() -> None:
        clock = Clock()
        async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")):
            await kubelet.run_pod(pod("u"))
            kubelet.drop_stream(RESOURCE)
            clock.seconds += 301
            kubelet.update_node_status()
            container = await kubelet.start_container("u", "c")
            assert container.state is ContainerState.WAITING
            assert container.message == (
                "endpoint not found in cache for a registered resource: example.com/a"
            )

    asyncio.run(scenario())


def test_a_pod_admitted_before_its_plugin_gets_its_devices_at_the_start(short_dir: Path) -> None:
    async def scenario() -> None:
        async with running(short_dir) as kubelet:
            await kubelet.admit(pod("u"))
            async with registered(kubelet, healthy("a")) as plugin:
                container = await kubelet.start_container("u", "c")
                assert container.options is not None
                assert plugin.called("Allocate") == [("a",)]

    asyncio.run(scenario())


def test_a_refusal_of_a_late_allocation_shows_without_its_code(short_dir: Path) -> None:
    """Kuberuntime_container.go takes the description of a bare gRPC status."""

    async def refuse(_: Ids) -> Sequence[ContainerResponse]:
        raise KubeletError("boom")

    async def scenario() -> None:
        async with running(short_dir) as kubelet:
            await kubelet.admit(pod("u"))
            async with registered(kubelet, healthy("a")) as plugin:
                plugin.on_allocate = refuse
                assert (await kubelet.start_container("u", "c")).message == "boom"

    asyncio.run(scenario())


def test_pre_start_fails_for_a_container_without_devices(short_dir: Path) -> None:
    async def scenario() -> None:
        async with running(short_dir) as kubelet:
            await kubelet.admit(pod("u"))
            async with FakePlugin(short_dir, devices=healthy("a"), options=PRE_STARTS).serving() as plugin:
                await register(kubelet, plugin)
                assert (await kubelet.start_container("u", "c")).message == (
                    "no devices found allocated in local cache for pod u, container c, resource example.com/a"
                )

    asyncio.run(scenario())
