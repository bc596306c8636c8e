"""The page of figures: each figure that it names is measured, and a target is met or missed as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.page import (
    CLAIMS,
    DRA_RESULTS,
    DRA_TARGETS,
    LEAST_PODS,
    RESULTS,
    SCHEDULING_RESULTS,
    Run,
    page,
)
from bench.transports import DAEMON, GO, GRPCIO

KEPT = Run.of_json(json.loads(RESULTS.read_text()))
SCHEDULING = Run.of_json(json.loads(SCHEDULING_RESULTS.read_text()))
DRA = Run.of_json(json.loads(DRA_RESULTS.read_text()))
RSS = "resident (RSS), 8 devices"


def with_value(value: float | None) -> Run:
    figure = {"unit": "MB", "values": {DAEMON: value, GRPCIO: 50.0, "floor": None}}
    return replace(KEPT, figures={RSS: figure})


def row(run: Run) -> str:
    return next(line for line in page(run, SCHEDULING, DRA).splitlines() if line.startswith(f"| {RSS} |"))


def test_every_figure_of_the_page_is_in_the_kept_run() -> None:
    assert {claim.name for claim in CLAIMS} <= set(KEPT.figures)
    assert set(LEAST_PODS) <= set(SCHEDULING.figures)
    assert set(DRA_TARGETS) <= set(DRA.figures)


@pytest.mark.parametrize(
    ("value", "end"),
    [
        (25.0, "| 25.0 MB | 50.0 MB | - | - | - | 0.50 | - | - | - | met |"),
        (28.0, "| 28.0 MB | 50.0 MB | - | - | - | 0.56 | - | - | - | met |"),
        (30.0, "| 30.0 MB | 50.0 MB | - | - | - | 0.60 | - | - | - | missed |"),
        (None, "| - | 50.0 MB | - | - | - | - | - | - | - | not measured |"),
    ],
)
def test_a_target_is_met_or_missed_or_not_measured(value: float | None, end: str) -> None:
    assert row(with_value(value)) == f"| {RSS} | ≤ 28 MB {end}"


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"), [(0.4, 0.5, "met"), (0.41, 0.5, "missed"), (0.4, None, "not measured")]
)
def test_a_target_may_be_a_multiple_of_what_another_needs(
    ours: float, theirs: float | None, outcome: str
) -> None:
    name = "Allocate, one device, p50"
    run = replace(KEPT, figures={name: {"unit": "ms", "values": {DAEMON: ours, GO: theirs}}})
    lines = page(run, SCHEDULING, DRA).splitlines()
    (line,) = (line for line in lines if line.startswith(f"| {name} | ≤ 0.8 × Go |"))
    assert line.endswith(f"| {outcome} |")


def test_the_schedulers_figures_stand_beside_what_is_wanted_of_them() -> None:
    name = "500 nodes, 5,000 claims"
    figure = {"unit": "/s", "values": {"devplug": 1234.5}, "notes": {"devplug": "7 pods had no node"}}
    lines = page(KEPT, replace(SCHEDULING, figures={name: figure}), DRA).splitlines()
    assert f"| {name} | ≥ 500 | 1234.5 /s | 7 pods had no node |" in lines


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ((4.9, 5.0), "| 4.90 ms | 5.00 ms | met |"),
        ((5.1, 1.0), "| 5.10 ms | 1.00 ms | missed |"),
        ((None, 1.0), "| - | 1.00 ms | met |"),
        ((None, None), "| - | - | not measured |"),
    ],
)
def test_a_target_of_claims_is_met_where_all_columns_meet_it(
    values: tuple[float | None, float | None], end: str
) -> None:
    name = "prepare, beyond the API's answer, p50"
    figure = {"unit": "ms", "values": dict(zip(("disk", "memory"), values, strict=True))}
    lines = page(KEPT, SCHEDULING, replace(DRA, figures={name: figure})).splitlines()
    assert f"| {name} | ≤ 5 ms {end}" in lines
