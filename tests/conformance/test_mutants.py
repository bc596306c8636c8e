"""Every check is shown to fail on a plugin with that fault, and on no other."""

from __future__ import annotations

import asyncio

import pytest

from devplug.conformance.registry import all_checks
from devplug.conformance.verdicts import Outcome
from tests.conformance.mutants import mutants
from tests.conformance.trials import lanes_of, told, trial


def failed_by(name: str, ids: tuple[str, ...]) -> tuple[list[str], str]:
    verdicts = asyncio.run(trial(name, lanes_of(ids)))
    failed = [one.check.id for one in verdicts if one.outcome is Outcome.FAILED]
    return failed, told(one for one in verdicts if one.outcome is not Outcome.PASSED)


def test_every_check_has_a_mutant_that_fails_it() -> None:
    failed = {id_ for mutant in mutants().values() for id_ in mutant.fails}
    assert failed == {one.id for one in all_checks()}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", mutants())
def test_a_mutant_fails_exactly_the_checks_of_its_fault(name: str) -> None:
    expected = mutants()[name].fails
    failed, story = failed_by(name, expected)
    assert failed == sorted(expected, key=[one.id for one in all_checks()].index), story


@pytest.mark.timeout(120)
def test_the_right_plugin_passes_every_check() -> None:
    verdicts = asyncio.run(trial("right", all_checks(), jobs=6))
    assert [one.check.id for one in verdicts if one.outcome is not Outcome.PASSED] == [], told(verdicts)
