"""Every check is shown to fail on a plugin with that fault, and on no other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from devplug.conformance.registry import all_checks
from devplug.conformance.verdicts import Outcome
from tests.conformance.mutants import mutants
from tests.conformance.trials import TIMES, asked_for, lanes_of, side_by_side, told, trial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence

    from devplug.conformance.verdicts import Verdict

RIGHT: Final = "right"
MUTANTS: Final = mutants()


def representatives() -> frozenset[str]:
    """Return mutants that fail a check in every lane, so that a lane which sees nothing is seen.

    Taken is, again and again, the one that fails in the most lanes that are left. Of several it is one with
    no limits shorter than those of all, then the one with the fewest lanes, then the first by name.
    """
    lane_of = {one.id: one.lane for one in all_checks()}
    lanes = {name: {lane_of[id_] for id_ in mutant.fails} for name, mutant in MUTANTS.items()}
    shorter = {
        name: sum(seconds < getattr(TIMES, field) for field, seconds in mutant.times.items())
        for name, mutant in MUTANTS.items()
    }
    left = set(lane_of.values())
    taken: list[str] = []
    while left:
        taken.append(min(lanes, key=lambda name: (-len(lanes[name] & left), shorter[name], len(lanes[name]))))
        left -= lanes[taken[-1]]
    return frozenset(taken)


REPRESENTATIVES: Final = representatives()


@pytest.fixture(scope="module")
async def verdicts_on(
    request: pytest.FixtureRequest,
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    """Try all plugins that are asked for, in the lanes of the checks that have to notice."""
    trials = {name: partial(trial, name, lanes_of(name)) for name in asked_for(request, "plugin")}
    async with side_by_side(trials) as verdicts:
        yield verdicts


def test_every_check_has_a_mutant_that_fails_it() -> None:
    failed = {id_ for mutant in MUTANTS.values() for id_ in mutant.fails}
    assert failed == {one.id for one in all_checks()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "plugin",
    [
        RIGHT,
        *(
            pytest.param(name, marks=() if name in REPRESENTATIVES else pytest.mark.nightly)
            for name in MUTANTS
        ),
    ],
)
async def test_a_plugin_fails_exactly_the_checks_of_its_fault(
    plugin: str, verdicts_on: Mapping[str, Awaitable[Sequence[Verdict]]]
) -> None:
    verdicts = await verdicts_on[plugin]
    failed = {one.check.id for one in verdicts if one.outcome is Outcome.FAILED}
    mutant = MUTANTS.get(plugin)
    due = {*mutant.fails, *mutant.also} & {one.check.id for one in verdicts} if mutant else set()
    assert failed == due, told(one for one in verdicts if one.outcome is not Outcome.PASSED)
    assert mutant or {one.outcome for one in verdicts} == {Outcome.PASSED}, told(verdicts)
