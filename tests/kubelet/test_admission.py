"""What happens to a pod when it comes: the calls its plugin gets, and what people see of a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.errors import KubeletCrashError, KubeletError
from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.pods import Container, ContainerOptions, Event, Pod, PodPhase, PodStatus
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    Devices,
    Ids,
    happened,
    healthy,
    pod,
    refuse,
    registered,
    running,
    served,
    unhealthy,
)
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────


async def test_allocate_is_called_once_per_container_and_resource_with_all_ids(short_dir: Path) -> None:
    """C44."""
    containers = (
        Container("c1", {RESOURCE: 2, OTHER_RESOURCE: 1, "cpu": 4}),
        Container("c2", {RESOURCE: 1, "unknown.com/x": 1}),
    )

    async with (
        served(short_dir, healthy("a", "b", "c")) as (kubelet, plugin),
        registered(kubelet, healthy("x"), OTHER_RESOURCE, "q") as other,
    ):
        status = await kubelet.admit(Pod("u", "u", containers=containers))
        assert status.phase is PodPhase.PENDING
        assert plugin.called("Allocate") == [("a", "b"), ("c",)]
        assert other.called("Allocate") == [("x",)]


async def test_no_allocate_is_called_for_a_quantity_of_nought(short_dir: Path) -> None:
    """C45."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        assert (await kubelet.run_pod(pod("u", 0))).phase is PodPhase.RUNNING
        assert plugin.called("Allocate") == []


async def test_a_quantity_of_nought_is_refused_if_no_device_is_healthy(short_dir: Path) -> None:
    """C45."""
    async with running(short_dir) as kubelet, registered(kubelet, unhealthy("a")):
        assert "no healthy devices present" in (await kubelet.admit(pod("u", 0))).message


async def test_init_containers_come_first_in_the_order_of_the_spec(short_dir: Path) -> None:
    """C46, C48: the sidecar gets what the init container before it held."""
    wanted = {RESOURCE: 1}
    init = (Container("i1", wanted), Container("s", wanted, ALWAYS), Container("i2", {RESOURCE: 2}))

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b", "c")) as plugin:
        status = await kubelet.run_pod(
            Pod("u", "u", init_containers=init, containers=(Container("c", wanted),))
        )
        assert status.phase is PodPhase.RUNNING
        assert plugin.called("Allocate") == [("a",), ("a",), ("b", "c"), ("b",)]


async def test_a_plugin_that_does_not_answer_holds_up_every_pod_and_fails_none(short_dir: Path) -> None:
    """C62: there is no deadline."""
    entered, hold = asyncio.Event(), asyncio.Event()

    async def wait(ids: Ids) -> Sequence[ContainerResponse]:
        entered.set()
        await hold.wait()
        return [ContainerResponse()]

    async with (
        served(short_dir, healthy("a"), pre_start_timeout_seconds=0.01) as (kubelet, plugin),
        registered(kubelet, healthy("x"), OTHER_RESOURCE, "q") as other,
    ):
        plugin.on_allocate = wait
        async with asyncio.TaskGroup() as tasks:
            slow = tasks.create_task(kubelet.admit(pod("slow")))
            await entered.wait()
            behind = tasks.create_task(kubelet.admit(pod("behind", resource_name=OTHER_RESOURCE)))
            # A list takes its way meanwhile: only admissions wait.
            with kubelet.changes() as changes:
                plugin.send(healthy("a", "b"))
                await happened(changes, ChangeKind.LISTED)
            assert other.called("Allocate") == []
            hold.set()
        assert slow.result().phase is behind.result().phase is PodPhase.PENDING


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_refused_pod_has_failed_for_good_with_reason_message_and_event(short_dir: Path) -> None:
    """C49, C55."""
    why = (
        "Allocate failed due to requested number of devices unavailable for example.com/a. "
        "Requested: 2, Available: 1, which is unexpected"
    )

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a") + unhealthy("b")):
        status = await kubelet.run_pod(pod("u", 2))
        assert status == PodStatus(PodPhase.FAILED, "UnexpectedAdmissionError", f"Pod was rejected: {why}")
        assert kubelet.events == [Event("u", "Warning", "UnexpectedAdmissionError", why)]
        with pytest.raises(KubeletError, match="has ended"):
            await kubelet.start_container("u", "c")


async def test_a_refused_pod_is_never_tried_again(short_dir: Path) -> None:
    """C56: neither when devices come nor when the kubelet restarts."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        refused = await kubelet.admit(pod("u", 2))
        with kubelet.changes() as changes:
            plugin.send(healthy("a", "b"))
            await happened(changes, ChangeKind.LISTED)
        await kubelet.restart()
        assert kubelet.pod("u") == refused
        assert plugin.called("Allocate") == []


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (unhealthy("a"), "no healthy devices present; cannot allocate unhealthy devices example.com/a"),
        (healthy("a"), "rpc error: code = Unknown desc = boom"),
    ],
)
async def test_the_error_stands_in_the_pods_message(short_dir: Path, devices: Devices, text: str) -> None:
    """C50, C52."""
    async with running(short_dir) as kubelet, registered(kubelet, devices) as plugin:
        plugin.on_allocate = refuse
        message = (await kubelet.admit(pod("u"))).message
        assert message == f"Pod was rejected: Allocate failed due to {text}, which is unexpected"


async def test_a_resource_that_is_known_from_its_holders_alone_is_unregistered(short_dir: Path) -> None:
    """C51: its plugin is long gone, and a pod still holds a device of it."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a", "b")):
        await kubelet.run_pod(pod("u"))
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        assert (await kubelet.admit(pod("v"))).message == (
            "Pod was rejected: Allocate failed due to cannot allocate unregistered device "
            "example.com/a, which is unexpected"
        )


