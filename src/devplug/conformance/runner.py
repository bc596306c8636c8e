"""The runner: which checks are made side by side, on which start of the plugin, and how verdicts fall."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

from devplug.conformance.raw_clients import require_service
from devplug.conformance.testbed import StartError, TestBed, TestRun
from devplug.conformance.verdicts import FailedError, Group, Outcome, SkippedError, Verdict
from devplug.errors import PluginError, RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from devplug.conformance.program import Subject
    from devplug.conformance.times import Times
    from devplug.conformance.verdicts import Check

ARRIVAL: Final = "arrival"
"""The lane of those checks that look at a plugin's first start, whether it succeeds or not."""


class Bed(Protocol):
    """What a lane of checks shares: one start of what is judged."""

    @property
    def names(self) -> Sequence[str]:
        """What it has registered, the judged one first."""

    async def wait_ready(self, seconds: float) -> object:
        """Wait until it is up. Raises `StartError`."""

    async def is_settled(self) -> bool:
        """Wait until nothing of the last check is left; returns whether it came so."""


class Run(Protocol):
    """One run, which opens test beds."""

    @property
    def times(self) -> Times:
        """The times of the run."""

    def bed(self) -> AbstractAsyncContextManager[Bed]:
        """Open a test bed, on which what is judged is started."""


JOBS: Final = 6
"""How many plugins run side by side, at most: most of their time is waiting."""


async def judge(
    subject: Subject,
    checks: Iterable[Check],
    *,
    times: Times,
    jobs: int = JOBS,
    attached: Path | None = None,
    on_arrival: Callable[[Sequence[str]], None] = lambda _: None,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
) -> Sequence[Verdict]:
    """Try a plugin by each of `checks`; return the verdicts in their order, and tell each when it falls.

    First it is started once, and `on_arrival` gets what it has registered, the judged resource first. If
    it does not get as far as to send a list, what cannot be tried then is skipped. The other lanes run side
    by side, at most `jobs` of them, and those that must be alone at the end. What is not judged when
    `times.run_seconds` are nearly over is `UNJUDGED`, and all that was started ends. With `attached` the
    plugin behind that socket is judged and nothing is started: then only `harmless` checks are made. Raises
    `PluginError` if the command cannot be run at all, `StartError` if the plugin does not come up and no
    check says why, `RegistrationError` if that socket does not answer.
    """
    checks = [one for one in checks if one.harmless or attached is None]
    test_run = TestRun(subject, times, attached)
    return await judge_run(test_run, checks, jobs=jobs, on_arrival=on_arrival, on_verdict=on_verdict)


async def judge_run(
    test_run: Run,
    checks: Iterable[Check],
    *,
    jobs: int,
    on_arrival: Callable[[Sequence[str]], None] = lambda _: None,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
) -> Sequence[Verdict]:
    """Make checks on the test beds of a run, as `judge` says."""
    checks = list(checks)
    times = test_run.times
    verdicts: dict[str, Verdict] = {}

    def tell(verdict: Verdict) -> None:
        verdicts[verdict.check.id] = verdict
        on_verdict(verdict)

    time_for_checks = asyncio.timeout(max(0.0, times.run_seconds - times.end_seconds))
    try:
        async with time_for_checks:
            await _make(test_run, checks, tell, jobs=jobs, on_arrival=on_arrival)
    except TimeoutError:
        if not time_for_checks.expired():
            raise
        words = (
            f"the whole run has a limit of {times.run_seconds:g} s, which is over; judge these checks "
            "in a run of their own with --only"
        )
        for one in checks:
            if one.id not in verdicts:
                tell(Verdict(one, Outcome.UNJUDGED, words))
    return [verdicts[one.id] for one in checks]


