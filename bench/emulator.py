"""Times the kubelet's end: what an admission costs with few and with many devices and pods.

A real daemon of ours is the plugin. Each size is measured in a process of its own, so that its memory is its
own (`python -m bench.emulator DEVICES PODS`), and sizes take turns.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.process import running
from bench.report import Figure, Report, Row, percentile
from devplug.exchange import AdvertisedDevice
from devplug.kubelet.allocation import Ledger
from devplug.kubelet.hints import container_hints
from devplug.kubelet.machine import Machine, NumaNode
from devplug.kubelet.manager import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.resources import UNKNOWN, listed
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import TopologyRules, TopologySettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = "bench.devplug.io/one"
NODES = 8
MEGABYTE = 1_000_000
LIST_SECONDS = 30

DAEMON = str(Path(sys.executable).with_name("devplug"))


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is on a node."""

    devices: int
    pods: int

    def __str__(self) -> str:
        return f"{self.devices:,} / {self.pods}"


SIZES = (Size(10_000, 500), Size(1_000, 50))
"""Ten times as much of everything: an admission may take ten times as long, and no more."""


def configuration(devices: int) -> str:
    """Return a file with so many devices, spread over eight NUMA nodes."""
    ids = [f"device-{number:05}" for number in range(devices)]
    nodes = {device_id: number % NODES for number, device_id in enumerate(ids)}
    static = {"ids": ids, "numaNodes": nodes}
    return json.dumps({"version": 1, "resources": [{"name": NAME, "discover": {"static": static}}]})


# ── one size, in a process of its own ─────────────────────────────────────────────────────────────


async def admissions(size: Size) -> dict[str, float]:
    """Admit the pods one by one, under a topology policy; return the figures."""
    settings = KubeletSettings(
        machine=Machine(tuple(NumaNode(number) for number in range(NODES))),
        topology=TopologySettings("best-effort"),
    )
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as name:  # short: it holds sockets
        root = Path(name)
        (root / "config.yaml").write_text(configuration(size.devices))
        kubelet = Kubelet(root / "plugins", settings)
        command = [
            DAEMON,
            "run",
            "--config",
            str(root / "config.yaml"),
            "--plugin-dir",
            str(root / "plugins"),
        ]
        async with kubelet.running():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            async with running(command, root / "output"):
                async with asyncio.timeout(LIST_SECONDS):
                    await kubelet.wait(lambda: kubelet.allocatable().get(NAME) == size.devices)
                seconds = []
                for number in range(size.pods):
                    pod = Pod(f"uid-{number:05}", f"pod-{number}", containers=(Container("c", {NAME: 1}),))
                    began = time.perf_counter()
                    status = await kubelet.admit(pod)
                    seconds.append(time.perf_counter() - began)
                    assert not status.is_terminal, status
        return {
            "p50": percentile(seconds, 50) * 1000,
            "p99": percentile(seconds, 99) * 1000,
            "per second": len(seconds) / sum(seconds),
            "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / MEGABYTE,
        }


async def in_a_process(size: Size) -> dict[str, float]:
    """Return the figures of one size, measured in a process of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.emulator", str(size.devices), str(size.pods)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()
    if child.returncode:
        raise ChildProcessError(f"{size}: exit code {child.returncode}")
    figures: dict[str, float] = json.loads(output)
    return figures


# ── placing pods, without a socket ────────────────────────────────────────────────────────────────


def placement_ms(numa_nodes: int, policy: str, repeats: int = 20) -> float:
    """Return what hints and merge cost for a pod that wants three resources, each on eight of the nodes."""
    machine = Machine(tuple(NumaNode(number) for number in range(numa_nodes)))
    rules = TopologyRules.of(
        TopologySettings(policy, options={"max-allowable-numa-nodes": str(max(8, numa_nodes))}),
        machine,
    )
    used = range(numa_nodes)[:: max(1, numa_nodes // NODES)][:NODES]
    ledger = Ledger()
    names = [f"bench.devplug.io/{kind}" for kind in ("nic", "gpu", "fpga")]
    for name in names:
        devices = [
            AdvertisedDevice(f"{name}-{number}", "Healthy", (used[number % len(used)],))
            for number in range(64)
        ]
        ledger.update(name, listed(UNKNOWN, devices))
    container = Container("c", dict.fromkeys(names, 2))
    pod = Pod("uid", "pod", containers=(container,))
    numbers = [node.id for node in machine.numa_nodes]
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        rules.merge([container_hints(ledger, pod, container, numbers, compat=True)])
        seconds.append(time.perf_counter() - began)
    return percentile(seconds, 50) * 1000


# ── the tables ────────────────────────────────────────────────────────────────────────────────────


async def scaling(rounds: int = 3) -> Report:
    """Measure both sizes in turns; a ratio of ten is linear."""
    found: dict[Size, list[Mapping[str, float]]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            found[size].append(await in_a_process(size))
    rows = [
        ("admission, p50", "ms", "p50"),
        ("admission, p99", "ms", "p99"),
        ("admissions per second", "", "per second"),
        ("memory that devices and pods take", "MB", "memory"),
    ]
    return Report(
        [str(size) for size in SIZES],
        [
            Row(tuple(Figure(name, unit, _middle(found[size], key)) for size in SIZES))
            for name, unit, key in rows
        ],
        ["columns: devices / pods; ten times as much may take ten times as long and ten times the memory"],
    )


def placements() -> Report:
    """Measure the topology manager on a machine of 36 NUMA nodes, and on one of eight."""
    sizes = (36, 8)
    return Report(
        [f"{size} NUMA nodes" for size in sizes],
        [
            Row(
                tuple(
                    Figure(f"placing 3 resources, {policy}", "ms", placement_ms(size, policy))
                    for size in sizes
                ),
            )
            for policy in ("best-effort", "restricted", "single-numa-node")
        ],
        ["devices on eight of the nodes in both; what the others cost is the ratio above 1"],
    )


def _middle(runs: Sequence[Mapping[str, float]], key: str) -> float:
    return percentile([run[key] for run in runs], 50)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(admissions(Size(int(sys.argv[1]), int(sys.argv[2]))))))
