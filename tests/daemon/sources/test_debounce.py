"""When a source looks again: when what came has settled, at once after a loss, neither too often nor late."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.debounce import (
    AGAIN_SECONDS,
    AT_MOST_SECONDS,
    BURST,
    BURST_WINDOW_SECONDS,
    LOOK_SHARE,
    PACE_SECONDS,
    QUIET_SECONDS,
    Debounce,
    Departures,
)

RESYNC_SECONDS = 30.0
MISSED = "missed"
NEARLY = 1e-6
"""What sums of times may differ by."""


@dataclass
class Played:
    """A source that is told of events, and looks exactly when it is due."""

    settling: Debounce = field(default_factory=lambda: Debounce(RESYNC_SECONDS))
    looks: list[float] = field(default_factory=list)
    told: int = 0
    told_before: list[int] = field(default_factory=list)
    """How many events came before each look."""

    def until(self, end: float) -> None:
        while (due_at := self.settling.due_at()) <= end:
            at = max(due_at, self.looks[-1] if self.looks else 0.0)
            self.settling.looked(at)
            self.looks.append(at)
            self.told_before.append(self.told)

    def tell(self, action: str, at: float) -> None:
        self.until(at)
        self.told += 1
        if action == MISSED:
            self.settling.missed(at)
        else:
            self.settling.note(action, at)


def played(*events: tuple[float, str], until: float) -> list[float]:
    """When the looks after the first one are, which is at 0."""
    source = Played()
    source.until(0)
    for at, action in events:
        source.tell(action, at)
    source.until(until)
    assert source.looks[0] == 0
    return [round(at, 6) for at in source.looks[1:]]


def test_the_first_look_is_due_at_once() -> None:
    assert Debounce(RESYNC_SECONDS).due_at() < 0


def test_without_a_cause_there_is_a_look_at_each_resync_only() -> None:
    assert played(until=3600) == [30.0 * at for at in range(1, 121)]


def test_what_comes_is_looked_at_when_it_has_been_quiet_and_once_more_after_a_second() -> None:
    """A USB serial adapter: the device, its interface, the tty, and last the bindings."""
    events = ((1.0, "add"), (1.01, "add"), (1.031, "add"), (1.045, "bind"))
    assert played(*events, until=10) == [1.095, 2.045]


def test_what_never_becomes_quiet_is_looked_at_after_half_a_second() -> None:
    events = [(1 + at * 0.04, "change") for at in range(20)]
    assert played(*events, until=1.6) == [1.5]


def test_what_leaves_is_looked_at_at_once() -> None:
    assert played((1.0, "remove"), until=10) == [1.0]


def test_the_rest_of_a_usb_device_that_leaves_is_one_more_look() -> None:
    """The tty goes first, then its driver, the interface and the device."""
    events = ((1.0, "remove"), (1.004, "unbind"), (1.006, "remove"), (1.02, "unbind"), (1.03, "remove"))
    assert played(*events, until=10) == [1.0, 1.08]


def test_what_leaves_does_not_show_something_else_in_pieces() -> None:
    assert played((1.0, "add"), (1.01, "remove"), (1.03, "add"), until=1.5) == [1.08]


def test_what_leaves_and_comes_back_at_once_is_looked_at_when_it_has_settled() -> None:
    """Told in one go, as when a USB device is reset."""
    source = Played()
    source.until(0)
    source.settling.note("remove", 1.0)
    source.settling.note("add", 1.0)
    source.until(1.5)
    assert source.looks[1:] == [1.05]


def test_a_resync_does_not_show_what_comes_in_pieces() -> None:
    assert played((29.99, "add"), (30.02, "bind"), until=30.5) == [30.07]


def test_a_resync_does_not_wait_for_a_second_look() -> None:
    source = Played(Debounce(0.4))
    source.tell("add", 0.1)
    source.until(1.2)
    assert [round(at, 6) for at in source.looks] == [0, 0.15, 0.55, 0.95, 1.1]


def test_lost_events_may_have_told_of_something_that_came() -> None:
    assert played((1.0, "remove"), (1.01, MISSED), until=10) == [1.0, 1.06, 2.01]


@pytest.mark.parametrize("action", ["change", "move", "online", "offline", "later-kernels"])
def test_every_other_word_is_a_change(action: str) -> None:
    assert played((1.0, action), until=10) == [1.05, 2.0]


@pytest.mark.parametrize("per_second", [1, 10, 100, 1000])
def test_what_flaps_has_two_looks_a_second_after_the_first_few(per_second: int) -> None:
    events = [(1 + at / per_second, "remove" if at % 2 else "add") for at in range(10 * per_second)]
    looks = [at for at in played(*events, until=11) if at <= 11]
    assert len(looks) <= BURST + 10 / PACE_SECONDS
    assert len([at for at in looks if at > 5]) <= 6 / PACE_SECONDS + 1


def test_what_flapped_is_looked_at_at_once_again_when_it_has_been_still() -> None:
    flaps = [(1 + at / 10, "remove") for at in range(100)]
    assert played(*flaps, (25.0, "remove"), (25.1, "remove"), until=26)[-2:] == [25.0, 25.1]


def test_what_is_heard_after_a_look_began_has_a_look_of_its_own() -> None:
    source = Played()
    source.until(0)
    source.settling.note("add", 1.0)
    source.settling.looked(1.05)
    source.settling.note("add", 1.05)
    source.until(1.2)
    assert source.looks == [0, 1.1]


# ── whatever happens ──

ACTIONS = st.sampled_from(["add", "bind", "change", "remove", "unbind", "remove", MISSED])
GAPS = st.one_of(
    st.just(0.0), st.floats(0.0005, 0.04), st.floats(0.04, 0.06), st.floats(0.06, 1.5), st.floats(1.5, 70)
)


@dataclass
class History:
    events: list[tuple[float, str]]
    looks: list[float]
    told_before: list[int]

    def unseen(self, look: int) -> list[tuple[float, str]]:
        """The events that this look is the first to show."""
        return self.events[self.told_before[look - 1] : self.told_before[look]]

    def has_cause(self, look: int) -> bool:
        """Whether it shows an event, or is the second one after the last that came."""
        told = self.events[: self.told_before[look]]
        again_at = max((at + AGAIN_SECONDS for at, action in told if comes(action)), default=0.0)
        return bool(self.unseen(look)) or self.looks[look - 1] < again_at <= self.looks[look]


def comes(action: str) -> bool:
    return action not in {"remove", "unbind"}


@st.composite
def histories(draw: st.DrawFn) -> History:
    source = Played()
    source.until(0)
    events: list[tuple[float, str]] = []
    at = 0.001
    for gap, action in draw(st.lists(st.tuples(GAPS, ACTIONS), max_size=60)):
        at += gap
        source.tell(action, at)
        events.append((at, action))
    source.until(at + 70)
    return History(events, source.looks, source.told_before)


@given(histories())
def test_every_event_is_shown_within_half_a_second(history: History) -> None:
    for at, _ in history.events:
        assert any(at <= look <= at + AT_MOST_SECONDS + NEARLY for look in history.looks)


@given(histories())
def test_no_look_is_without_a_cause_before_the_resync(history: History) -> None:
    for look in range(1, len(history.looks)):
        gap = history.looks[look] - history.looks[look - 1]
        assert history.has_cause(look) or gap >= RESYNC_SECONDS - NEARLY


@given(histories())
def test_no_two_looks_are_further_apart_than_the_resync(history: History) -> None:
    for before, after in zip(history.looks, history.looks[1:], strict=False):
        assert after - before <= RESYNC_SECONDS + AT_MOST_SECONDS + NEARLY


@given(histories())
def test_nothing_is_shown_in_pieces(history: History) -> None:
    """Unless it leaves, or is not quiet for half a second."""
    for look in range(1, len(history.looks)):
        at, unseen = history.looks[look], history.unseen(look)
        if any(comes(action) for _, action in unseen):
            is_quiet = at - unseen[-1][0] >= QUIET_SECONDS - NEARLY
            assert is_quiet or at - unseen[0][0] >= AT_MOST_SECONDS - NEARLY


@given(histories())
def test_what_came_is_looked_at_once_more_when_udev_is_done(history: History) -> None:
    coming = [at for at, action in history.events if comes(action)]
    for at, after in zip(coming, [*coming[1:], float("inf")], strict=False):
        if after > at + AGAIN_SECONDS:
            again_at = at + AGAIN_SECONDS
            assert any(
                again_at - NEARLY <= look <= again_at + PACE_SECONDS + AT_MOST_SECONDS + NEARLY
                for look in history.looks
            )


@given(histories())
def test_after_a_burst_looks_keep_their_distance(history: History) -> None:
    caused = [look for look in range(1, len(history.looks)) if history.has_cause(look)]
    for at in range(BURST, len(caused)):
        now = history.looks[caused[at]]
        if now - history.looks[caused[at - BURST]] < BURST_WINDOW_SECONDS - NEARLY:
            assert now - history.looks[caused[at] - 1] >= PACE_SECONDS - NEARLY


@given(st.lists(st.floats(0.001, 0.2)), st.floats(0, 0.1))
def test_looks_for_what_has_left_keep_their_distance_and_their_share_of_the_time(
    gaps: list[float], look_seconds: float
) -> None:
    distance = max(QUIET_SECONDS, look_seconds / LOOK_SHARE)
    departures, now, looked_at = Departures(), 0.0, -math.inf
    for gap in gaps:
        now += gap
        departures.note("remove", now)
        departures.note("add", now)
        due_at = departures.due_at()
        assert due_at <= max(now, looked_at + distance + NEARLY)
        if due_at <= now:
            assert now >= looked_at + distance - NEARLY
            departures.looked(now, now + look_seconds)
            looked_at = now
            assert departures.due_at() == math.inf
