"""Every check is shown to fail on a plugin with that fault, and on no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devplug.conformance.registry import all_checks
from devplug.conformance.verdicts import Outcome
from tests.conformance.mutants import mutants
from tests.conformance.trials import lanes_of, told, trial, trials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from devplug.conformance.verdicts import Verdict

TRIAL_SECONDS = 600


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Sequence[Verdict]]]]:
    """Try all mutants that are asked for, in the lanes of the checks that have to notice."""
    names = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "mutant" in getattr(item, "fixturenames", ())
    ]
    with trials(names, lambda name: lanes_of(mutants()[name].fails)) as futures:
        yield futures


def test_every_check_has_a_mutant_that_fails_it() -> None:
    failed = {id_ for mutant in mutants().values() for id_ in mutant.fails}
    assert failed == {one.id for one in all_checks()}


@pytest.mark.slow
@pytest.mark.timeout(TRIAL_SECONDS)
async def test_the_right_plugin_passes_every_check() -> None:
    verdicts = await trial("right", all_checks(), jobs=6)
    assert [one.check.id for one in verdicts if one.outcome is not Outcome.PASSED] == [], told(verdicts)


@pytest.mark.slow
@pytest.mark.timeout(TRIAL_SECONDS)
@pytest.mark.parametrize("mutant", mutants())
def test_a_mutant_fails_exactly_the_checks_of_its_fault(
    mutant: str, running: Mapping[str, Future[Sequence[Verdict]]]
) -> None:
    verdicts = running[mutant].result(TRIAL_SECONDS)
    failed = [one.check.id for one in verdicts if one.outcome is Outcome.FAILED]
    order = [one.id for one in all_checks()]
    story = told(one for one in verdicts if one.outcome is not Outcome.PASSED)
    made = {one.check.id for one in verdicts}
    due = {*mutants()[mutant].fails, *mutants()[mutant].also} & made
    assert failed == sorted(due, key=order.index), story
