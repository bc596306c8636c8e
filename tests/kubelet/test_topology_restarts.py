"""Topology hints over errors, restarts and crashes of the kubelet."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.errors import KubeletCrashError, KubeletError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.kubelet.topology import NodeHardware, NumaNode, Policy, Scope, TopologySettings
from tests.kubelet.fakes import Devices, FakePlugin, pod, refuse, register, registered, running
from tests.kubelet.numa import EVERY_POLICY, EVERY_SCOPE, PLACING, on, outcome, two_nodes


@pytest.mark.parametrize("policy", EVERY_POLICY)
async def test_an_error_of_allocation_is_no_matter_of_topology(short_dir: Path, policy: Policy) -> None:
    async with two_nodes(short_dir, on(a=0), policy) as (kubelet, plugin):
        plugin.on_allocate = refuse
        status = await kubelet.admit(pod("u"))
        assert status.reason == "UnexpectedAdmissionError"
        assert "rpc error: code = Unknown desc = boom" in status.message


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy.NONE, "UnexpectedAdmissionError"),
        (Policy.BEST_EFFORT, "UnexpectedAdmissionError"),
        (Policy.RESTRICTED, "TopologyAffinityError"),
        (Policy.SINGLE_NUMA_NODE, "TopologyAffinityError"),
    ],
)
def test_too_few_devices_are_a_matter_of_topology_to_a_strict_policy(
    short_dir: Path, policy: Policy, reason: str
) -> None:
    """C49: the counts are told only where nobody asks first whether there is a place."""
    assert outcome(short_dir, on(a=0), pod("u", 2), policy=policy) == ([reason], [])


async def back(kubelet: Kubelet, plugin: FakePlugin, devices: Devices) -> None:
    """Let a plugin make its socket again and register with these devices."""
    await plugin.die()
    plugin.devices = devices
    await plugin.listen()
    await register(kubelet, plugin)


@pytest.mark.parametrize("scope", EVERY_SCOPE)
@pytest.mark.parametrize("policy", PLACING)
async def test_pods_are_admitted_again_where_they_were(short_dir: Path, policy: Policy, scope: Scope) -> None:
    """After a reboot with the plugin first: hints come from the devices that each container has."""
    devices = on(a=0, b=0, c=1)
    async with two_nodes(short_dir, devices, policy, scope) as (kubelet, plugin):
        for uid, count in (("u", 2), ("v", 1)):
            await kubelet.run_pod(pod(uid, count))
        held = kubelet.allocations()
        assert [one.device_ids for one in held] == [("a", "b"), ("c",)]
        await kubelet.restart(reboot=True, with_pods=False)
        await back(kubelet, plugin, devices)
        await kubelet.readmit()
        assert [kubelet.pod(uid).is_terminal for uid in "uv"] == [False, False]
        assert (kubelet.allocations(), len(plugin.called("Allocate"))) == (held, 2)


@pytest.mark.parametrize("policy", PLACING)
async def test_running_pods_outlast_a_restart_without_their_plugin_under_every_policy(
    short_dir: Path, policy: Policy
) -> None:
    """C73: until the plugin is back no device of the resource has a NUMA node, so nobody cares."""
    async with two_nodes(short_dir, on(a=0), policy) as (kubelet, _):
        before = await kubelet.run_pod(pod("u"))
        await kubelet.restart()
        assert kubelet.pod("u") == before


@pytest.mark.parametrize("compat", [True, False])
async def test_a_held_device_that_a_plugin_does_not_list_any_more_crashes_the_kubelet(
    short_dir: Path, compat: bool
) -> None:
    async with two_nodes(short_dir, on(a=0, b=1), Policy.BEST_EFFORT, compat=compat) as (kubelet, plugin):
        await kubelet.run_pod(pod("u"))
        await kubelet.restart(reboot=True, with_pods=False)
        await back(kubelet, plugin, on(z=0))
        if not compat:
            await kubelet.readmit()
            assert "previously allocated devices are no longer healthy" in kubelet.pod("u").message
            return
        with pytest.raises(KubeletCrashError, match="generateDeviceTopologyHints"):
            await kubelet.readmit()
        await plugin.streams(0)
        assert not kubelet.is_running
        with pytest.raises(KubeletError, match="not running"):
            await kubelet.admit(pod("v"))
        assert not kubelet.pod("u").is_terminal


async def test_a_crash_leaves_the_pod_for_the_next_kubelet(short_dir: Path) -> None:
    """Distances and node numbers with a gap, which 1.36 does not survive."""
    gap = NodeHardware((NumaNode(0, (10, 20)), NumaNode(2, (20, 10))))

    topology = TopologySettings(Policy.RESTRICTED, options={"prefer-closest-numa-nodes": "true"})
    async with running(short_dir, machine=gap, topology=topology) as kubelet:
        async with registered(kubelet, on(a=0, b=2)):
            with pytest.raises(KubeletCrashError, match="NUMADistances"):
                await kubelet.admit(pod("u"))
        assert (kubelet.pod("u").phase, kubelet.events) == (PodPhase.PENDING, [])
        # The plugin is not back: the resource is known from the checkpoint, and without devices.
        await kubelet.restart()
        assert "no healthy devices present" in kubelet.pod("u").message


def test_a_plugins_devices_on_no_node_of_this_machine_do_not_harm_others(short_dir: Path) -> None:
    """Such as -1, which the kernel says of a device without a node, and many a plugin repeats."""
    devices = on(a=-1, b=7, c=1)
    reasons, calls = outcome(short_dir, devices, pod("u"), pod("v"), policy=Policy.RESTRICTED)
    assert (reasons, calls) == (["", "TopologyAffinityError"], [("c",)])


@pytest.mark.parametrize("scope", EVERY_SCOPE)
async def test_hints_count_the_devices_of_ended_pods_as_free(short_dir: Path, scope: Scope) -> None:
    """C71: asking for hints frees them, also where the pod is then refused."""
    async with two_nodes(short_dir, on(a=0, b=1), Policy.SINGLE_NUMA_NODE, scope) as (kubelet, _):
        await kubelet.run_pod(pod("u"))
        kubelet.end_pod("u")
        assert (await kubelet.admit(pod("v", 2))).reason == "TopologyAffinityError"
        assert kubelet.allocations() == ()
