"""What is to be done about sockets that come and go: pure rules, so each is a table or a property."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from devplug.kubelet.reconciler import Backoff, Plan, StateOfWorld, WatchedPlugin

P, Q = "/r/p.sock", "/r/q.sock"
NOW = 1000.0


def plugin(state: StateOfWorld, path: str = P) -> WatchedPlugin:
    return WatchedPlugin(state.desired[path], "example.com/a", path)


def registered(*paths: str) -> StateOfWorld:
    """The state after these sockets were made and their plugins registered."""
    state = StateOfWorld()
    for path in paths:
        state = state.created(path).began(path)
        state = state.added(path, plugin(state, path)).succeeded(path)
    return state


# ── the backoff ───────────────────────────────────────────────────────────────────────────────────


def waits(failures: int) -> Sequence[float]:
    backoff, found = None, []
    for _ in range(failures):
        backoff = Backoff.after(backoff, NOW)
        found.append(backoff.wait_seconds)
    return found


def test_the_wait_doubles_from_half_a_second_to_two_minutes_and_two_seconds() -> None:
    """C26."""
    assert waits(11) == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122, 122]


def test_the_wait_is_over_only_after_its_last_moment() -> None:
    backoff = Backoff.after(None, NOW)
    assert not backoff.is_over(NOW)
    assert not backoff.is_over(NOW + 0.5)
    assert backoff.is_over(NOW + 0.5001)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=30))
def test_each_wait_is_counted_from_its_own_failure(pauses: list[float]) -> None:
    now, backoff = NOW, None
    for pause in pauses:
        now += pause
        backoff = Backoff.after(backoff, now)
        assert backoff.failed_at_seconds == now
        assert 0.5 <= backoff.wait_seconds <= 122


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────


def test_nothing_wanted_is_nothing_to_do() -> None:
    assert StateOfWorld().plan(NOW) == Plan()


def test_a_socket_that_was_made_is_to_be_registered() -> None:
    assert StateOfWorld().created(P).created(Q).plan(NOW) == Plan(register=(P, Q))


def test_a_registered_plugin_is_left_alone() -> None:
    assert registered(P, Q).plan(NOW) == Plan()


def test_a_socket_that_was_removed_is_to_be_unregistered() -> None:
    assert registered(P, Q).removed(P).plan(NOW) == Plan(unregister=(P,))


def test_a_socket_that_was_made_again_is_unregistered_first_and_registered_by_the_next_look() -> None:
    state = registered(P).created(P)
    assert state.plan(NOW) == Plan(unregister=(P,))
    assert state.unregistered(P).plan(NOW) == Plan(register=(P,))


def test_a_socket_that_came_and_went_unseen_is_one_that_was_made_again() -> None:
    assert registered(P).removed(P).created(P).plan(NOW) == Plan(unregister=(P,))


def test_other_sockets_do_not_wait_for_one_that_is_unregistered() -> None:
    assert registered(P).removed(P).created(Q).plan(NOW) == Plan(unregister=(P,), register=(Q,))


def test_a_path_with_an_attempt_under_way_is_left_alone() -> None:
    state = StateOfWorld().created(P).began(P)
    assert state.plan(NOW) == Plan()
    assert state.created(P).plan(NOW) == Plan()
    assert state.removed(P).plan(NOW) == Plan()


def test_a_socket_that_went_in_the_last_step_of_its_attempt_is_unregistered_after_it() -> None:
    state = StateOfWorld().created(P).began(P)
    state = state.added(P, plugin(state)).removed(P)
    assert state.plan(NOW) == Plan()
    assert state.succeeded(P).plan(NOW) == Plan(unregister=(P,))


def test_a_socket_that_was_made_again_during_its_attempt_is_registered_anew_after_it() -> None:
    state = StateOfWorld().created(P).began(P)
    state = state.added(P, plugin(state)).created(P).succeeded(P)
    assert state.plan(NOW) == Plan(unregister=(P,))


def test_a_failed_path_waits_and_a_success_forgets_its_failures() -> None:
    state = StateOfWorld().created(P).began(P).failed(P, NOW)
    assert state.plan(NOW + 0.5) == Plan()
    assert state.plan(NOW + 0.6) == Plan(register=(P,))
    again = state.began(P).failed(P, NOW)
    assert again.backoffs[P].wait_seconds == 1
    assert again.succeeded(P).began(P).failed(P, NOW).backoffs[P].wait_seconds == 0.5


def test_a_new_socket_inherits_the_wait_of_its_path() -> None:
    state = StateOfWorld().created(P).began(P).failed(P, NOW).removed(P).created(P)
    assert state.plan(NOW + 0.4) == Plan()
    assert state.plan(NOW + 0.6) == Plan(register=(P,))


def test_a_failure_at_one_path_does_not_hold_up_another() -> None:
    assert StateOfWorld().created(P).created(Q).began(P).failed(P, NOW).plan(NOW) == Plan(register=(Q,))


def test_removing_what_was_never_a_socket_changes_nothing() -> None:
    state = registered(P)
    assert state.removed("/r/notes") == state
    assert state.unregistered(Q) == state


@pytest.mark.parametrize("times", [1, 2, 5])
def test_each_making_of_a_socket_has_an_identity_of_its_own(times: int) -> None:
    state, seen = StateOfWorld(), set()
    for _ in range(times):
        state = state.created(P)
        seen.add(state.desired[P])
        state = state.removed(P).created(Q)
        seen.add(state.desired[Q])
    assert len(seen) == 2 * times


class World(RuleBasedStateMachine):
    """Any sequence of what a folder and attempts may tell, with the plan carried out now and then."""

    paths = st.sampled_from([P, Q, "/r/sub/p.sock"])

    def __init__(self) -> None:
        super().__init__()
        self.state = StateOfWorld()
        self.now = NOW

    @rule(path=paths)
    def make(self, path: str) -> None:
        self.state = self.state.created(path)

    @rule(path=paths)
    def remove(self, path: str) -> None:
        self.state = self.state.removed(path)

    @rule(seconds=st.floats(0, 300))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def look(self) -> None:
        plan = self.state.plan(self.now)
        assert not set(plan.unregister) & set(plan.register)
        for path in plan.unregister:
            assert self.state.desired.get(path) != self.state.actual[path].identity
            self.state = self.state.unregistered(path)
        for path in plan.register:
            assert path in self.state.desired
            assert path not in self.state.attempts
            state = self.state.began(path)
            self.state = state.added(path, plugin(state, path))

    @rule(path=paths, is_good=st.booleans())
    def end(self, path: str, is_good: bool) -> None:
        if path in self.state.attempts:
            state = self.state
            self.state = state.succeeded(path) if is_good else state.taken_out(path).failed(path, self.now)

    @invariant()
    def it_comes_to_rest_with_what_is_wanted_and_nothing_else(self) -> None:
        """Once nothing happens any more and all attempts succeed, two looks make the two states equal."""
        state = self.state
        for path in state.attempts:
            state = state.succeeded(path)
        for looks in range(3):
            plan = state.plan(self.now + 1000)
            if looks == 2:
                assert plan == Plan()
            for path in plan.unregister:
                state = state.unregistered(path)
            for path in plan.register:
                state = state.began(path)
                state = state.added(path, plugin(state, path)).succeeded(path)
        assert {path: found.identity for path, found in state.actual.items()} == state.desired


TestWorld = World.TestCase
