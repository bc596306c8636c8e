"""A kubelet that comes back: what pods keep, and what they lose if their plugin is late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from devplug.devices import ContainerResponse
from devplug.errors import KubeletCrashError, KubeletError, RemoteError
from devplug.kubelet.checkpoint import decode
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, ContainerState, Pod, PodPhase
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.wire.values import PluginOptions
from tests.kubelet.fakes import (
    RESOURCE,
    Clock,
    FakePlugin,
    Ids,
    healthy,
    pod,
    register,
    registered,
    running,
    served,
)
from tests.kubelet.monitors import got, held, listed, monitored


async def back(kubelet: Kubelet, plugin: FakePlugin) -> None:
    """Let a plugin make its socket again and register, as every plugin must after a kubelet start."""
    await plugin.die()
    await plugin.listen()
    await register(kubelet, plugin)


async def test_a_running_pod_keeps_its_devices_while_the_plugin_is_absent(short_dir: Path) -> None:
    """C73."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        before = await kubelet.run_pod(pod("u"))
        held = kubelet.allocations()
        await kubelet.restart()
        assert (kubelet.pod("u"), kubelet.allocations()) == (before, held)
        await back(kubelet, plugin)
        assert (kubelet.pod("u"), kubelet.allocations()) == (before, held)
        assert plugin.called("Allocate") == [("a",)]
        await kubelet.run_pod(pod("v"))
        assert plugin.called("Allocate")[1:] == [("b",)]


async def test_after_a_restart_a_resource_shows_noughts_until_its_first_list(short_dir: Path) -> None:
    """C43."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")) as plugin:
        await kubelet.restart()
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 0}, {RESOURCE: 0})
        await back(kubelet, plugin)
        assert kubelet.allocatable() == {RESOURCE: 1}


async def test_after_a_restart_pre_start_waits_for_the_plugins_options(short_dir: Path) -> None:
    options = PluginOptions(pre_start_required=True)
    async with served(short_dir, healthy("a"), options=options) as (kubelet, plugin):
        await kubelet.run_pod(pod("u"))
        await kubelet.restart()
        assert (await kubelet.start_container("u", "c")).state is ContainerState.RUNNING
        assert len(plugin.called("PreStartContainer")) == 1
        await back(kubelet, plugin)
        await kubelet.start_container("u", "c")
        assert len(plugin.called("PreStartContainer")) == 2


async def test_a_running_pod_with_a_finished_init_container_is_refused(short_dir: Path) -> None:
    """Its init container does not run, so it is checked (kubernetes issue 124345)."""
    wanted = {RESOURCE: 1}
    whole = Pod("u", "u", init_containers=(Container("i", wanted),), containers=(Container("c", wanted),))

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        assert (await kubelet.run_pod(whole)).phase is PodPhase.RUNNING
        await kubelet.restart()
        status = kubelet.pod("u")
        assert status.phase is PodPhase.FAILED
        assert "no healthy devices present" in status.message
        with pytest.raises(KubeletError, match='the kubelet knows no container "c" of this pod'):
            kubelet.end_container("u", "c")  # which runs still, and ends when the pod is taken down


async def test_a_pod_whose_admission_fails_unexpectedly_is_refused_alone(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        broken = Pod("b", "b", containers=(Container("c", {RESOURCE: "one"}),))  # type: ignore[dict-item]
        status = await kubelet.admit(broken)
        assert (status.phase, status.reason) == (PodPhase.FAILED, "UnexpectedAdmissionError")
        assert (await kubelet.run_pod(pod("u"))).phase is PodPhase.RUNNING
    assert any("because of a bug" in one.message for one in caplog.records)


async def test_a_pod_is_refused_after_a_reboot_without_its_plugin(short_dir: Path) -> None:
    """C74."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.run_pod(pod("u"))
        await kubelet.restart(reboot=True)
        status = kubelet.pod("u")
        assert (status.phase, status.reason) == (PodPhase.FAILED, "UnexpectedAdmissionError")
        assert status.message == (
            "Pod was rejected: Allocate failed due to no healthy devices present; "
            "cannot allocate unhealthy devices example.com/a, which is unexpected"
        )


