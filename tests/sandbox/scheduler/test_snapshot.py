"""Placements: those of a scheduler that looks at each node, whatever happens in between; and their speed."""

from __future__ import annotations

from random import Random

import pytest

from bench.scheduler import (
    LEAST_CLAIMS_PER_SECOND,
    LEAST_PODS_PER_SECOND,
    PICKY,
    STRATEGIES,
    Timing,
    claims_report,
    scheduling_report,
    shapes,
    timed,
    timed_with_claims,
)
from devplug.sandbox.scheduler.snapshot import ClusterSnapshot
from devplug.sandbox.scheduler.types import CPU, MEMORY, PODS, Node, Shape
from tests.sandbox.scheduler.beds import Naive, some_node, some_settings, some_shape

CLUSTERS, PARTS = 1000, 10


def play(number: int) -> None:
    """Let pods and nodes come, change and go, and compare each choice."""
    rng = Random(number)
    settings, count = some_settings(rng), rng.randrange(1, 13)
    cluster, naive = ClusterSnapshot(settings, number), Naive(settings, number)
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
                chosen, ranked = cluster.choose(shape), naive.ranked(shape)
                assert chosen == next(iter(ranked), None), (number, step)
                assert [node.name for _, node in cluster.ranked(shape)] == ranked, (number, step)
                diagnosis = cluster.diagnose(shape)
                refused = sum(naive.refused(shape, node) for node in naive.nodes.values())
                if not diagnosis.refusal:
                    assert sum(diagnosis.refusals.values()) == refused, (number, step)
                if chosen is not None:
                    cluster.assume(f"pod-{step}", shape, chosen)
                    naive.pods[f"pod-{step}"] = (shape, chosen)


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=[pytest.mark.nightly] if n > 2 else []) for n in range(PARTS)]
)
def test_placements_are_those_of_a_scheduler_that_looks_at_each_node(part: int) -> None:
    for number in range(part, CLUSTERS, PARTS):
        play(number)


@pytest.mark.parametrize("overweight", [{MEMORY: 2**60}, {CPU: 2**62}, {CPU: 2**62, MEMORY: 1}])
def test_a_pod_far_larger_than_every_node_goes_nowhere(overweight: dict[str, int]) -> None:
    cluster = ClusterSnapshot()
    for number in range(3):
        cluster.put_node(Node(f"n{number}", allocatable={CPU: 4000, MEMORY: 2**33, PODS: 110}))
    assert cluster.choose(Shape.asking(overweight)) is None


def test_one_shape_of_five_looks_at_more_than_resources() -> None:
    found = shapes(Random(1))
    plain = [one for one in found if one == Shape.asking(dict(one.requests))]
    assert len(set(found)) == 500
    assert len(plain) == 500 - 500 // PICKY


@pytest.mark.parametrize("name", [None, *STRATEGIES])
def test_every_pod_of_a_cluster_is_decided_on(name: str | None) -> None:
    timing = timed(20, 300, STRATEGIES[name] if name else None)
    assert timing.pods == 300
    assert 0 <= timing.unplaced < 300
    assert timing.pods_per_second > 0


@pytest.mark.parametrize(("times", "holds"), [(1.1, True), (0.9, False)])
def test_too_few_pods_a_second_break_the_bound(times: float, *, holds: bool) -> None:
    timings = {"few": Timing(1, 1000.0, 1), "full": Timing(1000, 1000 / (times * LEAST_PODS_PER_SECOND), 0)}
    report = scheduling_report(timings, "full")
    assert [row.name for row in report.rows] == ["few", "full"]
    assert [row.figures[0].note for row in report.rows] == ["1 pods had no node", ""]
    assert report.is_good == holds


def test_every_pod_with_a_claim_is_decided_on() -> None:
    """10 devices a node: the last pods find none."""
    timing = timed_with_claims(20, 210)
    assert timing.pods == 210
    assert 10 <= timing.unplaced < 100
    assert timing.pods_per_second > 0


@pytest.mark.parametrize(("times", "holds"), [(1.1, True), (0.9, False)])
def test_too_few_pods_with_claims_a_second_break_the_bound(times: float, *, holds: bool) -> None:
    seconds = 1000 / (times * LEAST_CLAIMS_PER_SECOND)
    report = claims_report({100: Timing(100, seconds / 20, 0), 1000: Timing(1000, seconds, 1)})
    assert [row.figures[0].value for row in report.rows][2:] == [pytest.approx(2)]
    assert report.is_good == holds
