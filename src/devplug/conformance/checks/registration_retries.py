"""Registration with a kubelet that is away, slow, refuses, or has died and left its socket."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.conformance.checks.registration import longest_overlap_seconds
from devplug.conformance.scripted_kubelet import KubeletBehavior
from devplug.conformance.testbed import first_call, once, seconds_until_up
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check

if TYPE_CHECKING:
    from devplug.conformance.testbed import TestBed, TestRun

ATTEMPTS_PER_SECOND_LIMIT: Final = 10
"""More than any backoff makes, and less than any loop without one."""

_REFUSAL: Final = "failed to dial device plugin: context deadline exceeded"


def _check_alive(bed: TestBed, when: str) -> None:
    program = bed.program
    if program.exit_code is not None:
        raise FailedError(f"{when} its process ended with {program.exit_code}: {program.last_words()}")


async def _watch(bed: TestBed, seconds: float, when: str) -> None:
    """Let time pass. Raises `FailedError` as soon as the plugin's process ends."""
    await bed.program.wait(seconds)
    _check_alive(bed, when)


# ── slow ──


@dataclass(frozen=True, slots=True)
class _Slow:
    """What a plugin did while the answer to Register was late."""

    waited_seconds: float
    was_given_up: bool
    overlap_seconds: float
    attempts: int


async def _slow_kubelet(test_run: TestRun) -> _Slow:
    times = test_run.times
    async with test_run.bed(launch=False) as bed:
        kubelet = bed.kubelet
        kubelet.behavior = KubeletBehavior(answer_after_seconds=times.slow_kubelet_seconds)
        await bed.launch()
        first = await first_call(bed)
        patience = times.slow_kubelet_seconds + times.answer_seconds
        await kubelet.until(lambda: first.ended_at is not None or not bed.is_alive(), patience)
        _check_alive(bed, "while the kubelet took its time")
        now = time.monotonic()
        attempts = kubelet.attempts_since(0.0)
        return _Slow(
            (first.ended_at or now) - first.started_at,
            first.was_given_up,
            longest_overlap_seconds((attempt.started_at, attempt.ended_at or now) for attempt in attempts),
            len(attempts),
        )


@check(
    "REG08",
    MUST,
    "A plugin waits for the answer to Register for longer than 10 s.",
    why=(
        "the kubelet's own dial may take 10 s; a plugin that gives up earlier is never registered on a "
        "busy node"
    ),
    change="call Register without a deadline, or with one of 15 s or more",
    source="pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go (dial, 10 s)",
    lane="slow kubelet",
    fresh=True,
    quick=False,
)
async def waits_for_a_slow_kubelet(test_run: TestRun) -> None:
    """Start the plugin with a kubelet that answers Register later than its own dial may take."""
    slow = await once(test_run, _slow_kubelet)
    if slow.was_given_up:
        raise FailedError(f"the plugin gave up after {slow.waited_seconds:.1f} s")


@check(
    "REG09",
    MUST,
    "A plugin makes one call of Register at a time for a resource.",
    why="each call replaces the kubelet's record of the call before, whose connection is never closed",
    change="wait until a call has ended before you make the next, also when your watch reports an event",
    source="kubernetes/kubernetes#124716",
    lane="slow kubelet",
    fresh=True,
    quick=False,
)
async def registers_one_at_a_time(test_run: TestRun) -> None:
    """Look at all calls of Register that came while the kubelet held back the answer to the first."""
    slow = await once(test_run, _slow_kubelet)
    # One that was given up may be told of only after the next has come.
    if slow.overlap_seconds > test_run.times.settle_seconds:
        raise FailedError(
            f"{slow.attempts} calls came while the first waited for its answer; two were open at once for "
            f"{slow.overlap_seconds:.1f} s",
        )


# ── away ──


async def _return_after(bed: TestBed, what: str) -> float:
    """Have a kubelet come; return how many seconds later the plugin registers. Raises `FailedError`."""
    kubelet = bed.kubelet
    before = time.monotonic()
    await kubelet.start()
    await bed.wait_back(before, bed.times.return_seconds, what)
    accepted = (attempt for attempt in kubelet.attempts_since(before) if attempt.client is kubelet.client)
    return max(0.0, next(accepted).started_at - kubelet.started_at)


async def _absent_kubelet(test_run: TestRun) -> float:
    times = test_run.times
    patience = max(times.down_seconds, await once(test_run, seconds_until_up))
    async with test_run.bed(kubelet=False) as bed:
        await _watch(bed, patience, "without a kubelet")
        return await _return_after(bed, "the kubelet started, and the plugin did not register")


