"""Every check of DRA drivers is shown to fail on a driver with that fault, and on no other."""

from __future__ import annotations

from typing import Final

import pytest

from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.verdicts import Outcome
from tests.conformance.dra.mutants import mutants
from tests.conformance.dra.trials import TIMES, lanes_of, trial
from tests.conformance.trials import representatives, told

MUTANTS: Final = mutants()

BY_DAY: Final = representatives(MUTANTS, all_driver_checks(), TIMES)
"""The mutants of `make test`: one for each lane. `make verify-mutants` has all."""


def test_every_check_of_a_driver_has_a_mutant_that_fails_it() -> None:
    assert {id_ for mutant in MUTANTS.values() for id_ in mutant.fails} == {
        one.id for one in all_driver_checks()
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api_version", ["v1", pytest.param("v1beta1", marks=pytest.mark.nightly)])
async def test_a_right_driver_of_any_version_of_the_api_passes_every_check(api_version: str) -> None:
    verdicts = await trial("right", all_driver_checks(), api_version)
    assert {one.outcome for one in verdicts} == {Outcome.PASSED}, told(verdicts)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in MUTANTS],
)
async def test_a_driver_fails_exactly_the_checks_of_its_fault(mutant: str) -> None:
    verdicts = await trial(mutant, lanes_of(mutant))
    failed = {one.check.id for one in verdicts if one.outcome is Outcome.FAILED}
    fault = MUTANTS[mutant]
    assert {*fault.fails} <= failed <= {*fault.fails, *fault.also}, told(verdicts)
