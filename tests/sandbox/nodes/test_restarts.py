"""Pods over starts of their containers, of the kubelet and of the node."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import AllocationError, ContainerResponse
from devplug.errors import KubeletError
from devplug.kubelet.changes import ChangeKind
from devplug.sandbox.api.patch import STRATEGIC_PATCH
from devplug.sandbox.nodes.containerrecords import ContainerRecord
from devplug.sandbox.nodes.podcontainers import AddressPool
from devplug.sandbox.registry import PODS
from devplug.wire.values import PluginOptions
from tests.kubelet.fakes import healthy, register, registered
from tests.sandbox.nodes.beds import RESOURCE, START, WORKER, FakeRuntime, FakeTime, container, manifest, node


def first(pod: Any) -> Any:
    """The status of a pod's first container."""
    return pod["status"].get("containerStatuses", [{}])[0]


def waits(pod: Any) -> Any:
    return first(pod).get("state", {}).get("waiting", {})


def restarts(count: int) -> Any:
    return lambda pod: first(pod).get("restartCount") == count and "running" in first(pod)["state"]


# ── starts of containers ──────────────────────────────────────────────────────────────────────────


async def test_a_container_that_ends_again_and_again_backs_off_as_on_a_real_node(short_dir: Path) -> None:
    time = FakeTime()
    runtime = FakeRuntime(time=time)
    async with node(short_dir, time=time, runtime=runtime, heartbeat_seconds=0.02) as bed:
        uid = bed.put(manifest("a", container(image="mapped")))["metadata"]["uid"]
        await bed.pod("a", restarts(0))
        runtime.end(uid, "c", 1)
        await bed.pod("a", restarts(1))
        for count, seconds, wait in ((2, 10, "10s"), (3, 20, "20s"), (4, 40, "40s"), (5, 80, "1m20s")):
            runtime.end(uid, "c", 1)
            pod = await bed.pod("a", lambda pod: waits(pod).get("reason") == "CrashLoopBackOff")
            assert waits(pod)["message"] == (
                f"back-off {wait} restarting failed container=c pod=a_default({uid})"
            )
            assert first(pod)["lastState"]["terminated"]["exitCode"] == 1
            assert pod["status"]["phase"] == "Running"
            time.advance(seconds)
            await bed.pod("a", restarts(count))
        told = ("Warning", "BackOff", f"Back-off restarting failed container c in pod a_default({uid})")
        assert bed.events("a").count(told) == 1
        assert [one.restart_count for one in runtime.orders] == list(range(6))


ends = st.lists(st.floats(0, 2000), max_size=12)


@given(ends)
def test_each_start_after_an_end_doubles_the_wait_unless_the_container_ran_for_long(
    lives: list[float],
) -> None:
    """flowcontrol/backoff.go: from 10 s to 300 s, and from the beginning after more than 600 s."""
    now, record, expected = START, ContainerRecord("c").running(START, "id", "image"), 0.0
    for seconds in lives:
        started, now = now, now + timedelta(seconds=seconds)
        record = record.terminated(1, now)
        recovered = expected and (now - started).total_seconds() > 600
        assert record.may_start_at is not None
        assert record.may_start_at - now == timedelta(seconds=0 if recovered else expected)
        expected = 10.0 if recovered or not expected else min(2 * expected, 300.0)
        now = record.may_start_at
        record = record.running(now, "id", "image")
    assert record.restart_count == len(lives)


async def test_a_container_that_backs_off_is_started_at_once_with_a_mended_image(short_dir: Path) -> None:
    """kuberuntime_manager.go doBackOff: the backoff is of a container as it is written, by its hash."""
    time = FakeTime()
    runtime = FakeRuntime(images=("broken", "mended"), time=time)
    async with node(short_dir, runtime=runtime, time=time) as bed:
        uid = bed.put(manifest("a", container(image="broken")))["metadata"]["uid"]
        for count in range(2):
            await bed.pod("a", restarts(count))
            runtime.end(uid, "c", 1)
        await bed.pod("a", lambda pod: waits(pod).get("reason") == "CrashLoopBackOff")
        patch = {"spec": {"containers": [{"name": "c", "image": "mended"}]}}
        bed.registry.patch(PODS, "default", "a", STRATEGIC_PATCH, patch)
        pod = await bed.pod("a", lambda pod: first(pod)["image"] == "mended")
        assert (first(pod)["restartCount"], list(first(pod)["state"])) == (2, ["running"])


