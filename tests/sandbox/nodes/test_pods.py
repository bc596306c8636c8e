"""Pods on a node: what people read in their statuses and events, beside what a real node wrote."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devplug.k8s.objects import text, with_part
from devplug.sandbox.api.patch import STRATEGIC_PATCH
from devplug.sandbox.registry import PODS
from tests.kubelet.fakes import healthy, registered, unhealthy
from tests.sandbox.jsons import printed, recorded
from tests.sandbox.nodes.beds import RESOURCE, FakeRuntime, container, manifest, node

BUSYBOX = "docker.io/library/busybox:1"


def masked(value: object) -> object:
    """A status without its times, addresses and IDs."""
    text = json.dumps(value)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r'"10\.244\.[0-9.]+"', '"ADDRESS"', text)
    text = re.sub(r'"[a-z0-9]*:(//)?(in-name-only/)?[0-9a-f]{64}"', '"ID"', text)
    return json.loads(text)


async def test_a_pod_with_a_device_has_the_status_of_a_real_one(short_dir: Path) -> None:
    async with (
        node(short_dir, heartbeat_seconds=0.05) as bed,
        registered(bed.kubelet, healthy("Dev-1"), RESOURCE),
    ):
        bed.put(manifest("uses-resource", container("c", BUSYBOX, 1)))
        pod = await bed.running("uses-resource")
        assert masked(pod["status"]) == masked(json.loads(printed("04-pod-json.txt"))["status"])
        pod = await bed.pod("uses-resource", lambda pod: pod["status"]["resources"] == {})
        assert masked(pod["status"]) == masked(recorded("65-pod.json")["status"])
        order = [one["type"] for one in recorded("65-pod.json")["status"]["conditions"]]
        assert [one["type"] for one in pod["status"]["conditions"]] == order


async def test_a_start_is_told_in_the_events_of_a_real_one(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("a", container("c", BUSYBOX)))
        await bed.running("a")
        messages = [
            (
                "Normal",
                reason,
                re.search(rf"Normal +{reason} +\S+ +\S+ +(.*)", printed("11-describe-running.txt")),
            )
            for reason in ("Pulled", "Created", "Started")
        ]
        assert bed.events("a") == [(type_, reason, found[1]) for type_, reason, found in messages if found]


async def test_a_pod_that_is_refused_says_why_as_a_real_one_does(short_dir: Path) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1", "Dev-2"), RESOURCE):
        bed.put(manifest("first"))
        await bed.running("first")
        bed.put(manifest("too-many", container(count=2)))
        pod = await bed.ended("too-many")
        assert masked(pod["status"]) == masked(json.loads(printed("22-bound-status.txt")))
        [(type_, reason, message)] = bed.events("too-many")
        assert (type_, reason) == ("Warning", "UnexpectedAdmissionError")
        assert printed("23-bound-events.txt").endswith(message)


async def test_a_pod_says_that_it_runs_in_name_only(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("a", container()))
        [status] = (await bed.running("a"))["status"]["containerStatuses"]
        assert status["containerID"].startswith("sandbox://in-name-only/")
        assert status["imageID"].startswith("sandbox://in-name-only/")


async def test_a_device_that_falls_ill_shows_in_the_pod_and_on_the_node(short_dir: Path) -> None:
    """The heartbeat is ten seconds away: nothing waits for it."""

    def health(pod: Any) -> object:
        [[status], *_] = [pod["status"]["containerStatuses"]]
        return status["allocatedResourcesStatus"][0]["resources"]

    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1", "Dev-2"), RESOURCE) as plugin:
        await bed.counted(("2", "2"))
        bed.put(manifest("a"))
        assert health(await bed.running("a")) == [{"resourceID": "Dev-1", "health": "Healthy"}]
        plugin.send(unhealthy("Dev-1") + healthy("Dev-2"))
        ill = [{"resourceID": "Dev-1", "health": "Unhealthy"}]
        pod = await bed.pod("a", lambda pod: health(pod) == ill)
        assert pod["status"]["phase"] == "Running"
        await bed.counted(("2", "1"))


async def test_a_deleted_pod_is_stopped_and_its_devices_are_free(short_dir: Path) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
        bed.put(manifest("a"))
        await bed.running("a")
        bed.registry.delete(PODS, "default", "a")
        await bed.gone("a")
        assert bed.events("a")[-1] == ("Normal", "Killing", "Stopping container c")
        bed.put(manifest("b"))
        assert (await bed.running("b"))["status"]["podIP"]


async def test_a_pod_that_is_deleted_by_force_leaves_nothing_behind(short_dir: Path) -> None:
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed:
        bed.put(manifest("a", container(image="mapped")))
        await bed.running("a")
        bed.registry.delete(PODS, "default", "a", grace_seconds=0)
        await bed.told("a", "Killing")
        bed.put(manifest("a", container(image="mapped")))
        await bed.running("a")
        assert runtime.stopped == [("c", 2)]


class SlowRuntime(FakeRuntime):
    """Its containers stop when the test says so."""

    may_stop = asyncio.Event()

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        await self.may_stop.wait()
        await super().stop(pod_uid, container, grace_seconds)


async def test_a_device_is_free_while_the_container_of_a_forced_deletion_runs(short_dir: Path) -> None:
    """K 11, L4: old and new container run side by side for two seconds and more."""
    runtime = SlowRuntime()
    runtime.may_stop = asyncio.Event()
    async with node(short_dir, runtime=runtime) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
        bed.put(manifest("a", container(image="mapped", count=1)))
        await bed.running("a")
        bed.registry.delete(PODS, "default", "a", grace_seconds=0)
        bed.put(manifest("b", container(image="mapped", count=1)))
        await bed.running("b")
        assert runtime.stopped == []
        runtime.may_stop.set()
        await bed.told("a", "Killing")


async def test_a_pod_with_a_finalizer_waits_for_it_without_its_containers(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(with_part(manifest("a", container()), ["example.com/wait"], "metadata", "finalizers"))
        await bed.running("a")
        bed.registry.delete(PODS, "default", "a")
        pod = await bed.ended("a")
        assert "terminated" in pod["status"]["containerStatuses"][0]["state"]
        patch = {"metadata": {"finalizers": None}}
        bed.registry.patch(PODS, "default", "a", "application/merge-patch+json", patch)
        await bed.gone("a")


async def test_a_container_that_is_a_process_gets_what_the_plugin_gives(short_dir: Path) -> None:
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
        bed.put(manifest("a", container(image="mapped", count=1), terminationGracePeriodSeconds=7))
        [status] = (await bed.running("a"))["status"]["containerStatuses"]
        assert re.fullmatch("sandbox://[0-9a-f]{64}", status["containerID"])
        [order] = runtime.orders
        assert dict(order.config.envs) == {"DEVS_P": "Dev-1"}
        assert (order.node_name, order.plugin_dir, order.restart_count) == ("worker-0", short_dir, 0)
        bed.registry.delete(PODS, "default", "a")
        await bed.gone("a")
        assert runtime.stopped == [("c", 7)]


@pytest.mark.parametrize(
    ("before", "after"), [("busybox:1", "busybox:2"), ("mapped", "busybox:1"), ("busybox:1", "mapped")]
)
@pytest.mark.parametrize("policy", ["Always", "Never"])
async def test_a_container_whose_image_is_changed_is_started_anew_with_it(
    short_dir: Path, before: str, after: str, policy: str
) -> None:
    """kuberuntime_manager.go computePodActions: regardless of the restart policy, and without a backoff."""
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
        bed.put(manifest("a", container(image=before, count=1), container("other"), restartPolicy=policy))
        old = (await bed.running("a"))["status"]["containerStatuses"]
        for restarts, image in enumerate((after, before, after), start=1):
            patch = {"spec": {"containers": [{"name": "c", "image": image}]}}
            bed.registry.patch(PODS, "default", "a", STRATEGIC_PATCH, patch)
            pod = await bed.pod(
                "a",
                lambda pod, image=image: pod["status"]["containerStatuses"][0]["image"] == image,  # type: ignore[misc]
            )
            status, other = pod["status"]["containerStatuses"]
            assert (status["restartCount"], list(status["state"])) == (restarts, ["running"])
            assert status["imageID"] != old[0]["imageID"] or image == before
            assert status["lastState"]["terminated"]["containerID"] != status["containerID"]
            assert other == old[1]
        killed = ("Normal", "Killing", "Container c definition changed, will be restarted")
        assert killed in bed.events("a")
        assert [text(one.container, "image") for one in runtime.orders] == [
            image for image in (before, after, before, after) if image == "mapped"
        ]
        assert [name for name, _ in runtime.stopped] == ["c"] * (len(runtime.orders) - (after == "mapped"))


async def test_a_program_that_cannot_be_started_says_why(short_dir: Path) -> None:
    async with node(short_dir, runtime=FakeRuntime(error=FileNotFoundError("no such file: p"))) as bed:
        bed.put(manifest("a", container(image="mapped"), restartPolicy="Never"))
        [status] = (await bed.ended("a"))["status"]["containerStatuses"]
        assert status["state"]["terminated"]["reason"] == "StartError"
        assert ("Warning", "Failed", "Error: no such file: p") in bed.events("a")


@pytest.mark.parametrize(
    ("policy", "exit_code", "phase"),
    [("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded"), ("Never", 3, "Failed")],
)
async def test_a_pod_ends_when_its_annotation_says_so(
    short_dir: Path, policy: str, exit_code: int, phase: str
) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
        bed.put(manifest("a", restartPolicy=policy))
        await bed.running("a")
        bed.annotate("a", exit_code=str(exit_code))
        pod = await bed.ended("a")
        assert pod["status"]["phase"] == phase
        [status] = pod["status"]["containerStatuses"]
        assert status["state"]["terminated"]["exitCode"] == exit_code
        ready = [one for one in pod["status"]["conditions"] if one["type"] == "Ready"]
        assert ready[0]["reason"] == {"Succeeded": "PodCompleted", "Failed": "PodFailed"}[phase]
        bed.put(manifest("next"))
        await bed.running("next")


async def test_an_annotation_that_is_no_number_is_pointed_out(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("a", container()))
        await bed.running("a")
        bed.annotate("a", exit_code="one")
        message = await bed.told("a", "InvalidAnnotation")
        assert message == (
            'sandbox.devplug.dev/exit-code: "one" is not a number from 0 to 255; '
            'write for example sandbox.devplug.dev/exit-code: "1"'
        )


def initialized(name: str) -> Callable[[Any], bool]:
    def is_started(pod: Any) -> bool:
        statuses = pod["status"].get("initContainerStatuses", ())
        return any(one["name"] == name and one["started"] for one in statuses)

    return is_started


async def test_init_containers_come_first_and_sidecars_stay(short_dir: Path) -> None:
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed:
        pod = bed.put(
            manifest(
                "a",
                container("app", "mapped"),
                initContainers=[
                    container("one"),
                    container("side", "mapped", restartPolicy="Always"),
                    container("two", "mapped"),
                ],
                restartPolicy="Never",
            )
        )
        uid = pod["metadata"]["uid"]
        pod = await bed.pod("a", initialized("two"))
        assert pod["status"]["phase"] == "Pending"
        assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
        runtime.end(uid, "two", 0)
        await bed.running("a")
        assert [one.container["name"] for one in runtime.orders] == ["side", "two", "app"]
        runtime.end(uid, "app", 0)
        await bed.ended("a")
        assert runtime.stopped == [("side", 30)]


async def test_an_init_container_that_fails_for_good_is_the_end(short_dir: Path) -> None:
    runtime = FakeRuntime()
    async with node(short_dir, runtime=runtime) as bed:
        first = [container("i", "mapped")]
        pod = bed.put(manifest("a", container(), initContainers=first, restartPolicy="Never"))
        await bed.told("a", "Started")
        runtime.end(pod["metadata"]["uid"], "i", 1)
        pod = await bed.ended("a")
        assert pod["status"]["phase"] == "Failed"
        conditions = {one["type"]: one for one in pod["status"]["conditions"]}
        assert conditions["Initialized"]["message"] == "containers with incomplete status: [i]"


async def test_a_deadline_ends_a_pod(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.put(manifest("a", container(), activeDeadlineSeconds=1))
        pod = await bed.ended("a")
        assert pod["status"]["reason"] == "DeadlineExceeded"


async def test_the_agent_says_what_no_object_shows(short_dir: Path) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1", "Dev-2"), RESOURCE):
        bed.put(manifest("a"))
        await bed.running("a")
        told: Any = json.loads(json.dumps(bed.agent.description()))
        [resource] = told["resources"]
        holders = {one["id"]: one["held_by"] for one in resource["devices"]}
        assert holders == {"Dev-1": "default/a/c", "Dev-2": ""}
        [pod] = told["pods"]
        [shown] = pod["containers"]
        assert (pod["phase"], shown["is_in_name_only"]) == ("Running", True)
        assert shown["envs"] == [{"name": "DEVS_P", "value": "Dev-1"}]
