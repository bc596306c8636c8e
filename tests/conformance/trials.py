"""How tests try a plugin of `play` by the checks: with a shorter look, and only in the lanes that matter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from devplug.conformance.checks import all_checks
from devplug.conformance.program import Subject
from devplug.conformance.runner import ARRIVAL, judge
from devplug.conformance.testbed import TestBed, TestRun
from devplug.conformance.times import Times
from devplug.conformance.verdicts import Check, Outcome, SkippedError, Verdict
from devplug.errors import DevplugError
from tests.conformance.mutants import mutants
from tests.conformance.right import RightPlugin

TIMES: Final = Times(
    start_seconds=60.0,
    dial_seconds=30.0,
    answer_seconds=60.0,
    call_limit_seconds=30.0,
    quick_call_limit_seconds=30.0,
    options_limit_seconds=30.0,
    preference_limit_seconds=30.0,
    first_list_limit_seconds=30.0,
    silence_seconds=1.5,
    slow_kubelet_seconds=2.0,
    refusing_seconds=1.5,
    down_seconds=1.0,
    return_seconds=60.0,
    return_limit_seconds=30.0,
    first_pods_limit_seconds=30.0,
    change_seconds=60.0,
    notice_limit_seconds=30.0,
    end_seconds=60.0,
    end_limit_seconds=30.0,
    idle_seconds=1.0,
    settle_seconds=0.5,
    restarts=8,
    burst_streams=100,
    calls=30,
    check_seconds=300.0,
)
"""Shows a fault as soon as it can be seen; no limit is one that a right plugin comes near, however busy the
machine. A mutant that is wrong by being late has limits of its own."""

_PATIENCE: Final = ("answer_seconds", "first_list_limit_seconds", "return_seconds", "change_seconds")
_COMES_UP_SECONDS: Final = 10.0

ROOT: Final = Path(__file__).parents[2]


def subject_of(name: str) -> Subject:
    """Return how `right` or a mutant is started."""
    return Subject(
        (sys.executable, "-m", "tests.conformance.play", name, "{dir}", "{work}"),
        environment={"PYTHONPATH": str(ROOT)},
        unplug=("touch", "{work}/gone-dev-0"),
        replug=("rm", "-f", "{work}/gone-dev-0"),
        cdi_dirs=("{work}/cdi",),
    )


def lanes_of(name: str) -> Sequence[Check]:
    """Return the checks of the arrival and of the lanes that see a mutant's fault; for `right` all."""
    checks = all_checks()
    if name not in mutants():
        return checks
    mutant = mutants()[name]
    lanes = {one.lane for one in checks if one.id in {*mutant.fails, *mutant.skips}} | {ARRIVAL}
    return [one for one in checks if one.lane in lanes]


def on_one_start(one: Check) -> Check:
    """Return a check in the lane of all others: a plugin starts less often, each time for half a second."""
    return one if one.fresh or one.lane == ARRIVAL else replace(one, lane="one start", alone=False)


async def trial(name: str, checks: Sequence[Check]) -> Sequence[Verdict]:
    """Return the verdicts on `right` or a mutant."""
    times = mutants()[name].times if name in mutants() else {}
    return await judge(subject_of(name), checks, times=replace(TIMES, **times))


async def trial_here(name: str, checks: Iterable[Check]) -> Sequence[Verdict]:
    """Return the verdicts on a mutant that lives in this process and on this loop, as long as it serves.

    That takes a fiftieth of the processor time of one in a process of its own. What hangs does so for 10 s.
    """
    mutant = mutants()[name]
    return await trial_of(mutant, checks, {**mutant.times, **dict.fromkeys(_PATIENCE, 10.0)})