async def test_an_annotation_ends_every_start_of_a_container(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("a", container()))
        await bed.running("a")
        bed.annotate("a", exit_code="2")
        pod = await bed.pod("a", lambda pod: waits(pod).get("reason") == "CrashLoopBackOff")
        assert first(pod)["restartCount"] == 1
        assert first(pod)["lastState"]["terminated"]["exitCode"] == 2


async def test_an_annotation_gives_a_container_its_time(short_dir: Path) -> None:
    time = FakeTime()
    async with node(short_dir, time=time, heartbeat_seconds=0.02) as bed:
        pod = manifest("a", container(), restartPolicy="Never")
        pod["metadata"] |= {  # type: ignore[operator]
            "annotations": {"sandbox.devplug.dev/exit-code": "0", "sandbox.devplug.dev/runs-seconds": "100"}
        }
        bed.put(pod)
        await bed.running("a")
        time.advance(99)
        bed.put(manifest("b", container()))
        await bed.running("b")
        assert bed.get("a")["status"]["phase"] == "Running"
        time.advance(1)
        ended = first(await bed.ended("a"))["state"]["terminated"]
        assert (ended["startedAt"], ended["finishedAt"]) == ("2026-11-21T00:21:59Z", "2026-11-21T00:23:39Z")


async def test_a_container_can_be_ended_by_hand(short_dir: Path) -> None:
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed:
        bed.put(manifest("a", container("c", "mapped"), container("d"), restartPolicy="OnFailure"))
        await bed.running("a")
        await bed.agent.end_container("default", "a", "c", 5)
        pod = await bed.pod("a", restarts(1))
        assert first(pod)["lastState"]["terminated"]["exitCode"] == 5
        await bed.agent.end_container("default", "a", None, 0)
        assert (await bed.ended("a"))["status"]["phase"] == "Succeeded"
        with pytest.raises(KubeletError, match="no container of pod default/a is running"):
            await bed.agent.end_container("default", "a", None, 0)
        with pytest.raises(KubeletError, match="has no container x; it has c, d"):
            await bed.agent.end_container("default", "a", "x", 0)
        with pytest.raises(KubeletError, match="there is no pod default/b on node worker-0"):
            await bed.agent.end_container("default", "b", None, 0)


async def test_a_container_that_cannot_be_made_says_why_and_is_tried_again(short_dir: Path) -> None:
    time, options = FakeTime(), PluginOptions(pre_start_required=True)
    async with (
        node(short_dir, time=time, heartbeat_seconds=0.02) as bed,
        registered(bed.kubelet, healthy("Dev-1"), RESOURCE, options=options) as plugin,
    ):

        async def refuse(_: object) -> None:
            raise AllocationError("still warm")

        plugin.on_pre_start = refuse
        bed.put(manifest("a"))
        pod = await bed.pod("a", lambda pod: waits(pod).get("reason") == "CreateContainerConfigError")
        assert waits(pod)["message"].endswith("still warm")
        assert pod["status"]["phase"] == "Pending"
        assert f"Error: {waits(pod)['message']}" == await bed.told("a", "Failed")
        plugin.on_pre_start = None
        time.advance(10)
        await bed.pod("a", restarts(0))


# ── starts of the kubelet and the node ────────────────────────────────────────────────────────────


async def test_containers_run_on_over_a_restart_of_the_kubelet(short_dir: Path) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1", "Dev-2"), RESOURCE) as plugin:
        bed.put(manifest("a"))
        before = first(await bed.running("a"))
        await bed.counted(("2", "2"))
        await bed.agent.restart_kubelet()
        await bed.counted(("0", "0"))
        await plugin.die()
        await plugin.listen()
        await register(bed.kubelet, plugin, RESOURCE)
        await bed.counted(("2", "2"))
        bed.put(manifest("b"))
        other = first(await bed.running("b"))
        assert first(bed.get("a")) == before
        held = [one["allocatedResourcesStatus"][0]["resources"][0]["resourceID"] for one in (before, other)]
        assert held == ["Dev-1", "Dev-2"]
        assert ("Normal", "Starting", "Starting kubelet.") in bed.events(WORKER)


async def test_a_restart_frees_a_kubelet_whose_plugin_does_not_answer(short_dir: Path) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE) as plugin:
        asked = asyncio.Event()

        async def hang(_: object) -> list[ContainerResponse]:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        plugin.on_allocate = hang
        bed.put(manifest("a"))
        await asked.wait()
        bed.put(manifest("b", container()))
        await bed.agent.restart_kubelet()
        assert (await bed.ended("a"))["status"]["reason"] == "UnexpectedAdmissionError"
        await bed.running("b")


