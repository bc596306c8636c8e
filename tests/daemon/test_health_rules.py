"""What a rule makes of a reading, and how many readings make a device Unhealthy and Healthy again."""

from __future__ import annotations

import errno
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.commands import CommandResult
from devplug.daemon.config.templates import parse_template
from devplug.daemon.config.types import HealthRule
from devplug.daemon.device_list import combined
from devplug.daemon.health import (
    Judgement,
    Outcome,
    Reading,
    is_watchdog,
    judge,
    judge_command,
    judge_open,
)
from devplug.daemon.sources.device import HostDeviceNode
from devplug.devices import Health, HealthState

GOOD = Reading.good()
BAD = Reading.bad("link down")
UNKNOWN = Reading.unknown("no answer")


def state(**keys: Any) -> HealthRule:
    return HealthRule(attribute="state", **keys)


def after(judgement: Judgement, *readings: Reading) -> Judgement:
    return reduce(Judgement.after, readings, judgement)


# ── attributes and files ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "content"),
    [
        (state(equals="up"), "up"),
        (state(equals="4: ACTIVE*"), "4: ACTIVE (polling)"),
        (state(equals="[uU]p"), "Up"),
        (state(equals="*ready*"), "booting\nready\nidle"),
        (state(min=1), "1"),
        (state(min=-5, max=5), "-5"),
        (state(max=90_000), "89999"),
        (state(min=0x10), "0x10"),
        (state(min=8), "8.0 GT/s PCIe"),
        (state(min=10), "55%"),
        (state(min=1e3), "1e3"),
        (state(equals="*ms", max=20), "12 ms"),
    ],
)
def test_what_the_rule_wants_is_good(rule: HealthRule, content: str) -> None:
    assert judge(rule, "state", content) == GOOD


@pytest.mark.parametrize(
    ("rule", "content", "reason"),
    [
        (state(equals="up"), "down", 'state is "down", not "up"'),
        (state(equals="up"), "Up", 'state is "Up", not "up"'),
        (state(equals="up"), "", 'state is "", not "up"'),
        (state(min=1), "0", "state is 0, less than 1"),
        (state(max=90_000_000), "90000001", "state is 90000001, more than 90000000"),
        (state(min=8), "2.5 GT/s PCIe", "state is 2.5 GT/s PCIe, less than 8"),
        (state(min=0), "-0x1", "state is -0x1, less than 0"),
        (state(equals="*ms", max=20), "12 s", 'state is "12 s", not "*ms"'),
    ],
)
def test_what_the_rule_excludes_is_bad_and_says_why(rule: HealthRule, content: str, reason: str) -> None:
    assert judge(rule, "state", content) == Reading.bad(reason)


@pytest.mark.parametrize("content", ["", "N/A", "nan", "1 2 3", "0xzz", "1\n2", "43C", "١"])
def test_what_is_no_single_number_cannot_be_compared(content: str) -> None:
    assert judge(state(min=0), "state", content).outcome is Outcome.UNKNOWN


def test_what_cannot_be_read_is_unknown_and_named() -> None:
    assert judge(state(min=0), "state", None) == Reading.unknown("state cannot be read")
    file = HealthRule(file=parse_template("/run/{serial}"), min=0)
    assert judge(file, "/run/A7", None) == Reading.unknown("/run/A7 cannot be read")


@given(st.text(max_size=300), st.integers(), st.integers())
def test_any_content_gets_a_short_reading_on_one_line(content: str, least: int, greatest: int) -> None:
    reading = judge(state(equals="*", min=least, max=greatest), "state", content)
    assert reading.reason.isprintable()
    assert len(reading.reason.encode()) <= 100
    assert bool(reading.reason) == (reading.outcome is not Outcome.GOOD)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_a_number_is_good_exactly_between_min_and_max(number: int, least: int, greatest: int) -> None:
    reading = judge(state(min=least, max=greatest), "state", str(number))
    assert (reading.outcome is Outcome.GOOD) == (least <= number <= greatest)


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("result", "reading"),
    [
        (CommandResult(0, "all well"), GOOD),
        (CommandResult(1, "\n link down \nsince noon"), Reading.bad("link down")),
        (CommandResult(1), Reading.bad("the command ended with code 1 and printed no reason")),
        (CommandResult(2, "usage: ..."), Reading.unknown("the command ended with code 2: usage: ...")),
        (CommandResult(127), Reading.unknown("the command ended with code 127")),
        (CommandResult(-11), Reading.unknown("signal 11 ended the command")),
        (CommandResult(0, was_killed=True), Reading.unknown("the command did not end in time")),
        (CommandResult(1, "x", was_killed=True), Reading.unknown("the command did not end in time")),
        (CommandResult(fault="no such file"), Reading.unknown("no such file")),
    ],
)
def test_only_exit_codes_0_and_1_say_anything(result: CommandResult, reading: Reading) -> None:
    assert judge_command(result) == reading


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [None, OSError(errno.EBUSY, "busy")])
def test_a_node_that_opens_or_is_in_use_is_good(error: OSError | None) -> None:
    assert judge_open("/dev/x", error) == GOOD