async def _make(
    test_run: Run,
    checks: Iterable[Check],
    tell: Callable[[Verdict], None],
    *,
    jobs: int,
    on_arrival: Callable[[Sequence[str]], None],
) -> None:
    """Make the checks, each in its lane."""
    lanes = _lanes(checks)
    if trouble := await _arrive(test_run, lanes.pop(ARRIVAL, ()), tell, on_arrival):
        for lane in lanes.values():
            for one in lane:
                tell(Verdict(one, Outcome.SKIPPED, trouble))
        return
    places = asyncio.Semaphore(jobs)
    left: list[Sequence[Check]] = []

    async def run(lane: Sequence[Check]) -> None:
        async with places:
            # One that does not start beside another of its kind is tried by itself, later.
            left.append(await _run_lane(test_run, lane, tell, is_last_try=False))

    async with asyncio.TaskGroup() as group:
        for lane in lanes.values():
            if not lane[0].alone:
                group.create_task(run(lane))
    for lane in (*left, *(lane for lane in lanes.values() if lane[0].alone)):
        await _run_lane(test_run, lane, tell, is_last_try=True)


def _lanes(checks: Iterable[Check]) -> dict[str, Sequence[Check]]:
    lanes: dict[str, list[Check]] = {}
    for one in checks:
        lanes.setdefault(f"{one.lane} alone" if one.alone else one.lane, []).append(one)
    return dict(lanes)


async def _arrive(
    test_run: Run,
    lane: Sequence[Check],
    tell: Callable[[Verdict], None],
    on_arrival: Callable[[Sequence[str]], None],
) -> str:
    """Start the plugin once and look at it; return why no other check makes sense, or an empty string."""
    failed: list[str] = []
    trouble = ""
    async with test_run.bed() as bed:
        try:
            await bed.wait_ready(test_run.times.start_seconds)
        except StartError as error:
            trouble = str(error)
        on_arrival(bed.names)
        for one in lane:
            verdict = await _try(one, bed, test_run.times)
            tell(verdict)
            if verdict.outcome is Outcome.FAILED:
                failed.append(one.id)
    if not trouble:
        return ""
    if not failed:
        raise StartError(f"the plugin cannot be judged: {trouble}")
    return f"the plugin did not start ({', '.join(failed) or trouble})"


async def _run_lane(
    test_run: Run,
    lane: Sequence[Check],
    tell: Callable[[Verdict], None],
    *,
    is_last_try: bool,
) -> Sequence[Check]:
    """Make the checks of a lane, on one start as long as that bears it; return those that found no start."""
    left = list(lane)
    while left:
        if left[0].fresh:
            tell(await _try(left.pop(0), test_run, test_run.times))
            continue
        try:
            async with test_run.bed() as bed:
                await bed.wait_ready(test_run.times.start_seconds)
                await bed.is_settled()
                tell(await _try(left.pop(0), bed, test_run.times))
                while left and await bed.is_settled():
                    tell(await _try(left.pop(0), bed, test_run.times))
        except StartError as error:
            if not is_last_try:
                return left
            one = left.pop(0)
            tell(
                Verdict(
                    one, Outcome.FAILED, f"the plugin was started once more and did not register: {error}"
                )
            )
    return ()


async def _try(one: Check, where: Bed | Run, times: Times) -> Verdict:
    begun = time.monotonic()
    outcome, seen = Outcome.PASSED, ""
    try:
        async with asyncio.timeout(times.check_seconds):
            if one.group is Group.HOS and not one.harmless and isinstance(where, TestBed):
                await require_service(where)
            seen = await one.function(where) or ""
    except SkippedError as error:
        outcome, seen = Outcome.SKIPPED, str(error)
    except FailedError as error:
        outcome, seen = Outcome.FAILED, str(error)
    except RemoteError as error:
        outcome, seen = Outcome.FAILED, f"a call failed: {error}"
    except TimeoutError:
        outcome, seen = Outcome.FAILED, f"the check did not end within {times.check_seconds:g} s"
    except PluginError as error:
        outcome, seen = Outcome.FAILED, str(error)
    return Verdict(one, outcome, seen, time.monotonic() - begun)