@pytest.mark.parametrize(("is_back", "phase"), [(True, "Running"), (False, "Failed")])
async def test_a_pod_with_a_completed_init_container_needs_its_plugin_early(
    short_dir: Path, is_back: bool, phase: str
) -> None:
    """K 11, L6: such a pod is killed if the plugin is late after a restart of the kubelet."""
    device = container("i") | {"resources": {"limits": {RESOURCE: "1"}}}
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE) as plugin:
        bed.put(manifest("plain", container(), initContainers=[device]))
        await bed.running("plain")

        async def come_back() -> None:
            with bed.kubelet.changes() as changes:
                restart = tasks.create_task(bed.agent.restart_kubelet())
                async for change in changes:
                    if change.kind is ChangeKind.STARTED:
                        break
            if is_back:
                await plugin.die()
                await plugin.listen()
                await register(bed.kubelet, plugin, RESOURCE)
            await restart

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(come_back())
        assert bed.kubelet.pod(bed.get("plain")["metadata"]["uid"]).phase == phase
        await bed.pod("plain", lambda pod: pod["status"]["phase"] == phase)


async def test_a_boot_starts_containers_again_and_refuses_pods_whose_plugin_is_not_back(
    short_dir: Path,
) -> None:
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
        bed.put(manifest("device"))
        initial = [container("i")]
        bed.put(manifest("plain", container(image="mapped"), initContainers=initial))
        bed.put(manifest("once", container(), restartPolicy="Never"))
        bed.put(manifest("over", container(), restartPolicy="Never"))
        await bed.running("over")
        await bed.agent.end_container("default", "over", None, 0)
        over = await bed.ended("over")
        for name in ("device", "plain", "once"):
            await bed.running(name)
        boot_id = bed.node["status"]["nodeInfo"]["bootID"]
        await bed.agent.reboot()
        pod = await bed.ended("device")
        assert pod["status"]["reason"] == "UnexpectedAdmissionError"
        assert "no healthy devices present; cannot allocate unhealthy devices" in pod["status"]["message"]
        assert "containerStatuses" not in pod["status"]
        pod = await bed.pod("plain", restarts(1))
        assert first(pod)["lastState"]["terminated"]["exitCode"] == 255
        assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 1
        assert [one.restart_count for one in runtime.orders] == [0, 1]
        assert (await bed.ended("once"))["status"]["phase"] == "Failed"
        await bed.node_is(lambda one: one["status"]["nodeInfo"]["bootID"] != boot_id)
        assert bed.get("over") == over
        assert bed.events(WORKER)[-1][1] == "Rebooted"


async def test_pods_of_an_earlier_life_of_the_sandbox_are_found_as_after_a_boot(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("a", container()))
        bed.put(manifest("over", container(), restartPolicy="Never"))
        await bed.running("a")
        await bed.running("over")
        await bed.agent.end_container("default", "over", None, 0)
        over = await bed.ended("over")
        registry = bed.registry
    async with node(short_dir, registry=registry) as bed:
        pod = await bed.pod("a", restarts(1))
        assert first(pod)["lastState"]["terminated"]["reason"] == "Unknown"
        assert bed.get("over") == over


def test_an_address_is_given_again_only_after_the_others() -> None:
    pool = AddressPool("10.244.0.0/29")
    assert [pool.take(uid) for uid in "abca"] == ["10.244.0.2", "10.244.0.3", "10.244.0.4", "10.244.0.2"]
    pool.release("a")
    assert [pool.take(uid) for uid in "defg"] == ["10.244.0.5", "10.244.0.6", "10.244.0.2", ""]


# ── errors of one pod ─────────────────────────────────────────────────────────────────────────────


async def test_an_unexpected_error_of_one_pod_ends_no_other_pod(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = FakeRuntime(error=ZeroDivisionError("in a runtime"))
    async with node(short_dir, runtime=runtime) as bed:
        bed.put(manifest("broken", container("c", "mapped")))
        assert await bed.told("broken", "InternalError") == "ZeroDivisionError: in a runtime"
        bed.put(manifest("fine", container("c", "busybox")))
        await bed.running("fine")
        runtime.error = None
        await bed.running("broken")
    assert any("the work on a pod failed" in one.message for one in caplog.records)