async def trial_of(
    plugin_class: type[RightPlugin],
    checks: Iterable[Check],
    times: Mapping[str, Any],
    *,
    is_up: Callable[[TestBed], object] = TestBed.is_ready,
    subject: Subject | None = None,
) -> Sequence[Verdict]:
    """Return the verdicts on a plugin that lives in this process and on this loop, as long as it serves.

    They are asked for as soon as it `is_up`. Of `subject` only the commands are used that change its devices.
    """
    verdicts: list[Verdict] = []
    subject = subject or subject_of("right")
    async with TestRun(subject, replace(TIMES, **times)).bed(launch=False) as bed:
        work = bed.root / "work"
        work.mkdir()
        plugin = plugin_class(bed.folder, work)
        life = bed.kubelet.task_of(plugin.run())
        await bed.kubelet.until(lambda: bool(is_up(bed)), _COMES_UP_SECONDS)
        if bed.is_ready():
            await bed.wait_ready(_COMES_UP_SECONDS)
        for one in checks:
            try:
                outcome, seen = Outcome.PASSED, await one.function(bed) or ""
            except SkippedError as error:
                outcome, seen = Outcome.SKIPPED, str(error)
            except DevplugError as error:
                outcome, seen = Outcome.FAILED, str(error)
            verdicts.append(Verdict(one, outcome, seen))
            if one.lane != ARRIVAL and not await bed.is_settled():
                break
        plugin.stopping.set()
        await asyncio.wait([life], timeout=10.0)
        life.cancel()
        await asyncio.wait([life])
    return verdicts


class Faulty(Protocol):
    """A mutant as it is chosen for a run: by the checks that fail, and by limits of its own."""

    @property
    def fails(self) -> Sequence[str]:
        """The checks that have to notice it."""

    @property
    def times(self) -> Mapping[str, Any]:
        """Times of its own."""


def representatives(mutants: Mapping[str, Faulty], checks: Iterable[Check], limits: Times) -> frozenset[str]:
    """Return mutants that fail a check in every lane, so that a lane which sees nothing is seen.

    Taken is, again and again, the one that fails in the most lanes that are left. Of several it is one with
    no limits shorter than those of all, then the one with the fewest lanes, then the first by name.
    """
    lane_of = {one.id: one.lane for one in checks}
    lanes = {name: {lane_of[id_] for id_ in mutant.fails} for name, mutant in mutants.items()}
    shorter = {
        name: sum(seconds < getattr(limits, field) for field, seconds in mutant.times.items())
        for name, mutant in mutants.items()
    }
    left = set(lane_of.values())
    taken: list[str] = []
    while left:
        taken.append(min(lanes, key=lambda name: (-len(lanes[name] & left), shorter[name], len(lanes[name]))))
        left -= lanes[taken[-1]]
    return frozenset(taken)


def has_time(mutant: Faulty, limits: Times) -> bool:
    """Whether no limit of a mutant's own is below 10 s, and no pause longer than that of all."""
    return all(seconds >= min(10.0, getattr(limits, field)) for field, seconds in mutant.times.items())


def asked_for(request: pytest.FixtureRequest, parameter: str) -> Sequence[Any]:
    """Return with which values of a parameter the tests of a module are run."""
    return [
        item.callspec.params[parameter]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and parameter in item.fixturenames
    ]


@asynccontextmanager
async def side_by_side(
    trials: Mapping[str, Callable[[], Awaitable[Sequence[Verdict]]]], at_once: int = 6
) -> AsyncIterator[Mapping[str, Awaitable[Sequence[Verdict]]]]:
    """Try several plugins, most of which wait most of the time; yield the verdicts to come."""
    places = asyncio.Semaphore(at_once)
    futures = {name: asyncio.get_running_loop().create_future() for name in trials}

    async def one(name: str) -> None:
        async with places:
            try:
                futures[name].set_result(await trials[name]())
            except Exception as error:  # noqa: BLE001 -- the test that waits for it fails of it
                futures[name].set_exception(error)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name)) for name in trials]
        yield futures
        for task in tasks:
            task.cancel()


def told(verdicts: Iterable[Verdict]) -> str:
    """Return verdicts as lines for the message of a failed test."""
    return "\n".join(f"{one.check.id} {one.outcome}: {one.seen}" for one in verdicts)
