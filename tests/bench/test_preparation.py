"""Prepares measured: a few here, to see that every figure is had."""

from __future__ import annotations

import pytest

from bench.preparation import LIMIT_SECONDS, measure_preparation, preparation_report


async def test_prepare_and_unprepare_are_timed_beside_a_line_on_the_disk() -> None:
    report = await measure_preparation(rounds=3)
    names = [f"{what}, {p}" for what in ("a synced line", "prepare", "unprepare") for p in ("p50", "p99")]
    assert [row.name for row in report.rows] == names
    assert all(row.figures[0].value for row in report.rows)


@pytest.mark.parametrize(("times", "holds"), [(0.9, True), (1.1, False)])
def test_a_typical_prepare_keeps_the_bound_beyond_the_disk_s_own_time(times: float, *, holds: bool) -> None:
    line = [1.0, 2.0, 3.0]
    prepares = [one + times * LIMIT_SECONDS for one in line]
    report = preparation_report({"a synced line": line, "prepare": prepares, "unprepare": line}, rounds=3)
    assert [one.ratio for one in report.bounds] == [pytest.approx(times)]
    assert report.is_good == holds