@check(
    "REG10",
    MUST,
    "A plugin that starts before the kubelet waits for it.",
    why="after a boot either of the two may start first; a plugin that exits is restarted ever later",
    change="keep running without kubelet.sock, watch the folder for it, and register when it is there",
    source="kubernetes/kubernetes#125506, NVIDIA/k8s-device-plugin#10",
    lane="absent kubelet",
    fresh=True,
    quick=False,
)
async def waits_for_the_kubelet(test_run: TestRun) -> None:
    """Start the plugin in an empty folder, check that it keeps running, then start the kubelet."""
    await once(test_run, _absent_kubelet)


@check(
    "REG11",
    SHOULD,
    "A plugin registers as soon as the kubelet has started.",
    why="until then pods that ask for the resource are refused for good",
    change="watch the folder with inotify instead of polling it; look once more after the watch is set",
    source="kubernetes/kubernetes#109595",
    lane="absent kubelet",
    fresh=True,
    quick=False,
)
async def registers_at_once(test_run: TestRun) -> str:
    """Start the plugin in an empty folder, then the kubelet, and take the time until it registers."""
    try:
        seconds = await once(test_run, _absent_kubelet)
    except FailedError as error:
        raise SkippedError("the plugin did not register (REG10)") from error
    if seconds > test_run.times.return_limit_seconds:
        raise FailedError(
            f"the plugin registered {seconds:.2f} s after kubelet.sock was there, not within "
            f"{test_run.times.return_limit_seconds:g} s",
        )
    return f"{1000 * seconds:.0f} ms after kubelet.sock"


@check(
    "REG15",
    MUST,
    "A plugin that finds the socket of a dead kubelet waits for a running one.",
    why="kubelet.sock stays when a kubelet ends; a plugin that dials it only once never registers",
    change="try again when the dial is refused, and when kubelet.sock has been replaced",
    source="devicemanager/manager.go (removed at the next start); bottlerocket-os/bottlerocket#4250",
    lane="absent kubelet",
    fresh=True,
    quick=False,
)
async def waits_at_a_dead_socket(test_run: TestRun) -> None:
    """Start the plugin where an ended kubelet has left its socket, then start a kubelet."""
    patience = max(test_run.times.down_seconds, await once(test_run, seconds_until_up))
    async with test_run.bed(launch=False) as bed:
        await bed.kubelet.stop()
        await bed.launch()
        await _watch(bed, patience, "at the socket of a dead kubelet")
        await _return_after(bed, "a kubelet started, and the plugin did not register")


# ── refusing ──


@dataclass(frozen=True, slots=True)
class _Refused:
    """What a plugin did while its registrations were refused, and after."""

    attempts: int
    fate: str
    """Why it is not registered although it might be; empty if it is."""


async def _refusing_kubelet(test_run: TestRun) -> _Refused:
    times = test_run.times
    async with test_run.bed(launch=False) as bed:
        kubelet = bed.kubelet
        kubelet.behavior = KubeletBehavior(refuse=_REFUSAL)
        await bed.launch()
        first = await first_call(bed)
        fate = ""
        try:
            await _watch(bed, times.refusing_seconds, "when its registration was refused")
        except FailedError as error:
            fate = str(error)
        attempts = kubelet.attempts_since(0.0)
        count = sum(one.started_at <= first.started_at + times.refusing_seconds for one in attempts)
        kubelet.behavior = KubeletBehavior()
        try:
            if not fate:
                await bed.wait_ready(
                    times.return_seconds, "the kubelet refused no longer, and the plugin did not register"
                )
        except FailedError as error:
            fate = str(error)
        return _Refused(count, fate)


@check(
    "REG12",
    MUST,
    "A plugin whose registration is refused tries again.",
    why="a busy kubelet can refuse a registration, and never asks the plugin for another",
    change="repeat Register, with a pause that grows to a few seconds, until it succeeds",
    source="kubernetes/kubernetes#125506, bottlerocket-os/bottlerocket#4250",
    lane="refusing kubelet",
    fresh=True,
    quick=False,
)
async def tries_again(test_run: TestRun) -> str:
    """Start the plugin where the kubelet refuses each registration for a while, and then no longer does."""
    refused = await once(test_run, _refusing_kubelet)
    if refused.fate:
        raise FailedError(refused.fate)
    return f"{refused.attempts} attempts in {test_run.times.refusing_seconds:g} s"


@check(
    "REG13",
    SHOULD,
    "A plugin whose registration is refused pauses before it tries again.",
    why="a loop without a pause takes a processor from the node just when the node is busy",
    change="pause 100 ms after the first refusal and longer after each further one",
    source="smarter-device-manager main.go retries without a pause",
    lane="refusing kubelet",
    fresh=True,
    quick=False,
)
async def pauses_between_attempts(test_run: TestRun) -> None:
    """Count the calls of Register while the kubelet refuses them all."""
    refused = await once(test_run, _refusing_kubelet)
    seconds = test_run.times.refusing_seconds
    if refused.attempts > ATTEMPTS_PER_SECOND_LIMIT * seconds:
        raise FailedError(f"{refused.attempts} attempts came in {seconds:g} s")