async def test_a_pod_is_admitted_with_its_devices_if_the_plugin_comes_first_after_a_reboot(
    short_dir: Path,
) -> None:
    """C75."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        before = (await kubelet.run_pod(pod("u"))).container("c")
        await kubelet.restart(reboot=True, with_pods=False)
        await back(kubelet, plugin)
        await kubelet.readmit()
        assert not kubelet.pod("u").is_terminal
        started = await kubelet.start_container("u", "c")
        assert (started.options, plugin.called("Allocate")) == (before.options, [("a",)])


async def test_a_pod_is_refused_after_a_reboot_that_changed_the_device_ids(short_dir: Path) -> None:
    """C76."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        await kubelet.run_pod(pod("u"))
        await kubelet.restart(reboot=True, with_pods=False)
        plugin.devices = healthy("z")
        await back(kubelet, plugin)
        await kubelet.readmit()
        assert "previously allocated devices are no longer healthy; " in kubelet.pod("u").message


async def test_another_kubelet_on_the_same_folder_knows_who_holds_what(short_dir: Path) -> None:
    async with running(short_dir) as first, registered(first, healthy("a", "b")) as plugin:
        await first.run_pod(pod("u"))
        held = first.allocations()
    second = Kubelet(short_dir)
    async with second.running(running_containers=[("u", "c")], sources_ready=False):
        assert second.allocations() == held
        assert not (await second.admit(pod("u"))).is_terminal
        second.sources_ready = True
        await plugin.listen()
        await register(second, plugin)
        container = await second.start_container("u", "c")
        assert container.options is not None
        assert container.options.envs == {"DEVS_P": "a"}
        await plugin.die()


