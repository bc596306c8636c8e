"""How soon the publisher looks again: within a second of a server that is well again, and never hotly."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from devplug.driver.publisher import LOOKS_AT_ONCE, RECOVERIES_AT_ONCE, SessionPace
from devplug.k8s.client import Retries
from devplug.k8s.errors import ClusterError, ExistsError, ExpiredError

AWAY = ClusterError("the API server gave no usable answer")
MOST_SECONDS = 60.0
NEWER = st.sampled_from([ExistsError("another one"), ExpiredError("forgotten")])
ERRORS = st.just(AWAY) | NEWER
MINUTE = 60.0


class Node:
    """The sessions of one node, on a clock that moves only by what they last and by what is waited for."""

    def __init__(self) -> None:
        self.pace = SessionPace(Retries(1.0, MOST_SECONDS))
        self.now = 0.0
        self.begun: list[float] = []

    def session(self, seconds: float, error: ClusterError, *, is_well: bool) -> float:
        """Have a session of so long, and wait as long as it has to be; return that."""
        self.begun.append(self.now)
        self.now += seconds
        if is_well:
            self.pace.note_well()
        wait_seconds = self.pace.wait_seconds(self.now, error)
        self.now += wait_seconds
        return wait_seconds

    def is_away_for(self, seconds: float) -> float:
        """Find the server away for so long; return how long after it is back the next session begins."""
        back_at = self.now + seconds
        self.session(0.0, AWAY, is_well=True)
        while self.now < back_at:
            self.session(0.0, AWAY, is_well=False)
        return self.now - back_at


@given(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=RECOVERIES_AT_ONCE))
def test_each_of_several_short_outages_is_over_within_a_second(outages: list[float]) -> None:
    node = Node()
    for seconds in outages:
        assert node.is_away_for(seconds) <= 1
        node.now += 1


@given(st.lists(st.tuples(st.floats(0.0, 3600.0), st.floats(10.0, 600.0)), max_size=10))
def test_an_outage_is_noticed_to_be_over_in_a_time_that_goes_with_its_length_alone(
    outages: list[tuple[float, float]],
) -> None:
    """Whatever was before, as long as the server is well for ten seconds in between."""
    node = Node()
    for seconds, well_seconds in outages:
        assert node.is_away_for(seconds) <= min(2 * seconds + 1, MOST_SECONDS)
        node.now += well_seconds


@given(st.lists(NEWER, max_size=LOOKS_AT_ONCE), st.integers(0, 5), st.randoms())
def test_a_session_that_met_something_newer_is_followed_at_once_and_adds_to_no_wait(
    newer: list[ClusterError], failures: int, chance: random.Random
) -> None:
    node = Node()
    errors = [*newer, *[AWAY] * failures]
    chance.shuffle(errors)
    for error in errors:
        assert (node.session(0.0, error, is_well=False) == 0) == (error is not AWAY)
    assert 2**failures / 2 <= node.session(0.0, AWAY, is_well=False) <= 2**failures


def test_an_api_server_that_asks_for_a_longer_wait_gets_it_within_bounds() -> None:
    busy = ClusterError("the API server has too much to do")
    for asked_seconds, granted_seconds in ((20.0, 20.0), (86400.0, MOST_SECONDS)):
        busy.retry_after_seconds = asked_seconds
        assert granted_seconds < Node().session(0.0, busy, is_well=False) <= granted_seconds + 1


@given(
    st.lists(st.tuples(st.floats(0.0, 2.0), ERRORS, st.booleans()), min_size=1, max_size=8),
    st.floats(10.0, 30.0),
)
def test_a_server_that_ends_all_sessions_in_any_way_is_asked_every_other_second_at_most(
    cycle: list[tuple[float, ClusterError, bool]], minutes: float
) -> None:
    node = Node()
    while node.now < minutes * MINUTE:
        for seconds, error, is_well in cycle:
            node.session(seconds, error, is_well=is_well)
    assert len(node.begun) <= minutes * MINUTE / 2 + 2 * (RECOVERIES_AT_ONCE + LOOKS_AT_ONCE)


@given(st.lists(st.tuples(st.floats(0.0, 2.0), ERRORS), min_size=1, max_size=8))
def test_a_server_that_is_never_well_is_asked_four_times_a_minute_at_most(
    cycle: list[tuple[float, ClusterError]],
) -> None:
    node = Node()
    while node.now < 20 * MINUTE:
        for seconds, error in cycle:
            node.session(seconds, error, is_well=False)
    assert len(node.begun) <= 20 * 4 + LOOKS_AT_ONCE + 10
