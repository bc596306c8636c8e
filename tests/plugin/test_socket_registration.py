"""The decision what to do next: a pure function, so each trigger and each wait is one row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.plugin.registration import (
    LEVEL_CHECK_SECONDS,
    CallState,
    Folder,
    RegistrationFacts,
    SocketRegistration,
    Step,
    StreamState,
    cut_wait_seconds,
    retry_wait_seconds,
)
from devplug.wire.values import SocketIdentity

KUBELET = (1, 10, 100)
NEXT_KUBELET = (1, 11, 200)
FACTS = {*RegistrationFacts.__struct_fields__}


@dataclass(frozen=True)
class Situation:
    """What can be seen, and the state that a registration is in."""

    facts: RegistrationFacts
    state: SocketRegistration

    def but(self, **changes: Any) -> Situation:
        """Return the same with some fields of either changed."""
        facts = {name: changes.pop(name) for name in FACTS & changes.keys()}
        return Situation(replace(self.facts, **facts), replace(self.state, **changes))

    @property
    def step(self) -> tuple[Step, float]:
        return self.state.next_step(self.facts)

    @property
    def may_send(self) -> bool:
        return self.state.may_send(self.facts)


SETTLED = Situation(
    RegistrationFacts(
        now=100.0,
        folder=Folder.PRESENT,
        has_list=True,
        has_lock=True,
        is_bound=True,
        lock_not_before=0.0,
        bind_not_before=0.0,
        kubelet=KUBELET,
    ),
    SocketRegistration(
        call=CallState.ACCEPTED,
        registered_with=KUBELET,
        registered_at=50.0,
        stream=StreamState.OPEN,
        cut_wait_seconds=0.25,
    ),
)
"""A registered plugin whose list the kubelet listens to."""

FRESH = SETTLED.but(
    call=CallState.UNCALLED, registered_with=None, registered_at=0.0, stream=StreamState.AWAITED
)
"""A plugin that has all but a registration."""

CUT = SETTLED.but(stream=StreamState.ENDED, stream_since=99.9)
"""A plugin whose stream was lost 100 ms ago."""

WAIT = (Step.WAIT, LEVEL_CHECK_SECONDS)

identities = st.sampled_from([None, KUBELET, NEXT_KUBELET])
times = st.floats(0, 200)
facts = st.fixed_dictionaries(
    {
        "now": st.just(100.0),
        "folder": st.sampled_from(Folder),
        "has_list": st.booleans(),
        "has_lock": st.booleans(),
        "is_bound": st.booleans(),
        "lock_not_before": times,
        "bind_not_before": times,
        "kubelet": identities,
        "has_leftovers": st.booleans(),
    }
).map(lambda fields: RegistrationFacts(**fields))
states = st.fixed_dictionaries(
    {
        "call": st.sampled_from(CallState),
        "calling": identities,
        "registered_with": identities,
        "registered_at": times,
        "stream": st.sampled_from(StreamState),
        "stream_since": times,
        "cut_wait_seconds": st.floats(0.25, 1.2),
        "register_not_before": times,
        "failed_with": identities,
    }
).map(lambda fields: SocketRegistration(**fields))
situations = st.builds(Situation, facts, states)


# ── the three triggers ──


def test_a_plugin_with_a_list_a_lock_and_a_socket_registers_at_once() -> None:
    assert FRESH.step == (Step.REGISTER, 0)


@pytest.mark.parametrize(
    "before",
    [SETTLED, FRESH.but(failed_with=KUBELET, register_not_before=130.0), CUT],
    ids=["registered", "after a failure", "after a cut"],
)
def test_a_new_kubelet_socket_is_registered_with_at_once(before: Situation) -> None:
    assert before.but(kubelet=NEXT_KUBELET).step == (Step.REGISTER, 0)


def test_a_lost_socket_is_bound_again_while_the_stream_lives_without_a_registration() -> None:
    lost = SETTLED.but(is_bound=False)
    assert lost.step == (Step.BIND, 0.0)
    assert lost.but(is_bound=True).step == WAIT


def test_a_lost_stream_of_the_same_kubelet_waits_for_the_clean_up_and_registers() -> None:
    step, seconds = CUT.step
    assert step is Step.WAIT
    assert seconds == pytest.approx(0.15)
    assert CUT.but(now=99.9 + 0.25).step == (Step.REGISTER, 0)


def test_a_call_to_a_kubelet_that_another_has_replaced_is_given_up_at_once() -> None:
    calling = FRESH.but(call=CallState.CALLING, calling=KUBELET)
    assert calling.step == WAIT
    assert calling.but(kubelet=None).step == WAIT
    assert calling.but(kubelet=NEXT_KUBELET).step == (Step.LEAVE, 0)
    given_up = calling.but(kubelet=NEXT_KUBELET, calling=None)
    assert given_up.step == WAIT
    failed = given_up.but(call=CallState.UNCALLED, failed_with=KUBELET, register_not_before=130.0)
    assert failed.step == (Step.REGISTER, 0)


@pytest.mark.parametrize("removed", [("ours", "its own"), ("its own", "ours")])
def test_register_is_never_sent_to_a_kubelet_that_has_removed_our_socket(removed: tuple[str, str]) -> None:
    """The three steps of a kubelet that starts, between any of our six."""

    def own(steps: int) -> bool:
        return "ours" not in removed[:steps]

    def kubelet(steps: int) -> SocketIdentity | None:
        return NEXT_KUBELET if steps == 3 else None if "its own" in removed[:steps] else KUBELET

    outcomes = set()
    for done in combinations_with_replacement(range(4), 6):  # how many of its steps, at each of ours
        decided = FRESH.but(is_bound=own(done[0]), kubelet=kubelet(done[1]))
        is_let_in = decided.step[0] is Step.REGISTER and done[3] == 3
        called = FRESH.but(call=CallState.CALLING, calling=kubelet(done[2]))
        sends = is_let_in and called.but(kubelet=kubelet(done[4]), is_bound=own(done[5])).may_send
        outcomes.add((is_let_in, sends))
    assert outcomes == {(False, False), (True, False)}


def test_register_is_sent_to_the_kubelet_that_was_called_and_no_other() -> None:
    calling = FRESH.but(call=CallState.CALLING, calling=KUBELET)
    assert calling.may_send
    assert not calling.but(kubelet=NEXT_KUBELET).may_send
    assert not calling.but(kubelet=None).may_send
    assert not calling.but(has_lock=False).may_send


# ── the waits ──


@pytest.mark.parametrize(
    "seen",
    [
        SETTLED,
        FRESH.but(kubelet=None),
        FRESH.but(folder=Folder.ABSENT),
        FRESH.but(has_list=False),
        FRESH.but(has_list=False, has_lock=False, is_bound=False),
        FRESH.but(call=CallState.CALLING),
        SETTLED.but(kubelet=NEXT_KUBELET, call=CallState.CALLING),
        SETTLED.but(kubelet=None, stream=StreamState.ENDED),
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
def test_there_is_nothing_to_do_but_look_again_in_five_seconds(seen: Situation) -> None:
    assert seen.step == (Step.WAIT, 5.0)


def test_a_lost_folder_ends_it_whatever_else_is_true() -> None:
    assert SETTLED.but(folder=Folder.LOST).step == (Step.GIVE_UP, 0)
    assert FRESH.but(folder=Folder.LOST, has_list=False).step == (Step.GIVE_UP, 0)


def test_the_lock_comes_before_the_socket_and_the_socket_before_the_registration() -> None:
    bare = FRESH.but(has_lock=False, is_bound=False)
    assert bare.step[0] is SETTLED.but(has_lock=False, is_bound=False).step[0] is Step.LOCK
    assert bare.but(has_lock=True).step[0] is Step.BIND
    assert bare.but(has_lock=True, is_bound=True).step[0] is Step.REGISTER


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (FRESH.but(has_lock=False, lock_not_before=101.0), Step.LOCK),
        (FRESH.but(is_bound=False, bind_not_before=101.0), Step.BIND),
        (FRESH.but(failed_with=KUBELET, register_not_before=101.0), Step.REGISTER),
    ],
)
def test_what_has_just_failed_is_tried_again_at_its_time(seen: Situation, step: Step) -> None:
    assert seen.step == (Step.WAIT, 1.0)
    assert seen.but(now=101.0).step == (step, 0)


def test_a_stream_that_never_comes_is_given_fifteen_seconds() -> None:
    silent = SETTLED.but(stream=StreamState.AWAITED, registered_at=90.0)
    assert silent.step == (Step.WAIT, 5.0)
    assert silent.but(now=104.0).step == (Step.WAIT, 1.0)
    assert silent.but(now=105.0).step == (Step.REGISTER, 0)


def test_a_failure_after_a_cut_waits_for_both() -> None:
    both = CUT.but(failed_with=KUBELET, register_not_before=100.05)
    for seen, wait in [(both.but(now=100.1), 0.05), (both.but(now=101.0, register_not_before=103.0), 2.0)]:
        step, seconds = seen.step
        assert step is Step.WAIT
        assert seconds == pytest.approx(wait)


# ── what earlier calls may still bring ──


def test_a_socket_whose_name_may_still_bring_a_stream_is_left_before_the_next_call() -> None:
    for seen in (FRESH, SETTLED.but(kubelet=NEXT_KUBELET), CUT.but(now=200.0)):
        assert seen.but(has_leftovers=True).step == (Step.MOVE, 0)


def test_a_lost_stream_leaves_the_others_at_once_and_an_awaited_one_at_its_deadline() -> None:
    assert CUT.but(has_leftovers=True).step == (Step.MOVE, 0)
    awaited = SETTLED.but(stream=StreamState.AWAITED, registered_at=90.0, has_leftovers=True)
    assert awaited.step == (Step.WAIT, 5.0)
    assert awaited.but(now=105.0).step == (Step.MOVE, 0)


def test_what_is_left_over_is_no_reason_to_leave_as_long_as_the_kubelet_listens() -> None:
    assert SETTLED.but(has_leftovers=True).step == WAIT


@given(situations)
def test_a_call_is_never_made_while_another_is_on_its_way_or_may_still_bring_a_stream(
    seen: Situation,
) -> None:
    assert seen.but(has_leftovers=True).step[0] is not Step.REGISTER
    assert seen.but(call=CallState.CALLING).step[0] is not Step.REGISTER


# ── whatever is seen ──


def test_however_due_a_registration_is_it_waits_for_the_one_on_its_way() -> None:
    for due in (FRESH, SETTLED.but(kubelet=NEXT_KUBELET), CUT.but(now=200.0)):
        assert due.step[0] is Step.REGISTER
        assert due.but(call=CallState.CALLING, calling=due.facts.kubelet).step[0] is Step.WAIT


@given(situations)
def test_a_plugin_that_the_kubelet_listens_to_never_registers_again(seen: Situation) -> None:
    assume(seen.facts.kubelet is not None)
    listened_to = seen.but(registered_with=seen.facts.kubelet, stream=StreamState.OPEN)
    assert listened_to.step[0] is not Step.REGISTER


@given(situations)
def test_a_registration_needs_all_its_grounds(seen: Situation) -> None:
    if seen.step[0] is Step.REGISTER:
        assert seen.facts.folder is Folder.PRESENT
        assert seen.facts.has_list
        assert seen.facts.has_lock
        assert seen.facts.is_bound
        assert seen.facts.kubelet is not None


@given(situations)
def test_a_registration_after_a_cut_never_comes_within_the_wait(seen: Situation) -> None:
    cut = seen.but(registered_with=seen.facts.kubelet, stream=StreamState.ENDED)
    if cut.step[0] is Step.REGISTER:
        assert cut.facts.now >= cut.state.stream_since + cut.state.cut_wait_seconds


@given(situations)
def test_a_wait_is_never_longer_than_the_level_check_and_any_other_step_is_now(seen: Situation) -> None:
    step, seconds = seen.step
    assert 0 < seconds <= LEVEL_CHECK_SECONDS if step is Step.WAIT else seconds == 0


@given(situations)
def test_waiting_comes_to_an_end_wherever_time_alone_can_end_it(seen: Situation) -> None:
    """No fact but the clock is needed once the folder, a list and a kubelet without our stream are there."""
    assume(seen.facts.kubelet is not None)
    ready = seen.but(folder=Folder.PRESENT, has_list=True, call=CallState.UNCALLED, registered_with=None)
    assert ready.but(now=1000.0).step[0] is not Step.WAIT


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


def test_the_first_retry_is_quick_and_each_next_one_waits_twice_as_long_unless_nothing_can_change() -> None:
    waits = [retry_wait_seconds(n, is_unreachable=False, is_final=False, jitter=0) for n in range(1, 5)]
    assert waits == [0.01, 0.02, 0.04, 0.08]
    assert retry_wait_seconds(1, is_unreachable=False, is_final=True, jitter=0) == 30.0


def test_jitter_makes_a_wait_up_to_a_fifth_longer() -> None:
    waits = [retry_wait_seconds(99, is_unreachable=False, is_final=False, jitter=j) for j in (0, 0.5, 1)]
    assert waits == pytest.approx([30, 33, 36])
    assert [cut_wait_seconds(0, j) for j in (0, 1)] == pytest.approx([0.25, 0.3])


def test_a_kubelet_that_refuses_for_long_sees_two_attempts_a_minute() -> None:
    at, attempts = 0.0, 0
    while at < 60:
        attempts += 1
        at += retry_wait_seconds(attempts, is_unreachable=False, is_final=False, jitter=0)
    assert attempts < 15
    assert 60 / retry_wait_seconds(attempts, is_unreachable=False, is_final=False, jitter=0) == 2
