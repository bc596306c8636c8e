"""The decision what to do next: a pure function, so each trigger and each wait is one row."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from devplug.plugin.socket_registration import (
    LEVEL_CHECK_SECONDS,
    Folder,
    RegistrationFacts,
    Step,
    StreamState,
    cut_wait_seconds,
    may_send,
    next_step,
    retry_wait_seconds,
)

if TYPE_CHECKING:
    from devplug.wire.values import SocketIdentity

KUBELET = (1, 10, 100)
NEXT_KUBELET = (1, 11, 200)

SETTLED = RegistrationFacts(
    now=100.0,
    folder=Folder.PRESENT,
    has_list=True,
    has_lock=True,
    is_bound=True,
    kubelet=KUBELET,
    registered_with=KUBELET,
    registered_at=50.0,
    is_registering=False,
    stream=StreamState.OPEN,
    cut_at=0.0,
    cut_wait_seconds=0.25,
    has_leftovers=False,
    lock_not_before=0.0,
    bind_not_before=0.0,
    register_not_before=0.0,
    failed_with=None,
)
"""A registered plugin whose list the kubelet listens to."""

FRESH = replace(SETTLED, registered_with=None, registered_at=0.0, stream=StreamState.AWAITED)
"""A plugin that has all but a registration."""

CUT = replace(SETTLED, stream=StreamState.ENDED, cut_at=99.9)
"""A plugin whose stream was lost 100 ms ago."""

WAIT = (Step.WAIT, LEVEL_CHECK_SECONDS)

identities = st.sampled_from([None, KUBELET, NEXT_KUBELET])
times = st.floats(0, 200)
situations = st.builds(
    RegistrationFacts,
    now=st.just(100.0),
    folder=st.sampled_from(Folder),
    has_list=st.booleans(),
    has_lock=st.booleans(),
    is_bound=st.booleans(),
    kubelet=identities,
    registered_with=identities,
    registered_at=times,
    is_registering=st.booleans(),
    stream=st.sampled_from(StreamState),
    cut_at=times,
    cut_wait_seconds=st.floats(0.25, 1.2),
    has_leftovers=st.booleans(),
    lock_not_before=times,
    bind_not_before=times,
    register_not_before=times,
    failed_with=identities,
    calling=identities,
)


# ── the three triggers ──


def test_a_plugin_with_a_list_a_lock_and_a_socket_registers_at_once() -> None:
    assert next_step(FRESH) == (Step.REGISTER, 0)


def test_a_new_kubelet_socket_is_registered_with_at_once() -> None:
    assert next_step(replace(SETTLED, kubelet=NEXT_KUBELET)) == (Step.REGISTER, 0)


def test_a_new_kubelet_socket_does_not_wait_for_the_end_of_an_old_failure() -> None:
    failed = replace(FRESH, failed_with=KUBELET, register_not_before=130.0)
    assert next_step(replace(failed, kubelet=NEXT_KUBELET)) == (Step.REGISTER, 0)


def test_a_new_kubelet_socket_does_not_wait_after_a_cut() -> None:
    assert next_step(replace(CUT, kubelet=NEXT_KUBELET)) == (Step.REGISTER, 0)


def test_a_lost_socket_is_bound_again_while_the_stream_lives_without_a_registration() -> None:
    lost = replace(SETTLED, is_bound=False)
    assert next_step(lost) == (Step.BIND, 0)
    assert next_step(replace(lost, is_bound=True)) == WAIT


def test_a_lost_stream_of_the_same_kubelet_waits_for_the_clean_up_and_registers() -> None:
    step, seconds = next_step(CUT)
    assert step is Step.WAIT
    assert seconds == pytest.approx(0.15)
    assert next_step(replace(CUT, now=99.9 + 0.25)) == (Step.REGISTER, 0)


def test_a_call_to_a_kubelet_that_another_has_replaced_is_given_up_at_once() -> None:
    calling = replace(FRESH, is_registering=True, calling=KUBELET)
    assert next_step(calling) == WAIT
    assert next_step(replace(calling, kubelet=None)) == WAIT
    assert next_step(replace(calling, kubelet=NEXT_KUBELET)) == (Step.LEAVE, 0)
    given_up = replace(calling, kubelet=NEXT_KUBELET, calling=None)
    assert next_step(given_up) == WAIT
    failed = replace(given_up, is_registering=False, failed_with=KUBELET, register_not_before=130.0)
    assert next_step(failed) == (Step.REGISTER, 0)


@pytest.mark.parametrize("removed", [("ours", "its own"), ("its own", "ours")])
def test_register_is_never_sent_to_a_kubelet_that_has_removed_our_socket(removed: tuple[str, str]) -> None:
    """The three steps of a kubelet that starts, between any of our six."""

    def own(steps: int) -> bool:
        return "ours" not in removed[:steps]

    def kubelet(steps: int) -> SocketIdentity | None:
        return NEXT_KUBELET if steps == 3 else None if "its own" in removed[:steps] else KUBELET

    outcomes = set()
    for done in combinations_with_replacement(range(4), 6):  # how many of its steps, at each of ours
        decided = replace(FRESH, is_bound=own(done[0]), kubelet=kubelet(done[1]))
        is_let_in = next_step(decided)[0] is Step.REGISTER and done[3] == 3
        called = replace(FRESH, is_registering=True, calling=kubelet(done[2]))
        sends = is_let_in and may_send(replace(called, kubelet=kubelet(done[4]), is_bound=own(done[5])))
        outcomes.add((is_let_in, sends))
    assert outcomes == {(False, False), (True, False)}


def test_register_is_sent_to_the_kubelet_that_was_called_and_no_other() -> None:
    calling = replace(FRESH, is_registering=True, calling=KUBELET)
    assert may_send(calling)
    assert not may_send(replace(calling, kubelet=NEXT_KUBELET))
    assert not may_send(replace(calling, kubelet=None))
    assert not may_send(replace(calling, has_lock=False))


# ── the waits ──


@pytest.mark.parametrize(
    "seen",
    [
        SETTLED,
        replace(FRESH, kubelet=None),
        replace(FRESH, folder=Folder.ABSENT),
        replace(FRESH, has_list=False),
        replace(FRESH, has_list=False, has_lock=False, is_bound=False),
        replace(FRESH, is_registering=True),
        replace(SETTLED, kubelet=NEXT_KUBELET, is_registering=True),
        replace(SETTLED, kubelet=None, stream=StreamState.ENDED),
    ],
    ids=[
        "registered",
        "no kubelet",
        "no folder",
        "no list",
        "no list and nothing else",
        "a registration on its way",
        "a registration on its way while the kubelet is new",
        "kubelet gone",
    ],
)
def test_there_is_nothing_to_do_but_look_again_in_five_seconds(seen: RegistrationFacts) -> None:
    assert next_step(seen) == (Step.WAIT, 5.0)


def test_a_lost_folder_ends_it_whatever_else_is_true() -> None:
    assert next_step(replace(SETTLED, folder=Folder.LOST)) == (Step.GIVE_UP, 0)
    assert next_step(replace(FRESH, folder=Folder.LOST, has_list=False)) == (Step.GIVE_UP, 0)


def test_the_lock_comes_before_the_socket_and_the_socket_before_the_registration() -> None:
    bare = replace(FRESH, has_lock=False, is_bound=False)
    assert next_step(bare)[0] is Step.LOCK
    assert next_step(replace(bare, has_lock=True))[0] is Step.BIND
    assert next_step(replace(bare, has_lock=True, is_bound=True))[0] is Step.REGISTER


def test_a_lost_lock_is_taken_again_before_anything_else() -> None:
    assert next_step(replace(SETTLED, has_lock=False, is_bound=False))[0] is Step.LOCK


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (replace(FRESH, has_lock=False, lock_not_before=101.0), Step.LOCK),
        (replace(FRESH, is_bound=False, bind_not_before=101.0), Step.BIND),
        (replace(FRESH, failed_with=KUBELET, register_not_before=101.0), Step.REGISTER),
    ],
)
def test_what_has_just_failed_is_tried_again_at_its_time(seen: RegistrationFacts, step: Step) -> None:
    assert next_step(seen) == (Step.WAIT, 1.0)
    assert next_step(replace(seen, now=101.0)) == (step, 0)


def test_a_stream_that_never_comes_is_given_fifteen_seconds() -> None:
    silent = replace(SETTLED, stream=StreamState.AWAITED, registered_at=90.0)
    assert next_step(silent) == (Step.WAIT, 5.0)
    assert next_step(replace(silent, now=104.0)) == (Step.WAIT, 1.0)
    assert next_step(replace(silent, now=105.0)) == (Step.REGISTER, 0)


def test_a_failure_after_a_cut_waits_for_both() -> None:
    both = replace(CUT, failed_with=KUBELET, register_not_before=100.05)
    for seen, wait in [
        (replace(both, now=100.1), 0.05),
        (replace(both, now=101.0, register_not_before=103.0), 2.0),
    ]:
        step, seconds = next_step(seen)
        assert step is Step.WAIT
        assert seconds == pytest.approx(wait)


# ── what earlier calls may still bring ──


def test_a_socket_whose_name_may_still_bring_a_stream_is_left_before_the_next_call() -> None:
    for seen in (FRESH, replace(SETTLED, kubelet=NEXT_KUBELET), replace(CUT, now=200.0)):
        assert next_step(replace(seen, has_leftovers=True)) == (Step.MOVE, 0)


def test_a_lost_stream_leaves_the_others_at_once_and_an_awaited_one_at_its_deadline() -> None:
    assert next_step(replace(CUT, has_leftovers=True)) == (Step.MOVE, 0)
    awaited = replace(SETTLED, stream=StreamState.AWAITED, registered_at=90.0, has_leftovers=True)
    assert next_step(awaited) == (Step.WAIT, 5.0)
    assert next_step(replace(awaited, now=105.0)) == (Step.MOVE, 0)


def test_what_is_left_over_is_no_reason_to_leave_as_long_as_the_kubelet_listens() -> None:
    assert next_step(replace(SETTLED, has_leftovers=True)) == WAIT


@given(situations)
def test_a_call_is_never_made_while_another_may_still_bring_a_stream(seen: RegistrationFacts) -> None:
    assert next_step(replace(seen, has_leftovers=True))[0] is not Step.REGISTER


# ── whatever is seen ──


@given(situations)
def test_two_registrations_are_never_on_their_way(seen: RegistrationFacts) -> None:
    assert next_step(replace(seen, is_registering=True))[0] is not Step.REGISTER


def test_however_due_a_registration_is_it_waits_for_the_one_on_its_way() -> None:
    for due in (FRESH, replace(SETTLED, kubelet=NEXT_KUBELET), replace(CUT, now=200.0)):
        assert next_step(due)[0] is Step.REGISTER
        assert next_step(replace(due, is_registering=True, calling=due.kubelet))[0] is Step.WAIT


@given(situations)
def test_a_plugin_that_the_kubelet_listens_to_never_registers_again(seen: RegistrationFacts) -> None:
    assume(seen.kubelet is not None)
    listened_to = replace(seen, registered_with=seen.kubelet, stream=StreamState.OPEN)
    assert next_step(listened_to)[0] is not Step.REGISTER


@given(situations)
def test_a_registration_needs_all_its_grounds(seen: RegistrationFacts) -> None:
    if next_step(seen)[0] is Step.REGISTER:
        assert seen.folder is Folder.PRESENT
        assert seen.has_list
        assert seen.has_lock
        assert seen.is_bound
        assert seen.kubelet is not None


@given(situations)
def test_a_registration_after_a_cut_never_comes_within_the_wait(seen: RegistrationFacts) -> None:
    cut = replace(seen, registered_with=seen.kubelet, stream=StreamState.ENDED)
    if next_step(cut)[0] is Step.REGISTER:
        assert cut.now >= cut.cut_at + cut.cut_wait_seconds


@given(situations)
def test_a_wait_is_never_longer_than_the_level_check_and_any_other_step_is_now(
    seen: RegistrationFacts,
) -> None:
    step, seconds = next_step(seen)
    assert 0 < seconds <= LEVEL_CHECK_SECONDS if step is Step.WAIT else seconds == 0


@given(situations)
def test_the_same_facts_always_give_the_same_step(seen: RegistrationFacts) -> None:
    assert next_step(seen) == next_step(replace(seen))


@given(situations)
def test_waiting_comes_to_an_end_wherever_time_alone_can_end_it(seen: RegistrationFacts) -> None:
    """No fact but the clock is needed once the folder, a list and a kubelet without our stream are there."""
    assume(seen.kubelet is not None)
    ready = replace(seen, folder=Folder.PRESENT, has_list=True, is_registering=False, registered_with=None)
    assert next_step(replace(ready, now=1000.0))[0] is not Step.WAIT


# ── how long ──

jitters = st.floats(0, 1)


@given(st.integers(0, 10_000), jitters)
def test_the_wait_after_a_cut_is_between_a_quarter_and_little_more_than_a_second(cuts: int, j: float) -> None:
    assert 0.25 <= cut_wait_seconds(cuts, j) <= 1.2


@given(st.integers(0, 100), jitters)
def test_the_wait_after_a_cut_never_shrinks_while_cuts_go_on(cuts: int, j: float) -> None:
    assert cut_wait_seconds(cuts, j) <= cut_wait_seconds(cuts + 1, j)


@given(st.integers(1, 100_000), st.booleans(), st.booleans(), jitters)
def test_the_wait_after_a_failure_has_a_cap(
    failures: int, is_unreachable: bool, is_final: bool, j: float
) -> None:
    wait = retry_wait_seconds(failures, is_unreachable=is_unreachable, is_final=is_final, jitter=j)
    assert 0.01 <= wait <= (5.0 if is_unreachable else 30.0) * 1.2


@given(st.integers(1, 100), st.booleans(), jitters)
def test_the_wait_after_a_failure_never_shrinks(failures: int, is_unreachable: bool, j: float) -> None:
    waits = [
        retry_wait_seconds(n, is_unreachable=is_unreachable, is_final=False, jitter=j)
        for n in (failures, failures + 1)
    ]
    assert waits == sorted(waits)


def test_the_first_retry_is_quick_and_each_next_one_waits_twice_as_long() -> None:
    waits = [retry_wait_seconds(n, is_unreachable=False, is_final=False, jitter=0) for n in range(1, 5)]
    assert waits == [0.01, 0.02, 0.04, 0.08]


def test_jitter_makes_a_wait_up_to_a_fifth_longer() -> None:
    waits = [retry_wait_seconds(99, is_unreachable=False, is_final=False, jitter=j) for j in (0, 0.5, 1)]
    assert waits == pytest.approx([30, 33, 36])
    assert [cut_wait_seconds(0, j) for j in (0, 1)] == pytest.approx([0.25, 0.3])


def test_a_refusal_that_nothing_can_change_is_repeated_at_the_slowest_pace_only() -> None:
    assert retry_wait_seconds(1, is_unreachable=False, is_final=True, jitter=0) == 30.0


def test_a_kubelet_that_refuses_for_long_sees_two_attempts_a_minute() -> None:
    at, attempts = 0.0, 0
    while at < 60:
        attempts += 1
        at += retry_wait_seconds(attempts, is_unreachable=False, is_final=False, jitter=0)
    assert attempts < 15
    assert 60 / retry_wait_seconds(attempts, is_unreachable=False, is_final=False, jitter=0) == 2