@pytest.mark.parametrize("error", [errno.ENXIO, errno.ENODEV, errno.EIO, errno.ENOENT, errno.ETIMEDOUT])
def test_a_node_whose_device_does_not_answer_is_bad(error: int) -> None:
    assert judge_open("/dev/x", OSError(error, "a text")).outcome is Outcome.BAD


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES])
def test_a_node_that_devplug_may_not_open_is_unknown_with_advice(error: int) -> None:
    reading = judge_open("/dev/x", OSError(error, "a text"))
    assert reading == Reading.unknown(
        "devplug may not open /dev/x; an open rule needs a privileged container"
    )


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
def test_a_node_that_fails_for_another_reason_is_unknown(error: int) -> None:
    assert judge_open("/dev/x", OSError(error, "a text")).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("node", "subsystem", "answer"),
    [
        (HostDeviceNode("/dev/any", (10, 130)), "", True),
        (HostDeviceNode("/dev/any", (247, 1)), "watchdog", True),
        (HostDeviceNode("/dev/by-name/wd", (247, 1), real_path="/dev/watchdog1"), "", True),
        (HostDeviceNode("/dev/kvm", (10, 232)), "misc", False),
        (HostDeviceNode("/dev/x", (10, 130), is_block=True), "block", False),
    ],
)
def test_a_watchdog_is_known_by_number_subsystem_or_name(
    node: HostDeviceNode, subsystem: str, answer: bool
) -> None:
    assert is_watchdog(node, subsystem) is answer


# ── readings in a row ─────────────────────────────────────────────────────────────────────────────


DOWN = Health.unhealthy("link down")


READINGS = st.lists(st.sampled_from([GOOD, BAD, UNKNOWN]), max_size=40)


def naive_health(readings: list[Reading], failures: int, successes: int) -> Health:
    """The rule in other words: the health turns when the last so many readings all contradict it."""
    said = [reading.outcome is Outcome.GOOD for reading in readings if reading.outcome is not Outcome.UNKNOWN]
    if not said:
        return Health.unknown("no answer" if readings else "not checked yet")
    is_good = said[0]
    for end in range(1, len(said) + 1):
        needed = failures if is_good else successes
        latest = said[max(0, end - needed) : end]
        if len(latest) == needed and set(latest) == {not is_good}:
            is_good = not is_good
    return Health.healthy() if is_good else Health.unhealthy("link down")


@given(READINGS, st.integers(1, 6), st.integers(1, 6))
def test_any_readings_end_where_the_naive_rule_ends(
    readings: list[Reading], failures: int, successes: int
) -> None:
    judgement = after(Judgement(failures, successes), *readings)
    assert judgement.health == naive_health(readings, failures, successes)


# ── several rules ─────────────────────────────────────────────────────────────────────────────────


def test_the_reasons_of_all_rules_that_do_not_hold_are_told_once_each() -> None:
    healths = [
        Health.unhealthy("hot"),
        Health.healthy(),
        Health.unknown("late"),
        Health.unhealthy("down"),
        Health.unhealthy("hot"),
    ]
    assert combined(healths) == Health.unhealthy("hot; down")


def test_what_nobody_contradicts_is_unknown_or_healthy() -> None:
    assert combined([Health.healthy(), Health.unknown("late")]) == Health.unknown("late")
    assert combined([Health.healthy(), Health.healthy()]) == Health.healthy()
    assert combined([]) == Health.healthy()


HEALTHS = st.lists(
    st.sampled_from([Health.healthy(), Health.unhealthy("a"), Health.unhealthy("b"), Health.unknown("c")])
)


@given(HEALTHS)
def test_the_worst_opinion_counts_in_any_order(healths: list[Health]) -> None:
    worst = max(
        (health.state for health in healths),
        key=[HealthState.HEALTHY, HealthState.UNKNOWN, HealthState.UNHEALTHY].index,
        default=HealthState.HEALTHY,
    )
    assert combined(healths).state is worst
    assert combined(reversed(healths)).state is worst
