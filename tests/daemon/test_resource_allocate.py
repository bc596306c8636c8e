"""What a container gets of the file's devices, and which devices it cannot have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug import Device
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ClaimedResource, ConfiguredPlugin
from devplug.devices import DeviceNode, HealthState
from devplug.errors import UnhealthyDeviceError
from devplug.holds.ownership import Claims
from devplug.kubelet.pods import PodPhase
from tests.daemon.hosts import char_node, link, needs_mknod, resource
from tests.daemon.served import (
    allocatable,
    behind_a_link,
    container,
    look_again,
    plugin,
    refusal,
    serving,
    table,
)
from tests.kubelet.fakes import RESOURCE, pod
from tests.virtualtime import in_virtual_time, now, passes

# ── Allocate ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_container_gets_what_the_file_says(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    link(short_dir / "by-id" / "x1")
    one = plugin(
        short_dir,
        'expose: {containerPath: "/dev/serial{index}", permissions: r, env: {PORTS: "{containerPaths}"}}',
    )
    async with serving(short_dir, one) as kubelet:
        got = await container(kubelet, 2)
        assert got.device_nodes == (
            DeviceNode(short_dir / "by-id" / "x0", "/dev/serial0", "r"),
            DeviceNode(short_dir / "by-id" / "x1", "/dev/serial1", "r"),
        )
        assert got.envs == {"PORTS": "/dev/serial0,/dev/serial1"}


async def test_a_device_that_has_vanished_is_refused_by_name(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        (short_dir / "by-id" / "x0").unlink()
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        assert await refusal(short_dir, "x0") == (
            'FailedPrecondition allocate: device "x0" is unhealthy (unplugged); '
            "delete and recreate the pod to get another device"
        )


async def test_a_claim_that_tolerates_it_gets_a_sick_device_and_none_that_is_not_there(
    short_dir: Path,
) -> None:
    link(short_dir / "by-id" / "x0")
    one = ClaimedResource(plugin(short_dir, "health: [{exec: {command: [/bin/false]}}]").resource)
    async with aclosing(one.devices()) as lists:
        async for (device,) in lists:
            if device.health.reason == "unplugged":
                break
            got = await one.allocate([device])
            assert device.health.state is HealthState.UNHEALTHY
            assert [node.container_path for node in got.device_nodes] == [str(short_dir / "by-id" / "x0")]
            (short_dir / "by-id" / "x0").unlink()
        with pytest.raises(UnhealthyDeviceError, match="unplugged"):
            await one.allocate([device])


async def test_no_toleration_gets_a_device_that_another_container_may_have(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    claimed = replace(plugin(short_dir).resource, serve="dra")
    one = ClaimedResource(claimed, DaemonContext(claims_of=lambda _: Claims(lambda: frozenset({"x0::1"}))))
    async with aclosing(one.devices()) as lists:
        (device,) = await anext(lists)
        assert device.id == "x0::1"
        with pytest.raises(UnhealthyDeviceError, match="holds it by another number of replicas"):
            await one.allocate([Device("x0")])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: None, "node missing"),
        (lambda path: path.symlink_to("/dev/zero"), "its node is another device now"),
        (lambda path: path.touch(), "its node is no device node any more"),
    ],
    ids=["vanished", "another device", "a file"],
)
async def test_a_device_whose_node_changed_unseen_is_refused_by_name_and_unhealthy(
    short_dir: Path, change: Callable[[Path], object], reason: str
) -> None:
    middle = behind_a_link(short_dir, "/dev/null")
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        middle.unlink()
        change(middle)
        status = await kubelet.admit(pod("p"))
        assert (status.phase, status.reason) == (PodPhase.FAILED, "UnexpectedAdmissionError")
        assert (
            f'rpc error: code = FailedPrecondition desc = allocate: device "x0" is unhealthy ({reason}); '
            "delete and recreate the pod to get another device" in status.message
        )
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})


@needs_mknod
async def test_a_node_that_was_replaced_since_the_last_look_is_another_device(short_dir: Path) -> None:
    node = char_node(short_dir / "by-id" / "x0")
    one = plugin(short_dir)
    async for (device,) in one.devices():
        node.unlink()
        char_node(node, 1)
        with pytest.raises(UnhealthyDeviceError, match="its node is another device now"):
            await one.allocate([device])
        break


async def test_a_refused_device_is_healthy_again_when_the_next_look_shows_it_as_it_was(
    short_dir: Path,
) -> None:
    """As after an Allocate that came into the gap of an unplug and a plug."""
    middle = behind_a_link(short_dir)
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        middle.unlink()
        await kubelet.admit(pod("p"))
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        link(middle)
        look_again(short_dir)
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})


@in_virtual_time
async def test_a_refused_device_that_is_there_after_all_is_healthy_again_without_an_event(
    short_dir: Path,
) -> None:
    middle = behind_a_link(short_dir)
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        middle.unlink()
        await kubelet.admit(pod("p"))
        link(middle)
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        refused = now()
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})
        assert now() < refused + 5.0


@asynccontextmanager
async def listed(one: ConfiguredPlugin) -> AsyncIterator[list[Sequence[Device]]]:
    """The lists of a plugin, as they come."""
    lists: list[Sequence[Device]] = []

    async def follow() -> None:
        async for devices in one.devices():
            lists.append(devices)  # noqa: PERF401 -- it never ends

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await passes(0.1)
        yield lists
        following.cancel()


@in_virtual_time
async def test_a_refused_device_is_listed_as_it_was_only_when_it_would_be_given_out(short_dir: Path) -> None:
    middle, one = behind_a_link(short_dir), plugin(short_dir)
    async with listed(one) as lists:
        middle.unlink()
        with pytest.raises(UnhealthyDeviceError, match="node missing"):
            await one.allocate(lists[0])
        await passes(10.0)
        assert len(lists) == 1
        link(middle)
        await passes(1.0)
        assert lists == [lists[0], lists[0]]


@in_virtual_time
async def test_a_list_that_comes_between_a_refusal_and_its_mark_is_not_the_last_one(short_dir: Path) -> None:
    middle, one = behind_a_link(short_dir), plugin(short_dir)
    async with listed(one) as lists:
        middle.unlink()
        with pytest.raises(UnhealthyDeviceError, match="node missing"):
            await one.allocate(lists[0])
        one.held.changed.set()
        await passes(0.1)
        assert [device.health.reason for device in lists[1]] == ["node missing"]
        link(middle)
        one.held.changed.set()
        await passes(0.1)
        assert lists == [lists[0], lists[1], lists[0]]
        await passes(1.0)
        assert lists == [lists[0], lists[1], lists[0], lists[0]]


# ── sharing ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_shared_device_is_given_to_several_pods(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    async with serving(short_dir, plugin(short_dir, "share: {replicas: 2}")) as kubelet:
        for uid in ("p", "q"):
            assert (await kubelet.run_pod(pod(uid))).phase is PodPhase.RUNNING
        held = {id_ for held in kubelet.allocations() for id_ in held.device_ids}
        assert held == {"x0::0", "x0::1"}


async def test_a_container_that_asks_for_too_many_replicas_is_refused_in_words(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    one = plugin(short_dir, "share: {replicas: 4, maxPerContainer: 1}")
    async with serving(short_dir, one):
        assert await refusal(short_dir, "x0::0", "x0::1") == (
            "InvalidArgument allocate: 2 devices of example.com/a are asked for; one container may have 1"
        )


@pytest.mark.parametrize("name", ["x" * 62, "input3::capslock"])
async def test_a_shared_device_may_have_any_name(short_dir: Path, name: str) -> None:
    link(short_dir / "by-id" / name)
    async with serving(short_dir, plugin(short_dir, "share: {replicas: 20}")) as kubelet:
        assert allocatable(kubelet) == 20
        assert (await container(kubelet)).device_nodes == (DeviceNode(short_dir / "by-id" / name),)


async def test_a_device_with_two_colons_in_its_name_is_given_out(short_dir: Path) -> None:
    link(short_dir / "by-id" / "input3::capslock")
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        assert len((await container(kubelet)).device_nodes) == 1


async def test_a_device_without_hardware_is_given_out(short_dir: Path) -> None:
    one = resource('discover: {static: {ids: [s], numaNodes: {s: 1}}}, expose: {env: {IDS: "{ids}"}}')
    async with serving(short_dir, ConfiguredPlugin(one)) as kubelet:
        (listed,) = kubelet.devices(RESOURCE)
        assert listed.numa_nodes == (1,)
        assert (await container(kubelet)).envs == {"IDS": "s"}
