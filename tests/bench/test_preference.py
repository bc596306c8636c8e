"""Preferences measured: few devices here, to see that every figure is had."""

from __future__ import annotations

import pytest

from bench.preference import LIMIT_SECONDS, POLICIES, machine, preference_report, timed
from devplug.daemon.preference import closeness, spot_of


@pytest.mark.parametrize("policy", POLICIES)
def test_every_answer_is_timed(policy: str) -> None:
    seconds = timed(policy, rounds=2, devices=64, size=8)
    assert len(seconds) == 2
    assert min(seconds) > 0


def test_the_machine_is_one_of_switches_host_bridges_and_numa_nodes() -> None:
    gpus = machine(1024)
    assert [closeness(spot_of(gpus[0]), spot_of(gpus[other])) for other in (7, 8, 64, 512)] == [
        50,
        30,
        20,
        10,
    ]


@pytest.mark.parametrize(("times", "holds"), [(0.9, True), (1.1, False)])
def test_a_typical_answer_keeps_the_bound(times: float, *, holds: bool) -> None:
    report = preference_report({"linked": [0.001, times * LIMIT_SECONDS, 9]}, rounds=3)
    assert [row.name for row in report.rows] == ["linked, p50", "linked, p99"]
    assert [one.ratio for one in report.bounds] == [pytest.approx(times)]
    assert report.is_good == holds


def test_what_was_not_measured_keeps_no_bound() -> None:
    assert not preference_report({"linked": []}, rounds=3).is_good
