"""The Node object: what the device manager counts, and what other people put there and take away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from devplug import ContainerResponse, Device, DevicePlugin, Health
from devplug.kubelet.resources import Capacity
from devplug.kubelet.settings import KubeletSettings
from devplug.plugin.serving import serve
from devplug.sandbox.nodes.noderegistration import LEASE_NAMESPACE, facts_of_this_machine
from devplug.sandbox.nodes.nodestatus import is_due, status_of
from devplug.sandbox.registry import NODES, PODS
from tests.kubelet.fakes import Clock, healthy, register, registered
from tests.sandbox.jsons import printed
from tests.sandbox.nodes.beds import RESOURCE, START, WORKER, FakeTime, container, manifest, node
from tests.virtualtime import BACKEND, now, passes

WIDGET = "kkloud.io/widget"
OF_THE_MACHINE = ("memory", "cpu")
OF_THE_SYSTEM = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "machineID",
    "osImage",
    "systemUUID",
)


def masked(one: Any) -> Any:
    """A node without what differs from machine to machine, or from moment to moment."""
    one = json.loads(json.dumps(one))
    for key in ("creationTimestamp", "resourceVersion", "uid"):
        one["metadata"][key] = ""
    for key in ("beta.kubernetes.io/arch", "kubernetes.io/arch"):
        one["metadata"]["labels"][key] = ""
    for word in ("capacity", "allocatable"):
        one["status"][word] |= dict.fromkeys(OF_THE_MACHINE, "")
    for condition in one["status"]["conditions"]:
        condition["lastHeartbeatTime"] = condition["lastTransitionTime"] = ""
    one["status"]["nodeInfo"] |= dict.fromkeys(OF_THE_SYSTEM, "")
    one["status"].pop("images", None)
    return one


class Meters(DevicePlugin):
    """Two meters, one of which falls ill when told to."""

    resource_name = RESOURCE

    def __init__(self) -> None:
        self.falls_ill = asyncio.Event()

    async def devices(self) -> AsyncIterator[list[Device]]:
        yield [Device("Dev-1"), Device("Dev-2")]
        await self.falls_ill.wait()
        yield [Device("Dev-1"), Device("Dev-2", health=Health.unhealthy("it smokes"))]
        await asyncio.Event().wait()


async def test_a_node_with_a_plugin_and_a_widget_is_as_a_real_one(short_dir: Path) -> None:
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1", "Dev-2"), RESOURCE):
        bed.patch_capacity("add", WIDGET, "2")
        await bed.counted(("2", "2"), WIDGET)
        await bed.counted(("2", "2"))
        assert masked(bed.node) == masked(json.loads(printed("14-node-json.txt")))
        assert bed.events(WORKER) == []


async def test_a_plugin_of_ours_shows_on_the_node_at_once(short_dir: Path) -> None:
    """The heartbeat is ten seconds away: nothing waits for it."""
    async with node(short_dir) as bed:
        plugin = Meters()
        async with serve(plugin, plugin_dir=short_dir):
            await bed.counted(("2", "2"))
            plugin.falls_ill.set()
            await bed.counted(("2", "1"))
        await bed.counted(("2", "0"))


async def test_a_resource_without_a_plugin_is_allocatable_until_it_is_removed(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        bed.patch_capacity("add", WIDGET, "2")
        await bed.counted(("2", "2"), WIDGET)
        bed.patch_capacity("replace", WIDGET, "3")
        await bed.counted(("3", "3"), WIDGET)
        bed.patch_capacity("remove", WIDGET)
        await bed.counted((None, None), WIDGET)


async def test_the_kubelet_admits_by_what_the_node_has_now(short_dir: Path) -> None:
    """C99: what was never advertised is not looked at; what was removed neither."""

    def of_widgets(name: str) -> dict[str, object]:
        wants: dict[str, object] = {"name": "c", "image": "i", "resources": {"limits": {WIDGET: "3"}}}
        return manifest(name, wants)

    async with node(short_dir) as bed:
        bed.put(of_widgets("before"))
        await bed.running("before")
        bed.registry.delete(PODS, "default", "before")
        await bed.gone("before")
        bed.patch_capacity("add", WIDGET, "2")
        bed.put(of_widgets("too-many"))
        pod = await bed.ended("too-many")
        assert pod["status"]["reason"] == f"OutOf{WIDGET}"
        assert pod["status"]["message"].endswith(f"{WIDGET}, requested: 3, used: 0, capacity: 2")
        bed.patch_capacity("remove", WIDGET)
        bed.put(of_widgets("after"))
        await bed.running("after")


async def test_a_resource_whose_plugin_is_long_gone_stays_with_0_until_somebody_removes_it(
    short_dir: Path,
) -> None:
    clock = Clock()
    settings = KubeletSettings(clock=clock)
    async with node(short_dir, settings=settings, heartbeat_seconds=0.02) as bed:
        async with registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
            await bed.counted(("1", "1"))
        await bed.counted(("1", "0"))
        clock.seconds += 301
        await bed.counted(("0", "0"))
        bed.patch_capacity("remove", RESOURCE)
        await bed.counted((None, None))


async def test_a_resource_whose_plugin_is_gone_stays_with_0_over_starts_of_the_kubelet(
    short_dir: Path,
) -> None:
    """The checkpoint remembers its name until a kubelet has run for five minutes without the plugin."""
    clock = Clock()
    settings = KubeletSettings(clock=clock)
    async with node(short_dir, settings=settings, heartbeat_seconds=0.02) as bed:
        async with registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
            await bed.counted(("1", "1"))
        for _ in range(2):
            clock.seconds += 299
            await bed.agent.restart_kubelet()
            await bed.counted(("0", "0"))
            bed.patch_capacity("remove", RESOURCE)
            await bed.counted(("0", "0"))
        clock.seconds += 301
        await bed.kubelet.wait(lambda: RESOURCE not in bed.kubelet.device_manager.endpoints)
        bed.patch_capacity("remove", RESOURCE)
        await bed.counted((None, None))
        await bed.agent.restart_kubelet()
        assert bed.counts() == (None, None)


@pytest.mark.parametrize("anyio_backend", [BACKEND])
async def test_with_real_timing_a_nodes_status_follows_every_ten_seconds(short_dir: Path) -> None:
    """So after a start of the kubelet the scheduler sees 0, however soon the plugin is back."""
    async with (
        node(short_dir, like_real_timing=True) as bed,
        registered(bed.kubelet, healthy("Dev-1"), RESOURCE) as plugin,
    ):
        assert (bed.counts(), bed.kubelet.allocatable()) == ((None, None), {RESOURCE: 1})
        await bed.counted(("1", "1"))
        assert now() == 10
        bed.patch_capacity("add", WIDGET, "2")
        await passes(6)
        assert bed.counts(WIDGET) == ("2", None)

        await bed.agent.restart_kubelet()
        await plugin.die()
        await plugin.listen()
        await register(bed.kubelet, plugin, RESOURCE)
        assert (bed.counts(), bed.kubelet.allocatable()) == (("0", "0"), {RESOURCE: 1, WIDGET: 2})
        assert bed.counts(WIDGET) == ("2", "2")
        await bed.counted(("1", "1"))
        assert now() == 26


async def test_labels_and_taints_of_people_stay(short_dir: Path) -> None:
    async with node(short_dir) as bed:
        patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": True}}
        bed.registry.patch(NODES, "", WORKER, "application/merge-patch+json", patch)
        async with registered(bed.kubelet, healthy("Dev-1"), RESOURCE):
            await bed.counted(("1", "1"))
        assert bed.node["metadata"]["labels"]["a"] == "b"
        assert bed.node["spec"]["unschedulable"] is True


async def test_a_node_that_is_deleted_is_made_again_at_the_next_start(short_dir: Path) -> None:
    async with node(short_dir, heartbeat_seconds=0.02) as bed:
        bed.registry.delete(NODES, "", WORKER)
        bed.put(manifest("a", container()))
        await bed.running("a")
        assert bed.registry.find(NODES, "", WORKER) is None
        await bed.agent.restart_kubelet()
        await bed.node_is(lambda one: "capacity" in one.get("status", {}))


async def test_a_beat_renews_the_lease_and_writes_no_status_that_says_nothing_new(short_dir: Path) -> None:
    time = FakeTime()
    async with node(short_dir, heartbeat_seconds=0.02, time=time) as bed:
        version = bed.node["metadata"]["resourceVersion"]
        time.advance(10)
        lease = await bed.leased("2026-11-21T00:22:09.000000Z")
        assert lease["metadata"]["namespace"] == LEASE_NAMESPACE
        assert lease["spec"]["holderIdentity"] == WORKER
        assert bed.node["metadata"]["resourceVersion"] == version
        time.advance(300)
        await bed.node_is(lambda one: one["metadata"]["resourceVersion"] != version)


async def test_a_kubelet_that_crashes_leaves_the_node_unknown_until_it_is_started_again(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def ready(one: Any) -> tuple[str, str]:
        return next((c["status"], c["reason"]) for c in one["status"]["conditions"] if c["type"] == "Ready")

    caplog.set_level(logging.CRITICAL)
    async with node(short_dir) as bed, registered(bed.kubelet, healthy("Dev-1"), RESOURCE) as plugin:

        async def vanishes(_: object) -> list[ContainerResponse]:
            plugin.send(())
            await bed.kubelet.wait(lambda: not bed.kubelet.devices(RESOURCE))
            return [ContainerResponse()]

        plugin.on_allocate = vanishes
        bed.put(manifest("fatal"))
        one = await bed.node_is(lambda one: ready(one)[0] != "True")
        assert ready(one) == ("Unknown", "NodeStatusUnknown")
        assert "devplug sandbox restart-kubelet" in await bed.told(WORKER, "KubeletCrashed")
        bed.put(manifest("waits", container()))
        await bed.agent.restart_kubelet()
        await bed.running("waits")
        await bed.node_is(lambda one: ready(one) == ("True", "KubeletReady"))
        assert bed.get("fatal")["status"]["reason"] == "UnexpectedAdmissionError"


def test_a_status_is_due_when_more_than_its_heartbeats_has_changed() -> None:
    facts = facts_of_this_machine(WORKER, internal_ip="192.0.2.1")
    none = Capacity({}, {}, ())
    old = status_of({}, facts, none, START)
    assert old["addresses"] == [
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "Hostname", "address": WORKER},
    ]
    time = FakeTime()
    time.advance(299)
    assert not is_due(old, status_of(old, facts, none, time.now), time.now)
    assert is_due(old, status_of(old, facts, Capacity({RESOURCE: 1}, {}, ()), time.now), time.now)
    time.advance(1)
    assert is_due(old, status_of(old, facts, none, time.now), time.now)


def test_a_condition_of_somebody_else_does_not_make_a_status_due() -> None:
    facts = facts_of_this_machine(WORKER, internal_ip="192.0.2.1")
    none = Capacity({}, {}, ())
    old = status_of({}, facts, none, START)
    foreign = {"type": "DevicesReady", "status": "True", "lastHeartbeatTime": "2001-01-01T00:00:00Z"}
    old = {**old, "conditions": [*old["conditions"], foreign]}  # type: ignore[misc]  # a list
    assert not is_due(old, status_of(old, facts, none, START), START)
