"""The torture in the suite: the brief run; at night, a fiftieth of every case."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from torture.brief_run import brief_counts
from torture.catalogue import INVARIANTS, CaseResult, cases

SEED = 1


@pytest.fixture(scope="module")
def brief() -> Mapping[str, CaseResult]:
    """What came of the brief run."""
    command = [sys.executable, "-m", "torture.brief_run"]
    played = subprocess.run(command, capture_output=True, text=True, check=True)
    results = [CaseResult.of_json(json.loads(line)) for line in played.stdout.splitlines()]
    return {result.name: result for result in results}


@pytest.mark.parametrize("name", brief_counts())
def test_a_few_tries_are_survived(name: str, brief: Mapping[str, CaseResult]) -> None:
    assert brief[name].broken == []


def test_the_brief_run_tries_each_invariant() -> None:
    assert {number for name in brief_counts() for number in cases()[name].invariants} == INVARIANTS.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases())
def test_a_fiftieth_of_the_torture_is_survived(name: str) -> None:
    count = cases()[name].count_for(smoke=True)
    command = [sys.executable, "-m", "torture.player", name, "--seed", str(SEED), "--count", str(count)]
    played = subprocess.run(command, capture_output=True, text=True, check=False)
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr}"
