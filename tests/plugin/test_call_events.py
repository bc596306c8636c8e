"""What our calls to a kubelet have brought, and which stream is the last one's: pure, event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from typing import Final, TypeVar

import pytest
from msgspec.structs import replace

from devplug.errors import RemoteError
from devplug.plugin.registration import (
    CALLS,
    STREAMS,
    CallEvent,
    CallState,
    SocketRegistration,
    StreamState,
    may_bring_stream,
    streams_owed,
)

KUBELET = (1, 10, 100)
NEXT_KUBELET = (1, 11, 200)

ACCEPTED = SocketRegistration().called(0).accepted(1.0, KUBELET)
"""A call that was accepted; its stream has not come yet."""

LISTENED = ACCEPTED.streamed(1.1, {1}, 0.0)


HAPPENS: Final[Mapping[CallEvent, Callable[[SocketRegistration], SocketRegistration]]] = {
    CallEvent.CALLED: lambda state: state.called(1),
    CallEvent.WITHDRAWN: lambda state: state.withdrawn(),
    CallEvent.ACCEPTED: lambda state: state.accepted(1.0, KUBELET),
    CallEvent.FAILED: lambda state: state.failed(1.0, KUBELET, RemoteError("Unknown", "no"), 0.0),
    CallEvent.OPENED: lambda state: state.streamed(1.0, {1}, 0.0),
    CallEvent.ENDED: lambda state: state.streamed(1.0, set(), 0.0),
    CallEvent.MOVED: lambda state: state.moved(1.0, streams_opened=1, options_answered=1),
}

State = TypeVar("State")


def following(
    table: Mapping[State, Mapping[CallEvent, State]], state: State, event: CallEvent
) -> State | None:
    """The next state; the same one if the table knows no such event, None if it cannot happen in this one."""
    is_known = any(event in row for row in table.values())
    return table[state].get(event) if is_known else state


@pytest.mark.parametrize(("call", "stream", "event"), [*product(CallState, StreamState, CallEvent)])
def test_an_event_moves_both_states_as_their_tables_say_and_no_other_can_happen(
    call: CallState, stream: StreamState, event: CallEvent
) -> None:
    ours = 0 if stream is StreamState.ENDED else 1
    before = SocketRegistration(call=call, stream=stream, our_stream=ours, registered_with=KUBELET)
    expected = following(CALLS, call, event), following(STREAMS, stream, event)
    if None not in expected:
        after = HAPPENS[event](before)
        assert (after.call, after.stream) == expected
    else:
        with suppress(KeyError):
            assert HAPPENS[event](before) is before


def leftovers(state: SocketRegistration, streams: set[int], opened: int, told: int) -> bool:
    return state.has_leftovers(streams, streams_opened=opened, options_answered=told)


def test_the_first_stream_after_a_call_is_its_own_whenever_it_comes() -> None:
    early = SocketRegistration().called(3).streamed(0.5, {4}, 0.0).accepted(1.0, KUBELET)
    assert early.is_registered
    assert LISTENED.is_registered


def test_an_accepted_call_without_its_stream_may_bring_one_until_the_socket_has_another_name() -> None:
    assert leftovers(ACCEPTED, set(), opened=0, told=1)
    moved = ACCEPTED.moved(20.0, streams_opened=0, options_answered=1)
    assert not leftovers(moved, set(), opened=0, told=1)
    assert not moved.streamed(21.0, {1}, 0.0).is_registered


def test_a_stream_that_is_open_is_left_over_and_one_that_has_ended_is_not() -> None:
    assert leftovers(LISTENED, {1}, opened=1, told=1)
    assert not leftovers(LISTENED.streamed(2.0, set(), 0.0), set(), opened=1, told=1)


def test_a_call_whose_answer_was_lost_may_still_bring_its_stream() -> None:
    lost = SocketRegistration().called(0).failed(16.0, KUBELET, RemoteError("DeadlineExceeded", ""), 0.0)
    assert leftovers(lost, set(), opened=0, told=0)
    unsent = (
        SocketRegistration()
        .called(0)
        .failed(16.0, KUBELET, RemoteError("Unavailable", "", is_unsent=True), 0.0)
    )
    assert not leftovers(unsent, set(), opened=0, told=0)
    assert leftovers(unsent, set(), opened=0, told=1), "its kubelet has asked who we are"


def test_a_call_that_was_not_sent_leaves_nothing_behind() -> None:
    unsent = SocketRegistration().called(0).connected(KUBELET).withdrawn()
    assert not leftovers(unsent, set(), opened=0, told=0)
    assert (unsent.call, unsent.registered_with, unsent.failed_with) == (CallState.UNCALLED, None, None)


def test_a_kubelet_that_has_let_us_in_and_then_does_not_is_gone_and_not_tried_again_soon() -> None:
    """Between bind(2) and listen(2) a kubelet refuses, too: one that has never let us in may be about to."""
    for reached, seconds in ((None, 0.01), (KUBELET, 5.0), (NEXT_KUBELET, 0.01)):
        failed = SocketRegistration().connected(reached).called(0)
        failed = failed.failed(6.0, KUBELET, RemoteError("Unavailable", "", is_unsent=True), 0.0)
        assert failed.register_not_before == pytest.approx(6.0 + seconds)


def test_a_call_that_fails_makes_the_one_before_void_and_keeps_its_kubelet_waiting() -> None:
    refused = LISTENED.streamed(5.0, set(), 0.0).called(1)
    refused = refused.failed(6.0, KUBELET, RemoteError("Unknown", "not now"), 0.0)
    assert refused.registered_with is None
    assert (refused.failed_with, refused.failures) == (KUBELET, 1)
    assert refused.register_not_before == pytest.approx(6.01)


def test_a_stream_that_is_no_longer_ours_tells_nothing() -> None:
    moved = LISTENED.moved(2.0, streams_opened=1, options_answered=1)
    assert moved.called(1).streamed(2.1, {1}, 0.0).stream is StreamState.AWAITED


def test_a_kubelet_that_ends_a_stream_of_ours_and_lives_on_is_remembered() -> None:
    cut = LISTENED.streamed(5.0, set(), 0.0).called(1).accepted(6.0, KUBELET)
    assert cut.cuts == (5.0,)
    by_us = LISTENED.streamed(5.0, set(), 0.0, ended_by_us=1).called(1).accepted(6.0, KUBELET)
    assert by_us.cuts == ()
    assert replace(cut, lost_at=7.0).called(1).accepted(8.0, NEXT_KUBELET).cuts == ()


@pytest.mark.parametrize(
    ("status", "is_unsent", "may"),
    [
        ("Unknown", False, False),
        ("Unavailable", True, False),
        ("Unavailable", False, True),
        ("DeadlineExceeded", False, True),
        ("Canceled", False, True),
    ],
)
def test_only_a_refusal_and_a_call_that_reached_nobody_bring_no_stream(
    status: str, is_unsent: bool, may: bool
) -> None:
    assert may_bring_stream(status, is_unsent=is_unsent) is may


def test_each_call_that_was_taken_and_each_that_asked_who_we_are_owes_one_stream() -> None:
    assert streams_owed(taken=0, introduced=0, opened=0) == 0
    assert streams_owed(taken=1, introduced=0, opened=0) == 1
    assert streams_owed(taken=0, introduced=1, opened=0) == 1
    assert streams_owed(taken=2, introduced=2, opened=1) == 1
    assert streams_owed(taken=1, introduced=1, opened=5) == 0
