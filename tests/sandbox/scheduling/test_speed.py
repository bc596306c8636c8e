"""The scheduler measured: a small cluster here, to see that every figure is had."""

from __future__ import annotations

from random import Random

import pytest

from bench.scheduling import (
    LEAST_PODS_PER_SECOND,
    PICKY,
    STRATEGIES,
    Timing,
    scheduling_report,
    shapes,
    timed,
)
from devplug.sandbox.scheduling.values import Shape


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
