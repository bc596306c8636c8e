"""What happens at each start of a container: PreStartContainer, the cached response, late allocation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from devplug.devices import ContainerResponse
from devplug.errors import KubeletError
from devplug.kubelet.pods import Container, ContainerState, Event, Pod, PodPhase
from devplug.kubelet.topology import ComputeShare, NodeHardware
from devplug.wire.values import ClaimResource, DynamicResource, PluginOptions
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    FakePlugin,
    Ids,
    healthy,
    never,
    pod,
    refuse,
    register,
    registered,
    running,
    served,
)
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


PRE_STARTS = PluginOptions(pre_start_required=True)


async def test_a_restart_of_a_container_uses_the_first_response_again(short_dir: Path) -> None:
    """C63."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        first = (await kubelet.run_pod(pod("u"))).container("c")
        plugin.on_allocate = None
        again = await kubelet.start_container("u", "c")
        assert plugin.called("Allocate") == [("a",)]
        assert (again.options, again.restart_count) == (first.options, 1)
        assert again.options is not None
        assert again.options.envs == {"DEVS_P": "a"}


# ── what the runtime is told ──────────────────────────────────────────────────────────────────────


def given_by(plugin: FakePlugin, response: ContainerResponse) -> None:
    """Let a plugin give this to every container."""

    async def give(_: Ids) -> Sequence[ContainerResponse]:
        return [response]

    plugin.on_allocate = give


async def test_the_specs_environment_comes_after_that_of_plugins(short_dir: Path) -> None:
    """C68: of two plugins one has its say, and the spec's value stands behind both."""
    container = Container("c", {RESOURCE: 1, OTHER_RESOURCE: 1}, envs=(("MODE", "spec"), ("OWN", "1")))

    async with (
        served(short_dir, healthy("a")) as (kubelet, plugin),
        registered(kubelet, healthy("x"), OTHER_RESOURCE, "q") as other,
    ):
        given_by(plugin, ContainerResponse(envs={"MODE": "one", "A": "1"}))
        given_by(other, ContainerResponse(envs={"MODE": "two", "B": "2"}))
        await kubelet.run_pod(Pod("u", "u", containers=(container,)))
        envs = kubelet.container_config("u", "c").envs
        assert sorted(envs[:-2]) in (
            [("A", "1"), ("B", "2"), ("MODE", "one")],
            [("A", "1"), ("B", "2"), ("MODE", "two")],
        )
        assert envs[-2:] == (("MODE", "spec"), ("OWN", "1"))


async def test_cdi_devices_of_dra_come_first_and_those_of_plugins_once(short_dir: Path) -> None:
    """C69."""
    prepared = ClaimResource("d", "pool", "dev", ("dra.com/x=1", "vendor.com/y=shared"))
    machine = NodeHardware(
        shares={
            "default/u/c": ComputeShare(dynamic_resources=(DynamicResource("claim", "default", (prepared,)),))
        }
    )
    container = Container("c", {RESOURCE: 1, OTHER_RESOURCE: 1})

    async with (
        served(short_dir, healthy("a"), machine=machine) as (kubelet, plugin),
        registered(kubelet, healthy("x"), OTHER_RESOURCE, "q") as other,
    ):
        given_by(plugin, ContainerResponse(cdi_devices=["vendor.com/y=shared", "vendor.com/y=a"]))
        given_by(other, ContainerResponse(cdi_devices=["vendor.com/y=shared", "vendor.com/y=x"]))
        await kubelet.run_pod(Pod("u", "u", containers=(container,)))
        names = kubelet.container_config("u", "c").cdi_devices
        # Between DRA and plugins nothing is compared (kubelet.md 4.10).
        assert names[:2] == prepared.cdi_devices
        assert sorted(names[2:]) == ["vendor.com/y=a", "vendor.com/y=shared", "vendor.com/y=x"]


async def test_no_plugin_replaces_an_annotation_of_the_kubelet(short_dir: Path) -> None:
    """C70."""
    own = "io.kubernetes.container."
    keys = [f"{own}{key}" for key in ("restartCount", "terminationMessagePath", "terminationMessagePolicy")]

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        given_by(plugin, ContainerResponse(annotations={**dict.fromkeys(keys, "mine"), "x.com/y": "mine"}))
        await kubelet.run_pod(pod("u"))
        await kubelet.start_container("u", "c")
        annotations = kubelet.container_config("u", "c").annotations
        assert annotations["x.com/y"] == "mine"
        assert annotations[f"{own}restartCount"] == "1"
        assert "mine" not in [annotations[key] for key in keys]


async def test_a_container_without_devices_gets_what_its_spec_says(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        container = Container("c", envs=(("OWN", "1"),))
        await kubelet.run_pod(Pod("u", "u", containers=(container,)))
        config = kubelet.container_config("u", "c")
        assert config.envs == (("OWN", "1"),)
        assert (config.mounts, config.device_nodes, config.cdi_devices) == ((), (), ())


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_container_restarts_without_its_plugin(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        async with registered(kubelet, healthy("a")):
            await kubelet.run_pod(pod("u"))
        await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 0})
        assert (await kubelet.start_container("u", "c")).state is ContainerState.RUNNING


