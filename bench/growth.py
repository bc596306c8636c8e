"""Our kubelet at several sizes, and how much longer it takes on the larger ones.

Each node has a process of its own (`node`), and all of them are measured in turns, so that the same noise
hits all. No time is bounded here, only how many times another time of the same run it is.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from bench.node import Node, NodeFigures
from bench.report import Bound, Figure, Report, by_row, median, percentile, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MEGABYTE = 1_000_000

ROUNDS = 3

WANTED = {"one resource": (1,), "four resources": (1, 1, 1, 1)}
"""How many devices a pod wants of each resource."""

SIZES = {
    "100 · 20": (100, 20),
    "1,000 · 50": (1_000, 50),
    "10,000 · 50": (10_000, 50),
    "10,000 · 500": (10_000, 500),
}
"""How many devices and pods there are."""

GROWTH = 10
"""How many times larger one size is than the other: what grows in proportion takes so many times as long."""

GROWTHS = (
    (f"{GROWTH} × the devices", "10,000 · 50", "1,000 · 50"),
    (f"{GROWTH} × the pods", "10,000 · 500", "10,000 · 50"),
)

PLACES = 8
"""On how many NUMA nodes the devices are, where there are several."""

LARGE, SMALL = "36 NUMA nodes", "1 NUMA node"

MACHINES = {LARGE: (36, PLACES), SMALL: (1, 1)}
"""How many NUMA nodes there are, and how many have devices."""

POLICIES = {
    "restricted": ("restricted", False),
    "restricted, closest nodes": ("restricted", True),
    "single-numa-node": ("single-numa-node", False),
}

STALL = 10
"""How many times as long as on one NUMA node an admission may take before people call it stuck."""


class NodeError(Exception):
    """A node could not be measured; the text says why."""


@dataclass(slots=True)
class Samples:
    """What was measured of one node so far; a failure ends it."""

    node: Node
    found: list[NodeFigures] = field(default_factory=list)
    wanted: int = 0
    failure: str = ""

    async def take(self) -> None:
        """Measure once more."""
        self.wanted += self.node.admissions
        if not self.failure:
            try:
                self.found.append(await measured(self.node))
            except NodeError as error:
                self.failure = str(error)

    def admissions(self) -> list[float]:
        """Return the times of all admissions to the full node."""
        return [seconds for one in self.found for seconds in one.admission_seconds]

    def figures(self, what: str) -> list[Figure]:
        """Return what a node's size may change."""
        rates = [self.node.pods / one.fill_seconds for one in self.found]
        lists = [seconds for one in self.found for seconds in one.list_seconds]
        sizes = [one.memory_bytes / MEGABYTE for one in self.found]
        return [
            Figure(f"{what}: pods per second", "", middle(rates), self.failure),
            *spread(f"{what}: admission", self.admissions(), self.wanted, self.failure),
            median(f"{what}: PodResources List, median", lists, self.failure),
            Figure(f"{what}: resident for it (RSS)", "MB", middle(sizes), self.failure),
        ]


def middle(values: list[float]) -> float | None:
    """Return the median, or None without values."""
    return percentile(values, 50) if values else None


def ratio(samples: Samples, others: Samples) -> float | None:
    """Return how many times as long as on the other node a typical admission takes."""
    match middle(samples.admissions()), middle(others.admissions()):
        case float(mine), float(other):
            return mine / other
    return None


async def measured(node: Node) -> NodeFigures:
    """Measure a node in a process of its own."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.node", json.dumps(asdict(node))),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await child.communicate()
    if child.returncode:
        last_words = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise NodeError(last_words or f"it ended with code {child.returncode}")
    found = NodeFigures(**json.loads(output))
    if found.refusal:
        raise NodeError(found.refusal)
    return found


async def in_turns(nodes: Iterable[Node], rounds: int) -> list[Samples]:
    """Measure each node so many times."""
    samples = [Samples(node) for node in nodes]
    for _ in range(rounds):
        for mine in samples:
            await mine.take()
    return samples


async def measure_growth(rounds: int = ROUNDS) -> Report:
    """Measure how admissions, lists and memory grow with devices and pods."""
    asked = {
        (kind, size): Node(devices, pods, wanted, PLACES, PLACES)
        for kind, wanted in WANTED.items()
        for size, (devices, pods) in SIZES.items()
    }
    samples = dict(zip(asked, await in_turns(asked.values(), rounds), strict=True))
    return growth_report(samples)


def growth_report(samples: Mapping[tuple[str, str], Samples]) -> Report:
    """Return the report on all sizes of nodes: time may grow as the size does."""
    return Report(
        [*SIZES],
        [row for kind in WANTED for row in by_row(samples[kind, size].figures(kind) for size in SIZES)],
        heading="our kubelet, devices · pods",
        bounds=[
            Bound(f"{kind}: {what}, admission", ratio(samples[kind, large], samples[kind, small]), GROWTH)
            for kind in WANTED
            for what, large, small in GROWTHS
        ],
    )


async def measure_places(rounds: int = ROUNDS) -> Report:
    """Measure what it costs to place pods on a machine of many NUMA nodes."""
    asked = {
        (kind, machine): Node(
            devices=3 * 64,
            wanted=(1, 2, 4),
            pods=8,
            numa_nodes=numa_nodes,
            device_nodes=device_nodes,
            policy=policy,
            prefers_closest=prefers_closest,
        )
        for kind, (policy, prefers_closest) in POLICIES.items()
        for machine, (numa_nodes, device_nodes) in MACHINES.items()
    }
    samples = dict(zip(asked, await in_turns(asked.values(), rounds), strict=True))
    return places_report(samples)


def places_report(samples: Mapping[tuple[str, str], Samples]) -> Report:
    """Return the report on machines of one and of many NUMA nodes: no admission may be stuck."""
    return Report(
        [*MACHINES],
        [
            row
            for kind in POLICIES
            for row in by_row(samples[kind, machine].figures(kind)[:3] for machine in MACHINES)
        ],
        heading=f"our kubelet, three resources, devices on {PLACES} NUMA nodes",
        bounds=[
            Bound(f"{kind}: admission", ratio(samples[kind, LARGE], samples[kind, SMALL]), STALL)
            for kind in POLICIES
        ],
    )