async def test_an_answer_without_containers_is_refused_and_leaks_the_devices(short_dir: Path) -> None:
    """C53."""

    async def nothing(_: Ids) -> Sequence[ContainerResponse]:
        return []

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        plugin.on_allocate = nothing
        message = (await kubelet.admit(pod("u"))).message
        assert "Allocate failed due to no containers return in allocation response , which" in message
        plugin.on_allocate = None
        assert "Requested: 2, Available: 1" in (await kubelet.admit(pod("v", 2))).message


async def test_only_the_first_container_of_an_answer_counts(short_dir: Path) -> None:
    """C54."""

    async def two(_: Ids) -> Sequence[ContainerResponse]:
        return [ContainerResponse(envs={"N": "1"}), ContainerResponse(envs={"N": "2"})]

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        plugin.on_allocate = two
        options = (await kubelet.run_pod(pod("u"))).container("c").options
        assert options is not None
        assert options.envs == {"N": "1"}


async def test_a_plugin_that_is_gone_is_told_apart_from_one_that_refuses(short_dir: Path) -> None:
    async with (
        running(short_dir) as kubelet,
        registered(kubelet, healthy("a"), name="old") as old,
        registered(kubelet, healthy("b"), name="new"),
    ):
        with kubelet.changes() as changes:
            kubelet.drop_stream(RESOURCE)
            old.send(healthy("a"))
            await happened(changes, ChangeKind.LISTED)
        assert "has been stopped, which is unexpected" in (await kubelet.admit(pod("u"))).message


# ── who holds what ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_removed", [False, True])
async def test_devices_of_an_ended_pod_are_free_at_the_next_allocation(
    short_dir: Path, is_removed: bool
) -> None:
    """C71."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.run_pod(pod("u"))
        assert "Available: 0" in (await kubelet.admit(pod("early"))).message
        kubelet.remove_pod("u") if is_removed else kubelet.end_pod("u")
        assert [held.pod_uid for held in kubelet.allocations()] == ["u"]
        assert (await kubelet.admit(pod("late"))).phase is PodPhase.PENDING
        assert [held.pod_uid for held in kubelet.allocations()] == ["late"]


async def test_what_earlier_containers_got_stays_theirs_until_the_pod_is_inactive(short_dir: Path) -> None:
    """C72."""
    containers = (Container("c1", {RESOURCE: 1}), Container("c2", {RESOURCE: 5}))

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")):
        await kubelet.admit(Pod("u", "u", containers=containers))
        assert [(held.container_name, held.device_ids) for held in kubelet.allocations()] == [("c1", ("a",))]
        assert (await kubelet.admit(pod("v", 2))).phase is PodPhase.PENDING


@pytest.mark.parametrize("compat", [True, False])
async def test_a_device_that_leaves_the_list_during_allocate_crashes_the_kubelet(
    short_dir: Path, compat: bool
) -> None:
    async with served(short_dir, healthy("a", "b"), compat=compat) as (kubelet, plugin):

        async def vanish(_: Ids) -> Sequence[ContainerResponse]:
            with kubelet.changes() as changes:
                plugin.send(healthy("b"))
                await happened(changes, ChangeKind.LISTED)
            return [ContainerResponse()]

        plugin.on_allocate = vanish
        if not compat:
            assert (await kubelet.admit(pod("u"))).phase is PodPhase.PENDING
            return
        with pytest.raises(KubeletCrashError, match="the kubelet would have crashed here"):
            await kubelet.admit(pod("u"))
        await plugin.streams(0)
        with pytest.raises(KubeletError, match="not running"):
            await kubelet.admit(pod("v"))
        plugin.on_allocate = None
        await kubelet.restart(with_pods=False)
        assert kubelet.is_running


# ── what a container gets ─────────────────────────────────────────────────────────────────────────


def test_the_responses_of_two_resources_are_merged_first_one_first() -> None:
    """C68."""

    def response(who: str) -> ContainerResponse:
        return ContainerResponse(
            envs={"SHARED": who, who: "1"},
            annotations={"shared": who, who: "1"},
            mounts=[Mount(f"/{who}", "/shared"), Mount(f"/{who}")],
            device_nodes=[DeviceNode(f"/dev/{who}", "/dev/shared"), DeviceNode(f"/dev/{who}")],
            cdi_devices=["x.com/y=shared", f"x.com/y={who}"],
        )

    merged = ContainerOptions.merged([response("one"), response("two")])
    assert merged == ContainerOptions(
        envs={"SHARED": "one", "one": "1", "two": "1"},
        annotations={"shared": "one", "one": "1", "two": "1"},
        mounts=(Mount("/one", "/shared"), Mount("/one"), Mount("/two")),
        device_nodes=(DeviceNode("/dev/one", "/dev/shared"), DeviceNode("/dev/one"), DeviceNode("/dev/two")),
        cdi_devices=("x.com/y=shared", "x.com/y=one", "x.com/y=two"),
    )


def test_merging_one_response_changes_nothing() -> None:
    response = ContainerResponse(envs={"A": "1"}, mounts=[Mount("/a")], cdi_devices=["x.com/y=a"])
    merged = ContainerOptions.merged([response])
    assert (merged.envs, merged.mounts, merged.cdi_devices) == ({"A": "1"}, (Mount("/a"),), ("x.com/y=a",))
