"""Our kubelet measured at several sizes: small ones here, to see that every figure is had."""

from __future__ import annotations

import pytest

from bench.growth import (
    GROWTHS,
    LARGE,
    MACHINES,
    POLICIES,
    SIZES,
    SMALL,
    STALL,
    WANTED,
    NodeError,
    Samples,
    growth_report,
    in_turns,
    measured,
    places_report,
    ratio,
)
from bench.node import Node, NodeFigures

NODE = Node(devices=8, pods=4, wanted=(1, 1), admissions=3, lists=2)


def samples(*milliseconds: float, failure: str = "") -> Samples:
    """Samples of one run in which admissions took so long."""
    found = NodeFigures(0.5, [one / 1000 for one in milliseconds], [0.002], 3_000_000)
    return Samples(Node(pods=50), [] if failure else [found], len(milliseconds), failure)


# ── on real nodes ─────────────────────────────────────────────────────────────────────────────────


async def test_every_figure_of_a_node_is_had() -> None:
    found = await measured(NODE)
    assert found.fill_seconds > 0
    assert (len(found.admission_seconds), len(found.list_seconds)) == (3, 2)
    assert min(found.admission_seconds + found.list_seconds) > 0


async def test_pods_are_placed_on_a_machine_of_many_numa_nodes() -> None:
    node = Node(64, 2, (1, 2), numa_nodes=36, device_nodes=8, policy="restricted", admissions=2, lists=0)
    assert len((await measured(node)).admission_seconds) == 2


async def test_a_node_that_does_not_start_is_not_measured() -> None:
    with pytest.raises(NodeError, match="unknown policy"):
        await measured(Node(policy="odd"))


async def test_nodes_take_turns_and_one_that_failed_is_left_out() -> None:
    good, bad = await in_turns([NODE, Node(devices=3, pods=4)], rounds=2)
    assert (len(good.found), len(good.admissions()), good.wanted, good.failure) == (2, 6, 6, "")
    assert (len(bad.found), bad.wanted) == (0, 200)
    assert "requested number of devices unavailable" in bad.failure


# ── what is made of it ────────────────────────────────────────────────────────────────────────────


def test_a_ratio_is_that_of_the_typical_admissions() -> None:
    assert ratio(samples(10, 20, 1000), samples(5, 5, 1)) == pytest.approx(4)
    assert ratio(samples(10), samples(failure="gone")) is None


def test_figures_are_those_of_all_runs() -> None:
    figures = {one.name: one.value for one in samples(1, 2, 3).figures("x")}
    assert figures == {
        "x: pods per second": 100,
        "x: admission, p50": 2,
        "x: admission, p99": pytest.approx(2.98),
        "x: PodResources List, median": 2,
        "x: resident for it (RSS)": 3,
    }


def test_figures_that_could_not_be_had_say_why() -> None:
    figures = samples(failure="it ended with code 1").figures("x")
    assert {(one.value, one.note) for one in figures} == {(None, "it ended with code 1")}


@pytest.mark.parametrize(("times", "holds"), [(9.9, True), (10.1, False)])
def test_time_may_grow_as_devices_and_pods_do(times: float, *, holds: bool) -> None:
    slow = [large for _, large, _ in GROWTHS]
    milliseconds = {size: times ** slow.index(size) * times if size in slow else 1 for size in SIZES}
    report = growth_report({(kind, size): samples(milliseconds[size]) for kind in WANTED for size in SIZES})
    assert report.columns == [*SIZES]
    assert [one.ratio for one in report.bounds] == [pytest.approx(times)] * len(GROWTHS) * len(WANTED)
    assert report.is_good == holds


def test_a_kubelet_that_could_not_be_measured_keeps_no_bound() -> None:
    assert not growth_report(
        {(kind, size): samples(failure="gone") for kind in WANTED for size in SIZES}
    ).is_good


@pytest.mark.parametrize(("times", "holds"), [(STALL, True), (STALL + 1, False)])
def test_placing_on_many_numa_nodes_may_not_look_stuck(times: float, *, holds: bool) -> None:
    milliseconds = {LARGE: times, SMALL: 1}
    report = places_report(
        {(kind, machine): samples(milliseconds[machine]) for kind in POLICIES for machine in MACHINES}
    )
    assert {row.ratio() for row in report.rows if "p50" in row.name} == {times}
    assert report.is_good == holds
