"""Random nodes and pods, and a scheduler that does the obvious: it looks at each node, and at all of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from random import Random

from devplug.sandbox.scheduler.filters import (
    preferred_weight,
    resources_refusal,
    static_refusal,
    unwanted_taints,
)
from devplug.sandbox.scheduler.groups import tie_rank
from devplug.sandbox.scheduler.scores import ScoringSettings, Strategy
from devplug.sandbox.scheduler.types import (
    CPU,
    MEMORY,
    NAME_FIELD,
    NO_SCHEDULE,
    PODS,
    PREFER_NO_SCHEDULE,
    Node,
    Preference,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
)

GPU, NIC, FPGA = "example.com/gpu", "example.com/nic", "example.com/fpga"

GIB = 2**30


def truncated(numerator: int, denominator: int) -> int:
    """Divide as Go does."""
    return int(Fraction(numerator, denominator))


@dataclass
class Naive:
    """Filters every node, scores every node, picks the best: schedule_one.go and no cleverness."""

    settings: ScoringSettings = field(default_factory=ScoringSettings)
    seed: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[Shape, str]] = field(default_factory=dict)

    def on(self, name: str) -> list[Shape]:
        return [shape for shape, node_name in self.pods.values() if node_name == name]

    def requested(self, name: str) -> dict[str, int]:
        sums: dict[str, int] = {}
        for shape in self.on(name):
            for resource, amount in shape.requests:
                sums[resource] = sums.get(resource, 0) + amount
        return sums

    def refused(self, shape: Shape, node: Node) -> bool:
        pods, requested = len(self.on(node.name)), self.requested(node.name)
        refusals = static_refusal(shape, node), resources_refusal(shape, node.allocatable, requested, pods)
        return any(refusal is not None for refusal in refusals)

    def choose(self, shape: Shape) -> str | None:
        return next(iter(self.ranked(shape)), None)

    def ranked(self, shape: Shape) -> list[str]:
        fitting = [node for node in self.nodes.values() if not self.refused(shape, node)]
        if not fitting:
            return []
        taints = {node.name: unwanted_taints(shape, node.taints) for node in fitting}
        weights = {node.name: preferred_weight(shape, node) for node in fitting}
        worst, best = max(taints.values()), max(weights.values())

        def total(node: Node) -> int:
            tainted = 100 - (100 * taints[node.name] // worst if worst else 0)
            liked = 100 * weights[node.name] // best if best else 0
            return 3 * tainted + 2 * liked + self.resources(shape, node) + self.balance(shape, node)

        fitting.sort(key=lambda node: (-total(node), tie_rank(self.seed, node.name)))
        return [node.name for node in fitting]

    def resources(self, shape: Shape, node: Node) -> int:
        wants = {**dict(shape.requests), CPU: shape.scored_cpu, MEMORY: shape.scored_memory}
        used = self.requested(node.name)
        used[CPU] = sum(one.scored_cpu for one in self.on(node.name))
        used[MEMORY] = sum(one.scored_memory for one in self.on(node.name))
        total = weights = 0
        for name, weight in self.settings.resources:
            whole = node.allocatable.get(name, 0)
            if not whole or ("/" in name and not wants.get(name)):
                continue
            after = used.get(name, 0) + wants.get(name, 0)
            if self.settings.strategy is Strategy.LEAST_ALLOCATED:
                score = 0 if after > whole else (whole - after) * 100 // whole
            elif self.settings.strategy is Strategy.MOST_ALLOCATED:
                score = min(after, whole) * 100 // whole
            else:
                score = self.on_points(100 if after > whole else after * 100 // whole)
                if not score:
                    continue
            total, weights = total + weight * score, weights + weight
        if not weights:
            return 0
        if self.settings.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO:
            return math.floor(Fraction(total, weights) + Fraction(1, 2))
        return total // weights

    def on_points(self, use: int) -> int:
        points = [(at, score * 10) for at, score in self.settings.points]
        if use <= points[0][0]:
            return points[0][1]
        for (left, low), (right, high) in pairwise(points):
            if use <= right:
                return low + truncated((high - low) * (use - left), right - left)
        return points[-1][1]

    def balance(self, shape: Shape, node: Node) -> int:
        wants, used = dict(shape.requests), self.requested(node.name)
        names = [
            name
            for name in self.settings.balanced
            if node.allocatable.get(name, 0) and ("/" not in name or wants.get(name))
        ]
        if not any(wants.get(name) for name in self.settings.balanced):
            return 0

        def spread(amounts: Iterable[tuple[int, int]]) -> int:
            parts = [min(1.0, use / whole) for use, whole in amounts]
            if len(parts) == 2:
                return int((1 - abs((parts[0] - parts[1]) / 2)) * 100)
            if len(parts) < 3:
                return 100
            mean = 0.0
            for part in parts:
                mean += part
            mean /= len(parts)
            squares = 0.0
            for part in parts:
                squares += (part - mean) * (part - mean)
            return int((1 - math.sqrt(squares / len(parts))) * 100)

        before = spread([(used.get(name, 0), node.allocatable[name]) for name in names])
        after = spread([(used.get(name, 0) + wants.get(name, 0), node.allocatable[name]) for name in names])
        return 50 + truncated(50 + after - before, 2)


# ── random clusters ──

_ZONES = ("a", "b", "c")
_TAINTS = (
    Taint("dedicated", "gpu"),
    Taint("dedicated", "gpu", PREFER_NO_SCHEDULE),
    Taint("old", "", PREFER_NO_SCHEDULE),
    Taint("gone", "", "NoExecute"),
)
_TOLERATIONS = (
    Toleration("dedicated", "Equal", "gpu"),
    Toleration("dedicated", "Exists", effect=NO_SCHEDULE),
    Toleration("old", "Exists"),
    Toleration(operator="Exists"),
    Toleration("node.kubernetes.io/unschedulable", "Exists"),
)


def some_node(rng: Random, number: int) -> Node:
    cores = rng.choice((4, 8, 15, 16))
    allocatable = {
        CPU: cores * 1000 - rng.choice((0, 0, 37)),
        MEMORY: cores * rng.choice((2, 4)) * GIB,
        PODS: rng.choice((2, 5, 110)),
    }
    for name in (GPU, NIC, FPGA):
        if rng.random() < 0.5:
            allocatable[name] = rng.choice((0, 1, 2, 4, 8))
    if rng.random() < 0.05:
        del allocatable[rng.choice((CPU, MEMORY))]
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "zone": rng.choice(_ZONES),
        "generation": str(rng.randrange(4)),
    }
    if rng.random() < 0.2:
        del labels[rng.choice(("zone", "generation"))]
    taints = tuple(one for one in _TAINTS if rng.random() < 0.15)
    return Node(f"node-{number}", labels, taints, rng.random() < 0.1, allocatable)


def some_term(rng: Random, nodes: int) -> Term:
    expressions = [
        rng.choice(
            (
                Requirement("zone", "In", tuple(rng.sample(_ZONES, 2))),
                Requirement("zone", "NotIn", (rng.choice(_ZONES),)),
                Requirement("zone", rng.choice(("Exists", "DoesNotExist"))),
                Requirement("generation", rng.choice(("Gt", "Lt")), (str(rng.randrange(4)),)),
                Requirement("kubernetes.io/hostname", "In", (f"node-{rng.randrange(nodes)}",)),
            )
        )
        for _ in range(rng.randrange(3))
    ]
    fields = [
        Requirement(NAME_FIELD, rng.choice(("In", "NotIn")), (f"node-{rng.randrange(nodes + 1)}",))
        for _ in range(rng.random() < 0.1)
    ]
    return Term(tuple(expressions), tuple(fields))


def some_shape(rng: Random, nodes: int) -> Shape:
    requests = {}
    if rng.random() < 0.8:
        requests[CPU] = rng.choice((0, 50, 250, 1000, 2500, 9000))
    if rng.random() < 0.8:
        requests[MEMORY] = rng.choice((GIB // 8, GIB // 2, GIB, 5 * GIB, 20 * GIB))
    for name in (GPU, NIC, FPGA):
        if rng.random() < 0.25:
            requests[name] = rng.choice((1, 1, 2))
    return Shape.asking(
        requests,
        node_selector={"zone": rng.choice(_ZONES)} if rng.random() < 0.15 else None,
        required=tuple(some_term(rng, nodes) for _ in range(rng.randrange(1, 3)))
        if rng.random() < 0.15
        else None,
        preferred=tuple(
            Preference(rng.choice((1, 10, 100)), some_term(rng, nodes)) for _ in range(rng.randrange(1, 3))
        )
        if rng.random() < 0.2
        else (),
        tolerations=tuple(one for one in _TOLERATIONS if rng.random() < 0.15),
        node_name=f"node-{rng.randrange(nodes)}" if rng.random() < 0.03 else "",
    )


def some_settings(rng: Random) -> ScoringSettings:
    if rng.random() < 0.4:
        return ScoringSettings()
    resources = [(CPU, rng.choice((1, 3))), (MEMORY, 1)]
    if rng.random() < 0.5:
        resources.append((GPU, rng.choice((1, 5, 100))))
    if rng.random() < 0.3:
        resources.append((NIC, 1))
    if rng.random() < 0.2:
        resources = resources[2:] or [(FPGA, 1)]
    balanced = rng.choice(((CPU, MEMORY), (CPU, MEMORY), (CPU, MEMORY, GPU), (GPU, NIC), (CPU,)))
    points = rng.choice((((0, 0), (100, 10)), ((0, 10), (100, 0)), ((0, 2), (30, 9), (70, 1), (90, 4))))
    return ScoringSettings(
        strategy=rng.choice(list(Strategy)), resources=tuple(resources), points=points, balanced=balanced
    )
