"""When the socket of a plugin in `plugins_registry` is made anew: pure rules, each a row or a property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.plugin.registration import (
    LEVEL_CHECK_SECONDS,
    Folder,
    RegistrationFacts,
    RegistrationMode,
    Step,
    chosen_mode,
)
from devplug.plugin.watcher_registration import (
    TRANSITIONS,
    WatcherEvent,
    WatcherRegistration,
    WatcherState,
    patience_seconds,
)

NOW = 1000.0
READY = RegistrationFacts(
    now=NOW,
    folder=Folder.PRESENT,
    has_list=True,
    has_lock=True,
    is_bound=True,
    lock_not_before=0.0,
    bind_not_before=0.0,
)
"""A plugin that has all but a kubelet."""

MADE = WatcherRegistration().made(NOW, 0)
ASKED = MADE.asked(NOW, 0, 0)
LISTENED = ASKED.streamed(NOW, {1}, 0)
REGISTERED = LISTENED.accepted()
OLD = replace(REGISTERED, since=NOW - 100)
"""Registered long enough for the end of its stream to be no quick one."""


def step(state: WatcherRegistration, seconds_later: float = 0) -> tuple[Step, float]:
    return state.next_step(replace(READY, now=NOW + seconds_later))


# ── which way ──


@pytest.mark.parametrize("has_plugin_dir", [False, True])
@pytest.mark.parametrize("has_registry", [False, True])
@pytest.mark.parametrize("asked", ["socket", "watcher"])
def test_a_way_that_is_named_is_taken(asked: str, has_plugin_dir: bool, has_registry: bool) -> None:
    assert chosen_mode(asked, has_plugin_dir=has_plugin_dir, has_registry=has_registry) == asked


@pytest.mark.parametrize(
    ("has_plugin_dir", "has_registry", "way"),
    [
        (True, True, RegistrationMode.SOCKET),
        (True, False, RegistrationMode.SOCKET),
        (False, False, RegistrationMode.SOCKET),
        (False, True, RegistrationMode.WATCHER),
    ],
)
def test_auto_is_found_only_where_nothing_else_is_possible(
    has_plugin_dir: bool, has_registry: bool, way: RegistrationMode
) -> None:
    assert chosen_mode("auto", has_plugin_dir=has_plugin_dir, has_registry=has_registry) is way


# ── getting registered ──


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (replace(READY, folder=Folder.LOST), Step.GIVE_UP),
        (replace(READY, folder=Folder.ABSENT), Step.WAIT),
        (replace(READY, has_list=False, has_lock=False, is_bound=False), Step.WAIT),
        (replace(READY, has_lock=False, is_bound=False), Step.LOCK),
        (replace(READY, is_bound=False), Step.BIND),
        (replace(READY, is_bound=False, bind_not_before=NOW + 1), Step.WAIT),
    ],
)
def test_the_facts_are_those_of_a_plugin_that_calls_the_kubelet(
    seen: RegistrationFacts, wanted: Step
) -> None:
    assert OLD.next_step(seen)[0] is wanted


def test_a_plugin_is_registered_when_it_was_told_so_and_is_listened_to() -> None:
    assert not MADE.is_registered
    assert not ASKED.is_registered
    assert not ASKED.accepted().is_registered
    assert not LISTENED.is_registered
    assert REGISTERED.is_registered
    assert ASKED.accepted().streamed(NOW, {1}, 0).is_registered


def test_a_plugin_that_is_listened_to_waits() -> None:
    assert step(REGISTERED, 10_000) == (Step.WAIT, LEVEL_CHECK_SECONDS)


def test_a_stream_that_no_question_came_before_is_not_the_kubelets() -> None:
    assert MADE.streamed(NOW, {1}, 0) == MADE
    assert ASKED.streamed(NOW, {2, 3}, 0) == ASKED


# ── waiting to be asked ──


@pytest.mark.parametrize("state", [MADE, ASKED], ids=["not asked", "asked"])
def test_a_socket_without_a_stream_has_fifteen_seconds(state: WatcherRegistration) -> None:
    assert step(state) == (Step.WAIT, LEVEL_CHECK_SECONDS)
    assert step(state, 14) == (Step.WAIT, 1.0)
    assert step(state, 15) == (Step.RENEW, 0)


def test_sockets_that_nobody_asks_at_are_made_anew_ever_more_slowly() -> None:
    state, at, waits = MADE, NOW, []
    for _ in range(6):
        waits.append(state.wait_seconds)
        at += state.wait_seconds
        state = state.made(at, 0)
    assert waits == [15, 30, 60, 120, 120, 120]


def test_a_stream_makes_the_pace_quick_again() -> None:
    weary = replace(MADE, fruitless=5)
    cut = weary.asked(NOW, 7, 0).streamed(NOW, {8}, 0).streamed(NOW + 60, (), 0)
    assert cut.made(NOW + 61, 0).wait_seconds == 15


@pytest.mark.parametrize("state", [MADE, ASKED, ASKED.refused(NOW, 0)])
def test_a_socket_that_somebody_removed_in_its_time_was_not_fruitless(state: WatcherRegistration) -> None:
    assert state.made(NOW + 1, 0).fruitless == 0


def test_a_refused_plugin_waits_for_longer_than_the_kubelet_does() -> None:
    refused = ASKED.refused(NOW, 0)
    assert step(refused, 122 + 1 + 10)[0] is Step.WAIT
    assert step(refused, 150) == (Step.RENEW, 0)
    assert refused.asked(NOW + 5, 0, 0).streamed(NOW + 5, {1}, 0).accepted().is_registered


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_patience_has_two_bounds_and_never_shrinks(fruitless: int, jitter: float) -> None:
    patience = patience_seconds(fruitless, jitter)
    assert 15 <= patience <= 144
    assert patience <= patience_seconds(fruitless + 1, jitter)


# ── after a stream ──


def test_a_lost_stream_means_a_new_socket_after_a_quarter_of_a_second() -> None:
    cut = OLD.streamed(NOW, (), 0)
    assert not cut.is_registered
    assert step(cut) == (Step.WAIT, 0.25)
    assert step(cut, 0.25) == (Step.RENEW, 0)
    assert step(cut.made(NOW + 0.25, 0), 1)[0] is Step.WAIT


def test_streams_that_are_cut_at_once_are_followed_more_slowly() -> None:
    state, waits = MADE, []
    for number in range(4):
        state = state.asked(NOW, number, 0).streamed(NOW, {number + 1}, 0)
        state = state.streamed(NOW + 0.5, (), 0)
        waits.append(state.wait_seconds)
    assert waits == [0.25, 0.5, 0.5, 0.5]


def test_a_kubelet_that_asks_within_the_wait_spares_the_new_socket() -> None:
    """It has just started, and finds the socket that is there."""
    asked = OLD.streamed(NOW, (), 0).asked(NOW + 0.1, 1, 0)
    assert step(asked, 1)[0] is Step.WAIT
    assert asked.accepted().streamed(NOW + 1, {2}, 0).is_registered


def test_a_kubelet_that_asks_before_the_old_stream_is_seen_to_end_spares_it_too() -> None:
    asked = OLD.asked(NOW - 0.1, 1, 0).streamed(NOW, (), 0)
    assert asked.state is WatcherState.ASKED
    assert step(asked, 14)[0] is Step.WAIT
    assert asked.accepted().streamed(NOW + 1, {2}, 0).is_registered


def test_a_stream_of_the_next_kubelet_is_followed_before_the_old_one_has_ended() -> None:
    both = OLD.asked(NOW, 1, 0).streamed(NOW, {1, 2}, 0)
    assert both.stream == 2
    assert both.streamed(NOW, {2}, 0).is_registered


def test_a_question_of_somebody_else_changes_nothing_for_a_plugin_that_is_listened_to() -> None:
    asked = OLD.asked(NOW, 1, 0)
    assert asked.is_registered
    assert step(asked, 10_000)[0] is Step.WAIT
    assert asked.refused(NOW, 0).is_registered
    cut = asked.streamed(NOW + 10_000, (), 0)
    assert (cut.state, cut.wait_seconds) == (WatcherState.CUT, 0.25)


def test_a_socket_that_was_made_again_during_the_stream_is_asked_without_another() -> None:
    """The kubelet has seen it made: it cuts the stream at its next look, and asks at the one after that."""
    cut = OLD.made(NOW - 1, 0).streamed(NOW, (), 0)
    assert cut.state is WatcherState.UNASKED
    assert step(cut, 14)[0] is Step.WAIT
    assert cut.asked(NOW + 1, 1, 0).accepted().streamed(NOW + 1, {2}, 0).is_registered


def test_a_stream_that_comes_late_is_followed_whatever_was_since_its_question() -> None:
    asked = OLD.asked(NOW - 50, 1, 0)
    for late in (asked.streamed(NOW, (), 0), asked.made(NOW - 1, 0).streamed(NOW, (), 0)):
        assert late.state in {WatcherState.CUT, WatcherState.UNASKED}
        assert late.streamed(NOW + 1, {2}, 0).state is WatcherState.LISTENED


def test_a_socket_that_cannot_be_made_is_not_tried_without_a_pause() -> None:
    cut = OLD.streamed(NOW - 10, (), 0)
    assert cut.next_step(replace(READY, bind_not_before=NOW + 1)) == (Step.WAIT, 1.0)


# ── whatever happens ──

EVENTS = ("made", "asked", "accepted", "refused", "opened", "ended", "all ended")
events = st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 200), st.floats(0, 1)), max_size=40)


def after(happened: list[tuple[str, float, float]]) -> tuple[WatcherRegistration, float, set[int]]:
    """The state after some events, each with the seconds before it and a jitter."""
    state, now, opened = WatcherRegistration().made(NOW, 0), NOW, 0
    streams: set[int] = set()
    for event, pause, jitter in happened:
        now += pause
        match event:
            case "made":
                state = state.made(now, jitter)
            case "asked":
                state = state.asked(now, opened, jitter)
            case "accepted":
                state = state.accepted()
            case "refused":
                state = state.refused(now, jitter)
            case "opened":
                opened += 1
                streams.add(opened)
                state = state.streamed(now, streams, jitter)
            case _:
                streams = set() if event == "all ended" else streams - {min(streams, default=0)}
                state = state.streamed(now, streams, jitter)
    return state, now, streams


@pytest.mark.parametrize("state", [one for one in WatcherState if one is not WatcherState.UNMADE])
def test_a_kubelet_may_ask_refuse_and_see_the_socket_made_in_any_state(state: WatcherState) -> None:
    before = WatcherRegistration(state=state, stream=1)
    assert before.made(NOW, 0).state is TRANSITIONS[state][WatcherEvent.MADE]
    assert before.asked(NOW, 1, 0).state is TRANSITIONS[state][WatcherEvent.ASKED]
    assert before.refused(NOW, 0).state is TRANSITIONS[state][WatcherEvent.REFUSED]


def test_nobody_can_ask_at_a_socket_that_was_never_made() -> None:
    with pytest.raises(KeyError):
        WatcherRegistration().asked(NOW, 0, 0)


@given(events)
def test_a_plugin_is_registered_only_while_a_stream_is_open(happened: list[tuple[str, float, float]]) -> None:
    state, _, streams = after(happened)
    if state.is_registered:
        assert state.stream in streams


@given(events)
def test_a_socket_is_never_made_anew_while_its_stream_is_open(
    happened: list[tuple[str, float, float]],
) -> None:
    state, now, streams = after(happened)
    if state.state is WatcherState.LISTENED:
        assert state.stream in streams
        assert state.next_step(replace(READY, now=now + 10_000))[0] is Step.WAIT


@given(events)
def test_without_a_stream_the_socket_is_made_anew_sooner_or_later(
    happened: list[tuple[str, float, float]],
) -> None:
    state, now, _ = after(happened)
    if state.state is not WatcherState.LISTENED:
        assert state.next_step(replace(READY, now=now + 180)) == (Step.RENEW, 0)


@given(events)
def test_a_new_socket_that_is_asked_listened_to_and_accepted_is_registered(
    happened: list[tuple[str, float, float]],
) -> None:
    """Whatever was before, in either order of the last two."""
    state, now, streams = after([*happened, ("all ended", 0, 0), ("made", 20, 0)])
    asked = state.asked(now, 100, 0)
    assert asked.accepted().streamed(now, {101}, 0).is_registered
    assert asked.streamed(now, {101}, 0).accepted().is_registered
    assert streams == set()


@given(events)
def test_a_new_socket_never_follows_another_within_a_quarter_of_a_second(
    happened: list[tuple[str, float, float]],
) -> None:
    state, now, _ = after([*happened, ("made", 0, 0)])
    assert state.next_step(replace(READY, now=now + 0.2))[0] is not Step.RENEW
