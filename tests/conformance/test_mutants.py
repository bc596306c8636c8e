"""Every check is shown to fail on a plugin with that fault, and on no other."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from functools import partial
from typing import Final

import pytest

from devplug.conformance.checks import all_checks
from devplug.conformance.runner import ARRIVAL
from devplug.conformance.verdicts import Check, Outcome, Verdict
from tests.conformance.mutants import mutants
from tests.conformance.trials import (
    TIMES,
    asked_for,
    has_time,
    lanes_of,
    representatives,
    side_by_side,
    told,
    trial,
    trial_here,
)

RIGHT: Final = "right"
MUTANTS: Final = mutants()


REPRESENTATIVES: Final = representatives(MUTANTS, all_checks(), TIMES) | {
    name for name, mutant in MUTANTS.items() if mutant.skips
}
TIMES_JUDGED: Final = 5
LANES_ON_SOCKETS: Final = frozenset(
    {ARRIVAL, "registration", "silence", "stream", "streams", "allocate", "again", "latency", "preferred"}
    | {"pre-start", "change", "lost stream", "restarts", "quick restarts"}
)
"""Lanes whose checks ask nothing of the plugin's process: all that they know of it comes over sockets."""


LATE_BY_ITSELF: Final = frozenset(
    {
        "ChecksItsDevicesFirst",
        "DoesNotEnd",
        "EndsLate",
        "IsSlowNowAndThen",
        "ListsLate",
        "LooksForItsOptions",
        "PrefersSlowly",
    }
    | {"TakesLongOverItsFirstAllocate"}
)
"""Mutants whose short limit only the check that has to fail asks; a busy machine makes them later still."""


def is_calm(name: str) -> bool:
    """Whether a busy machine cannot make a mutant right or wrong."""
    return name in LATE_BY_ITSELF or has_time(MUTANTS[name], TIMES)


def on_this_loop() -> list[str]:
    """Return the calm mutants that need no process: they fail on sockets alone, and do not end their process.

    Representatives are tried anyway; one that does not register, once or again, takes another start.
    """
    others = REPRESENTATIVES | {"NeverRegisters", "WaitsAfterALostStream", "BearsOneLostStream", "ListsLate"}
    lane_of = {one.id: one.lane for one in all_checks() if one.id not in {"ALL13", "RES21"}}
    return [
        name
        for name, mutant in MUTANTS.items()
        if name not in others
        and {lane_of.get(id_) for id_ in mutant.fails} <= LANES_ON_SOCKETS
        and "exit(" not in inspect.getsource(mutant)
        and is_calm(name)
    ]


ON_THIS_LOOP: Final = on_this_loop()


AS_PROGRAMS: Final = frozenset(
    {"CrashesAtItsEnd", "EndsWithoutDescriptors", "IgnoresInterrupts", "NeverAnswersAllocate"}
)
"""The mutants that `make test` starts as programs, which takes long. `make verify-mutants` has all."""


@pytest.fixture(scope="module")
async def verdicts_on(
    request: pytest.FixtureRequest,
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    """Try all plugins that are asked for, in the lanes of the checks that have to notice."""
    trials = {name: partial(trial, name, lanes_of(name)) for name in asked_for(request, "plugin")}
    async with side_by_side(trials) as verdicts:
        yield verdicts


@pytest.fixture(scope="module")
async def verdicts_again(
    request: pytest.FixtureRequest,
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    """Try all plugins that are asked for, each as often as it is to have the same verdicts."""
    trials = {
        f"{name} {number}": partial(trial, name, lanes_of(name))
        for name in asked_for(request, "mutant")
        for number in range(TIMES_JUDGED)
    }
    async with side_by_side(trials) as verdicts:
        yield verdicts


@pytest.fixture(scope="module")
async def verdicts_here(
    request: pytest.FixtureRequest,
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    """Try all mutants that are asked for on the loop of the tests."""

    def checks_of(name: str) -> Sequence[Check]:
        return [one for one in lanes_of(name) if one.lane in LANES_ON_SOCKETS and one.id != "ALL13"]

    trials = {name: partial(trial_here, name, checks_of(name)) for name in asked_for(request, "mutant_here")}
    async with side_by_side(trials, at_once=12) as verdicts:
        yield verdicts


def test_every_check_has_a_mutant_that_fails_it() -> None:
    failed = {id_ for mutant in MUTANTS.values() for id_ in mutant.fails}
    assert failed == {one.id for one in all_checks()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "plugin",
    [
        RIGHT,
        *(pytest.param(name, marks=() if name in AS_PROGRAMS else pytest.mark.nightly) for name in MUTANTS),
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
    skipped = {one.check.id for one in verdicts if one.outcome is Outcome.SKIPPED}
    assert skipped >= {*mutant.skips} if mutant else not skipped, told(verdicts)
    assert mutant or {one.outcome for one in verdicts} == {Outcome.PASSED}, told(verdicts)


@pytest.mark.parametrize("mutant_here", ON_THIS_LOOP)
async def test_a_plugin_on_this_loop_fails_exactly_the_checks_of_its_fault(
    mutant_here: str, verdicts_here: Mapping[str, Awaitable[Sequence[Verdict]]]
) -> None:
    verdicts = await verdicts_here[mutant_here]
    failed = {one.check.id for one in verdicts if one.outcome is Outcome.FAILED}
    mutant = MUTANTS[mutant_here]
    assert {*mutant.fails} <= failed <= {*mutant.fails, *mutant.also}, told(verdicts)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_plugin_that_is_judged_five_times_has_the_same_verdicts_each_time(
    mutant: str, verdicts_again: Mapping[str, Awaitable[Sequence[Verdict]]]
) -> None:
    first, *others = [await verdicts_again[f"{mutant} {number}"] for number in range(TIMES_JUDGED)]
    for again in others:
        assert [(one.check.id, one.outcome) for one in again] == [
            (one.check.id, one.outcome) for one in first
        ], told([*first, *again])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_a_plugin_that_falls_with_every_stream_has_the_same_verdicts_ten_times_by_all_checks() -> None:
    name = "MakesItsServerAnewWhenAStreamEnds"
    trials = {str(number): partial(trial, name, all_checks()) for number in range(10)}
    async with side_by_side(trials, at_once=2) as verdicts:
        runs = [await verdicts[number] for number in trials]
    failed = [{one.check.id for one in run if one.outcome is Outcome.FAILED} for run in runs]
    assert failed == [{"STR13"}] * 10, [told(run) for run in runs]
    assert len({tuple((one.check.id, one.outcome) for one in run) for run in runs}) == 1
