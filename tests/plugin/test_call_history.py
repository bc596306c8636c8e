"""What our calls to a kubelet have brought, and which stream is the last one's: pure, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from devplug.plugin.socket_registration import CallHistory, StreamState, may_bring_stream, streams_owed

KUBELET = (1, 10, 100)
NEXT_KUBELET = (1, 11, 200)

ACCEPTED = CallHistory().called(0).accepted(1.0, KUBELET)
"""A call that was accepted; its stream has not come yet."""

LISTENED = ACCEPTED.streamed(1.1, {1}, 0.0)


def leftovers(history: CallHistory, streams: set[int], opened: int, told: int) -> bool:
    return history.has_leftovers(streams, streams_opened=opened, options_told=told)


def test_the_first_stream_after_a_call_is_its_own_whenever_it_comes() -> None:
    early = CallHistory().called(3).streamed(0.5, {4}, 0.0).accepted(1.0, KUBELET)
    assert early.is_registered
    assert LISTENED.is_registered


def test_an_accepted_call_without_its_stream_may_bring_one_until_the_socket_has_another_name() -> None:
    assert leftovers(ACCEPTED, set(), opened=0, told=1)
    moved = ACCEPTED.moved(20.0, streams_opened=0, options_told=1)
    assert not leftovers(moved, set(), opened=0, told=1)
    assert not moved.streamed(21.0, {1}, 0.0).is_registered


def test_a_stream_that_is_open_is_left_over_and_one_that_has_ended_is_not() -> None:
    assert leftovers(LISTENED, {1}, opened=1, told=1)
    assert not leftovers(LISTENED.streamed(2.0, set(), 0.0), set(), opened=1, told=1)


def test_a_call_whose_answer_was_lost_may_still_bring_its_stream() -> None:
    lost = CallHistory().called(0).failed(16.0, KUBELET, "DeadlineExceeded", "", is_unsent=False, jitter=0.0)
    assert leftovers(lost, set(), opened=0, told=0)
    unsent = CallHistory().called(0).failed(16.0, KUBELET, "Unavailable", "", is_unsent=True, jitter=0.0)
    assert not leftovers(unsent, set(), opened=0, told=0)
    assert leftovers(unsent, set(), opened=0, told=1), "its kubelet has asked who we are"


def test_a_call_that_was_not_sent_leaves_nothing_behind() -> None:
    unsent = CallHistory().called(0).connected(KUBELET).withdrawn()
    assert not leftovers(unsent, set(), opened=0, told=0)
    assert (unsent.is_registering, unsent.registered_with, unsent.failed_with) == (False, None, None)


def test_a_kubelet_that_has_let_us_in_and_then_does_not_is_gone_and_not_tried_again_soon() -> None:
    """Between bind(2) and listen(2) a kubelet refuses, too: one that has never let us in may be about to."""
    for reached, seconds in ((None, 0.01), (KUBELET, 5.0), (NEXT_KUBELET, 0.01)):
        failed = CallHistory().connected(reached).called(0)
        failed = failed.failed(6.0, KUBELET, "Unavailable", "", is_unsent=True, jitter=0.0)
        assert failed.register_not_before == pytest.approx(6.0 + seconds)


def test_a_call_that_fails_makes_the_one_before_void_and_keeps_its_kubelet_waiting() -> None:
    refused = LISTENED.streamed(5.0, set(), 0.0).called(1)
    refused = refused.failed(6.0, KUBELET, "Unknown", "not now", is_unsent=False, jitter=0.0)
    assert refused.registered_with is None
    assert (refused.failed_with, refused.failures) == (KUBELET, 1)
    assert refused.register_not_before == pytest.approx(6.01)


def test_a_stream_that_is_no_longer_ours_tells_nothing() -> None:
    assert LISTENED.called(1).streamed(2.0, {1}, 0.0).stream is StreamState.AWAITED


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
