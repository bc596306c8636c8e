"""A machine with two NUMA nodes, devices on them, and pods that want some."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Pod
from devplug.kubelet.topology import NodeHardware, NumaNode, Policy, Scope, TopologySettings
from devplug.wire.values import AdvertisedDevice
from tests.kubelet.fakes import Devices, FakePlugin, Ids, served

TWO_NODES = NodeHardware((NumaNode(0, (10, 21)), NumaNode(1, (21, 10))))
EVERY_POLICY = list(Policy)
EVERY_SCOPE = list(Scope)
PLACING = [Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE]


def on(**nodes: int | tuple[int, ...] | None) -> Devices:
    """Healthy devices by ID, each on a NUMA node, on several or on none."""
    return tuple(
        AdvertisedDevice(device_id, "Healthy", (where,) if isinstance(where, int) else where)
        for device_id, where in nodes.items()
    )


def two_nodes(
    folder: Path, devices: Devices, policy: str, scope: str = Scope.CONTAINER, **rest: Any
) -> AbstractAsyncContextManager[tuple[Kubelet, FakePlugin]]:
    """A kubelet of a machine with two NUMA nodes, and a plugin with these devices."""
    topology = TopologySettings(policy, scope)
    return served(folder, devices, machine=TWO_NODES, topology=topology, **rest)


def outcome(
    folder: Path, devices: Devices, *pods: Pod, policy: str, scope: str = Scope.CONTAINER
) -> tuple[list[str], list[Ids]]:
    """Admit pods one after the other; return each one's reason (empty if admitted) and the Allocate calls."""

    async def scenario() -> tuple[list[str], list[Ids]]:
        async with two_nodes(folder, devices, policy, scope) as (kubelet, plugin):
            reasons = [(await kubelet.admit(one)).reason for one in pods]
            return reasons, plugin.called("Allocate")

    return asyncio.run(scenario())