async def test_nothing_is_freed_until_all_sources_of_pods_are_ready(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.run_pod(pod("u"))
        await kubelet.restart()
        kubelet.sources_ready = False
        await back(kubelet, plugin)
        kubelet.remove_pod("u")
        await kubelet.admit(pod("v"))
        assert [held.pod_uid for held in kubelet.allocations()] == ["u", "v"]
        kubelet.sources_ready = True
        await kubelet.admit(pod("w"))
        assert [held.pod_uid for held in kubelet.allocations()] == ["v", "w"]


async def test_without_the_api_server_a_kubelet_knows_static_pods_only_and_frees_nothing(
    short_dir: Path,
) -> None:
    """The checkpoint goes on naming what the others hold, however often the kubelet starts."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a", "b", "c")) as plugin:
        await kubelet.run_pod(replace(pod("static"), is_static=True))
        before = (await kubelet.run_pod(pod("u"))).container("c")
        kubelet.lose_api_server()
        assert sorted(held(await listed(kubelet))) == ["static", "u"]  # until it starts again
        await kubelet.restart()
        await back(kubelet, plugin)
        assert held(await listed(kubelet)) == {"static": [("c", ["a"])]}
        await kubelet.run_pod(replace(pod("late"), is_static=True))
        await kubelet.restart()
        await back(kubelet, plugin)
        assert held(await listed(kubelet)) == {"static": [("c", ["a"])], "late": [("c", ["c"])]}
        content = (kubelet.plugin_dir / CHECKPOINT_NAME).read_bytes()
        assert {one.pod_uid for one in decode(content).entries or ()} == {"static", "u", "late"}
        with pytest.raises(RemoteError, match="pod u in namespace default not found"):
            await got(kubelet, "u")
        with pytest.raises(KubeletError, match="the API server is away"):
            await kubelet.start_container("u", "c")
        with pytest.raises(KubeletError, match="the API server is away"):
            await kubelet.admit(pod("v"))

        await kubelet.find_api_server()
        assert sorted(held(await listed(kubelet))) == ["late", "static", "u"]
        assert kubelet.pod("u").container("c") == before
        assert plugin.called("Allocate") == [("a",), ("b",), ("c",)]


async def test_a_pod_that_went_while_the_api_server_was_away_is_freed_once_that_is_back(
    short_dir: Path,
) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        await kubelet.run_pod(pod("u"))
        kubelet.lose_api_server()
        await kubelet.restart()
        await back(kubelet, plugin)
        kubelet.remove_pod("u")
        assert (await kubelet.admit(replace(pod("static"), is_static=True))).is_terminal
        assert held(await listed(kubelet)) == {}
        assert [one.pod_uid for one in kubelet.allocations()] == ["u"]
        await kubelet.find_api_server()
        await kubelet.run_pod(pod("v"))
        assert [one.pod_uid for one in kubelet.allocations()] == ["v"]


async def test_a_pod_whose_admission_a_restart_cut_short_is_admitted_again(short_dir: Path) -> None:
    entered = asyncio.Event()

    async def never(_: tuple[str, ...]) -> list[object]:
        entered.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        plugin.on_allocate = never  # type: ignore[assignment]
        async with asyncio.TaskGroup() as tasks:
            admission = tasks.create_task(kubelet.admit(pod("u")))
            await entered.wait()
            await kubelet.restart(with_pods=False)
        assert admission.result().phase is PodPhase.PENDING
        plugin.on_allocate = None
        await back(kubelet, plugin)
        await kubelet.readmit()
        assert [held.device_ids for held in kubelet.allocations()] == [("a",)]


async def test_podresources_is_empty_after_a_start_then_partial(short_dir: Path) -> None:
    """K 11, L6: the kubelet lists a pod once its admission has begun, and the checkpoint keeps all."""
    seen: list[list[str]] = []

    async def allocate(_: Ids) -> Sequence[ContainerResponse]:
        seen.append([one.name for one in await listed(kubelet)])
        return [ContainerResponse()]

    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a", "b", "c")) as plugin:
        for name in ("u", "v"):
            await kubelet.run_pod(pod(name))
        await kubelet.restart(with_pods=False)
        assert await listed(kubelet) == ()
        assert len(kubelet.allocations()) == 2
        kubelet.end_pod("v")
        await back(kubelet, plugin)
        plugin.on_allocate = allocate
        await kubelet.admit(pod("w"))
        assert seen == [["w"]]
        await kubelet.readmit()
        assert [one.name for one in await listed(kubelet)] == ["u", "w"]


# ── races of the real kubelet ─────────────────────────────────────────────────────────────────────


def held_up(plugin: FakePlugin) -> tuple[asyncio.Event, asyncio.Event]:
    """Make a plugin's next Allocate wait; return events of its begin, and for its end."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(ids: Ids) -> Sequence[ContainerResponse]:
        plugin.on_allocate = None
        begun.set()
        await go_on.wait()
        return [plugin.response(ids)]

    plugin.on_allocate = wait
    return begun, go_on


async def test_a_list_during_an_allocate_makes_the_kubelet_forget_it(short_dir: Path) -> None:
    """K 11, L5: kubernetes/kubernetes#137534. Without the end of a pod nothing is forgotten."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.run_pod(pod("u"))
        begun, go_on = held_up(plugin)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kubelet.run_pod(pod("v")))
            await begun.wait()
            kubelet.end_pod("u")
            await listed(kubelet)
            go_on.set()
        assert plugin.called("Allocate") == [("a",), ("b",)]
        plugin.on_prefer = None
        await kubelet.run_pod(pod("w"))
        await kubelet.run_pod(pod("x"))
        assert plugin.called("Allocate")[2:] == [("a",), ("b",)]


async def test_two_allocates_at_once_crash_the_kubelet(short_dir: Path) -> None:
    """K 11, L7: a worker's Allocate is slow, and another pod's begins meanwhile (pod_devices.go:160)."""
    async with running(short_dir) as kubelet:
        await kubelet.admit(pod("u"))
        async with registered(kubelet, healthy("a", "b")) as plugin:
            begun, go_on = held_up(plugin)

            async def start() -> None:
                with pytest.raises(KubeletCrashError, match="nil map"):
                    await kubelet.start_container("u", "c")

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(start())
                await begun.wait()
                await kubelet.run_pod(pod("v"))
                go_on.set()
            assert not kubelet.is_running


async def test_two_allocates_at_once_are_no_crash_without_compat(short_dir: Path) -> None:
    async with running(short_dir, compat=False) as kubelet:
        await kubelet.admit(pod("u"))
        async with registered(kubelet, healthy("a", "b")) as plugin:
            begun, go_on = held_up(plugin)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(kubelet.start_container("u", "c"))
                await begun.wait()
                await kubelet.run_pod(pod("v"))
                go_on.set()
            assert [one.device_ids for one in kubelet.allocations()] == [("a",), ("b",)]
