"""`make calibrate` shows what differs between runs of the judge."""

from __future__ import annotations

import json

from tests.conformance.calibrate import differences, failures, verdicts_of


def report(**outcomes: str) -> str:
    return json.dumps({"checks": [{"id": id_, "outcome": one, "seen": "x"} for id_, one in outcomes.items()]})


def test_equal_verdicts_are_no_difference() -> None:
    runs = [verdicts_of(report(REG01="passed", REG02="failed"))] * 5
    assert differences(runs) == []
    assert failures(runs) == ["REG02  x"]


def test_a_verdict_that_changes_is_printed_with_both_outcomes() -> None:
    runs = [verdicts_of(report(REG01="passed")), verdicts_of(report(REG01="failed"))]
    assert differences(runs) == ["REG01  passed: x; failed: x"]
    assert failures(runs) == []


def test_a_check_that_a_run_lacks_is_a_difference() -> None:
    assert differences([verdicts_of(report(REG01="passed")), {}]) == ["REG01  passed: x; missing"]
