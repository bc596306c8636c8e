"""One node in a process of its own: our kubelet with plugins beside it, timed from inside.

`python -m bench.node JSON` makes the node that a JSON object describes, and prints what it found as another.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.devices import HEALTHY, ContainerResponse
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, NumaNode, Policy, TopologySettings
from devplug.wire import deviceplugin
from devplug.wire.podresources import LIST
from devplug.wire.sockets import Listener, connected, stream, unary
from devplug.wire.values import AdvertisedDevice, PluginOptions, RegisterRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

KEPT_BYTES = 64 * 1024 * 1024
"""What a monitor takes in one message: 500 pods are more than gRPC's default."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a node is like, and what is done there."""

    devices: int = 100
    """Of all resources together."""
    pods: int = 50
    wanted: tuple[int, ...] = (1,)
    """How many devices each pod wants of each resource."""
    numa_nodes: int = 1
    """How many NUMA nodes the machine has."""
    device_nodes: int = 1
    """On how many of them the devices are."""
    policy: str = Policy.NONE
    prefers_closest: bool = False
    admissions: int = 100
    """How many pods come to the full node, each after another has gone."""
    lists: int = 20

    def resources(self) -> dict[str, int]:
        """Return what each pod wants, by resource name."""
        return {f"bench.devplug.io/r{number}": count for number, count in enumerate(self.wanted)}

    def settings(self, folder: Path, clock: Clock) -> KubeletSettings:
        """Return the kubelet's settings. NUMA nodes are as far apart as their numbers."""
        ids = range(self.numa_nodes)
        nodes = (NumaNode(node, tuple(10 + abs(node - other) for other in ids)) for node in ids)
        options = {"max-allowable-numa-nodes": str(max(8, self.numa_nodes))}
        if self.prefers_closest:
            options["prefer-closest-numa-nodes"] = "true"
        return KubeletSettings(
            clock=clock,
            machine=NodeHardware(tuple(nodes)),
            topology=TopologySettings(self.policy, options=options),
            pod_resources_socket=folder / "pod-resources.sock",
        )


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """What was measured on a node."""

    fill_seconds: float
    """How long it took until all pods were there."""
    admission_seconds: list[float] = field(default_factory=list)
    """Each pod that came to the full node."""
    list_seconds: list[float] = field(default_factory=list)
    """Each call of PodResources List on the full node."""
    memory_bytes: int = 0
    """How much more was resident with the node full than before it was there."""
    refusal: str = ""
    """Why a pod was refused; nothing counts then."""


class Clock:
    """A clock on which a second passes whenever it is told so, so that no rate limit slows a call."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def plugged(folder: Path, resource_name: str, count: int, node: Node) -> AsyncIterator[None]:
    """Serve `count` devices of one resource, on the first NUMA nodes in turns."""
    socket = folder / f"{resource_name.rpartition('/')[2]}.sock"

    async def options(_: None) -> PluginOptions:
        return PluginOptions()

    async def list_and_watch(_: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        # Not kept: memory is counted in this process, and only the kubelet's is meant.
        yield [
            AdvertisedDevice(f"device-{number:05}", HEALTHY, (number % node.device_nodes,))
            for number in range(count)
        ]
        await asyncio.get_running_loop().create_future()

    async def allocate(containers: Sequence[tuple[str, ...]]) -> Sequence[ContainerResponse]:
        return [
            ContainerResponse(device_nodes=["/dev/null"], envs={"DEVICES": ",".join(ids)})
            for ids in containers
        ]

    bindings = (
        unary(deviceplugin.GET_OPTIONS, options),
        stream(deviceplugin.LIST_AND_WATCH, list_and_watch),
        unary(deviceplugin.ALLOCATE, allocate),
    )
    listener = Listener(socket, bindings)
    await listener.bind()
    try:
        async with connected(folder / "kubelet.sock") as kubelet:
            request = RegisterRequest("v1beta1", socket.name, resource_name)
            await kubelet.call(deviceplugin.REGISTER, request, timeout_seconds=15)
        yield
    finally:
        await listener.close()


async def measure(node: Node) -> NodeFigures:
    """Make the node, fill it with pods, and let pods come and go; it is gone afterwards."""
    clock, pod_count = Clock(), 0
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as name:  # short: it holds sockets
        folder = Path(name)
        kubelet = Kubelet(folder / "plugins", node.settings(folder, clock))

        async def admit() -> float:
            nonlocal pod_count
            pod = Pod(f"u{pod_count:06}", f"pod{pod_count}", containers=(Container("c", node.resources()),))
            pod_count += 1
            began = time.perf_counter()
            status = await kubelet.admit(pod)
            seconds = time.perf_counter() - began
            if status.is_terminal:
                raise RefusedError(status.message)
            return seconds

        async def list_pods() -> float:
            clock.seconds += 1
            async with connected(folder / "pod-resources.sock", receive_limit_bytes=KEPT_BYTES) as monitor:
                began = time.perf_counter()
                await monitor.call(LIST, None)
                return time.perf_counter() - began

        before = resident_bytes()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(kubelet.running())
            share = node.devices // len(node.wanted)
            for resource_name in node.resources():
                await stack.enter_async_context(plugged(kubelet.plugin_dir, resource_name, share, node))
            await kubelet.wait(lambda: sum(kubelet.allocatable().values()) == share * len(node.wanted))
            try:
                fill_seconds = sum([await admit() for _ in range(node.pods)])
                memory_bytes = resident_bytes() - before
                seconds = []
                for number in range(node.admissions):
                    kubelet.remove_pod(f"u{number:06}")
                    seconds.append(await admit())
            except RefusedError as error:
                return NodeFigures(0, refusal=str(error))
            return NodeFigures(
                fill_seconds, seconds, [await list_pods() for _ in range(node.lists)], memory_bytes
            )


class RefusedError(Exception):
    """A pod was refused; the text says why."""


def resident_bytes() -> int:
    """Return how much memory this process has, when what can be given up is given up."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


async def main(description: str) -> None:
    """Measure a node, after a small one for which everything is loaded that a kubelet needs."""
    given = json.loads(description)
    node = Node(**{**given, "wanted": tuple(given["wanted"])})
    await measure(Node(devices=8, pods=4, admissions=4, lists=1))
    print(json.dumps(asdict(await measure(node))))


if __name__ == "__main__":
    logging.disable()  # what the kubelet says is not what is timed
    asyncio.run(main(sys.argv[1]))
