"""Placements: the same as of a scheduler that looks at each node, whatever happens in between."""

from __future__ import annotations

from random import Random

import pytest

from devplug.sandbox.scheduling.cluster import Cluster
from devplug.sandbox.scheduling.values import CPU, MEMORY, PODS, Node, Shape
from tests.sandbox.scheduling.beds import Naive, some_node, some_settings, some_shape

CLUSTERS, PARTS = 1000, 10


def play(number: int) -> None:
    """Let pods and nodes come, change and go, and compare each choice."""
    rng = Random(number)
    settings, count = some_settings(rng), rng.randrange(1, 13)
    cluster, naive = Cluster(settings, number), Naive(settings, number)
    shapes = [some_shape(rng, count) for _ in range(rng.randrange(1, 6))]
    for one in range(count):
        node = some_node(rng, one)
        cluster.put_node(node)
        naive.nodes[node.name] = node
    for step in range(rng.randrange(5, 30)):
        match rng.random():
            case luck if luck < 0.1 and naive.pods:
                gone = rng.choice(sorted(naive.pods))
                cluster.forget(gone)
                del naive.pods[gone]
            case luck if luck < 0.15:
                node = some_node(rng, rng.randrange(count))
                cluster.put_node(node)
                naive.nodes[node.name] = node
            case luck if luck < 0.18:
                name = f"node-{rng.randrange(count)}"
                cluster.remove_node(name)
                naive.nodes.pop(name, None)
            case luck if luck < 0.24:
                shape, name = rng.choice(shapes), f"node-{rng.randrange(count)}"  # by another scheduler
                cluster.assume(f"pod-{step}", shape, name)
                naive.pods[f"pod-{step}"] = (shape, name)
            case luck if luck < 0.28:
                shapes.append(some_shape(rng, count))
            case _:
                shape = rng.choice(shapes)
                chosen = cluster.choose(shape)
                assert chosen == naive.choose(shape), (number, step)
                diagnosis = cluster.diagnose(shape)
                refused = sum(naive.refused(shape, node) for node in naive.nodes.values())
                if not diagnosis.is_conflict:
                    assert sum(diagnosis.refusals.values()) == refused, (number, step)
                if chosen is not None:
                    cluster.assume(f"pod-{step}", shape, chosen)
                    naive.pods[f"pod-{step}"] = (shape, chosen)


@pytest.mark.parametrize("part", range(PARTS))
def test_placements_are_those_of_a_scheduler_that_looks_at_each_node(part: int) -> None:
    for number in range(part, CLUSTERS, PARTS):
        play(number)


@pytest.mark.parametrize("overweight", [{MEMORY: 2**60}, {CPU: 2**62}, {CPU: 2**62, MEMORY: 1}])
def test_a_pod_far_larger_than_every_node_goes_nowhere(overweight: dict[str, int]) -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.put_node(Node(f"n{number}", allocatable={CPU: 4000, MEMORY: 2**33, PODS: 110}))
    assert cluster.choose(Shape.asking(overweight)) is None