async def test_pre_start_comes_before_every_start_with_the_containers_devices(short_dir: Path) -> None:
    """C64."""
    containers = (Container("c1", {RESOURCE: 2}), Container("c2", {RESOURCE: 1}), Container("none"))

    async with served(short_dir, healthy(*"abc"), options=PRE_STARTS) as (kubelet, plugin):
        await kubelet.run_pod(Pod("u", "u", containers=containers))
        await kubelet.start_container("u", "c2")
        assert plugin.called("PreStartContainer") == [("a", "b"), ("c",), ("c",)]
        assert len(plugin.called("Allocate")) == 2


async def test_a_failed_pre_start_keeps_the_container_waiting_and_may_be_tried_again(short_dir: Path) -> None:
    """C65."""
    why = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not now"

    async def fail(_: Ids) -> None:
        raise KubeletError("not now")

    async with served(short_dir, healthy("a"), options=PRE_STARTS) as (kubelet, plugin):
        plugin.on_pre_start = fail
        status = await kubelet.run_pod(pod("u"))
        container = status.container("c")
        assert status.phase is PodPhase.PENDING
        assert (container.state, container.reason) == (ContainerState.WAITING, "CreateContainerConfigError")
        assert container.message == why
        assert kubelet.events == [Event("u", "Warning", "Failed", f"Error: {why}")]
        plugin.on_pre_start = None
        started = await kubelet.start_container("u", "c")
        assert (started.state, started.restart_count) == (ContainerState.RUNNING, 0)
        assert kubelet.pod("u").phase is PodPhase.RUNNING


async def test_pre_start_is_cut_off(short_dir: Path) -> None:
    """C66; after 30 s."""
    async with served(short_dir, healthy("a"), options=PRE_STARTS) as (kubelet, plugin):
        plugin.on_pre_start = never
        container = (await kubelet.run_pod(pod("u"))).container("c")
        assert container.message == (
            "device plugin PreStartContainer rpc failed with err: "
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        )


async def test_no_container_starts_once_its_plugin_has_been_gone_for_five_minutes(short_dir: Path) -> None:
    """C67."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.run_pod(pod("u"))
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        container = await kubelet.start_container("u", "c")
        assert container.state is ContainerState.WAITING
        assert container.message == ("endpoint not found in cache for a registered resource: example.com/a")


async def test_a_pod_admitted_before_its_plugin_gets_its_devices_at_the_start(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        await kubelet.admit(pod("u"))
        async with registered(kubelet, healthy("a")) as plugin:
            container = await kubelet.start_container("u", "c")
            assert container.options is not None
            assert plugin.called("Allocate") == [("a",)]


async def test_a_refusal_of_a_late_allocation_shows_without_its_code(short_dir: Path) -> None:
    """Kuberuntime_container.go takes the description of a bare gRPC status."""
    async with running(short_dir) as kubelet:
        await kubelet.admit(pod("u"))
        async with registered(kubelet, healthy("a")) as plugin:
            plugin.on_allocate = refuse
            assert (await kubelet.start_container("u", "c")).message == "boom"


async def test_pre_start_fails_for_a_container_without_devices(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        await kubelet.admit(pod("u"))
        async with FakePlugin(short_dir, devices=healthy("a"), options=PRE_STARTS).serving() as plugin:
            await register(kubelet, plugin)
            assert (await kubelet.start_container("u", "c")).message == (
                "no devices found allocated in local cache for pod u, container c, resource example.com/a"
            )


# ── starts that something overtakes ───────────────────────────────────────────────────────────────


async def test_a_pod_that_ends_during_a_start_stays_ended(short_dir: Path) -> None:
    entered, hold = asyncio.Event(), asyncio.Event()

    async def slow(_: Ids) -> None:
        entered.set()
        await hold.wait()

    async with served(short_dir, healthy("a"), options=PRE_STARTS) as (kubelet, plugin):
        plugin.on_pre_start = slow
        await kubelet.admit(pod("u"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kubelet.start_container("u", "c"))
            await entered.wait()
            kubelet.end_pod("u")
            hold.set()
        assert kubelet.pod("u").phase is PodPhase.SUCCEEDED


async def test_a_container_that_ends_after_its_pod_does_not_wake_it(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.run_pod(pod("u"))
        kubelet.end_pod("u")
        kubelet.end_container("u", "c")
        assert kubelet.pod("u").phase is PodPhase.SUCCEEDED


async def test_a_start_that_is_cut_short_by_the_kubelets_end_tells_nobody(short_dir: Path) -> None:
    entered = asyncio.Event()

    async def never(_: Ids) -> None:
        entered.set()
        await asyncio.get_running_loop().create_future()

    async with served(short_dir, healthy("a"), options=PRE_STARTS) as (kubelet, plugin):
        plugin.on_pre_start = never
        await kubelet.admit(pod("u"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kubelet.start_container("u", "c"))
            await entered.wait()
            await kubelet.restart(with_pods=False)
        assert kubelet.events == []
        assert kubelet.pod("u").container("c").reason == ""


async def test_the_hash_of_the_spec_is_the_kubelets(short_dir: Path) -> None:
    """C70: a plugin may say what it likes."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        given_by(plugin, ContainerResponse(annotations={"io.kubernetes.container.hash": "mine"}))
        await kubelet.run_pod(pod("u"))
        annotations = kubelet.container_config("u", "c").annotations
        assert annotations["io.kubernetes.container.hash"] != "mine"
