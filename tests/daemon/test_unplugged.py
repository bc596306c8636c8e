"""What becomes of a device that is gone: it stays for a while, and never comes back by itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.found import Found
from devplug.daemon.unplugged import Known, after_look

A, B = Found("a"), Found("b")


@pytest.mark.parametrize(
    ("before", "looked", "now", "keep_seconds", "after"),
    [
        pytest.param({}, [], 5, 600, {}, id="nothing is still nothing"),
        pytest.param({}, [A], 5, 600, {"a": Known(A)}, id="a new device is present"),
        pytest.param({"a": Known(A)}, [], 5, 600, {"a": Known(A, 5)}, id="a missing one is gone from now on"),
        pytest.param({"a": Known(A, 5)}, [], 604, 600, {"a": Known(A, 5)}, id="it stays gone since then"),
        pytest.param({"a": Known(A, 5)}, [], 605, 600, {}, id="it is dropped when its time is over"),
        pytest.param({"a": Known(A, 5)}, [A], 604, 600, {"a": Known(A)}, id="it is present when it is back"),
        pytest.param({"a": Known(A)}, [], 5, 0, {}, id="with 0 s it is dropped at once"),
        pytest.param({"a": Known(A, 5)}, [], 1e9, math.inf, {"a": Known(A, 5)}, id="with forever never"),
        pytest.param(
            {"a": Known(A)}, [B], 5, 600, {"a": Known(A, 5), "b": Known(B)}, id="others do not matter"
        ),
    ],
)
def test_a_look_makes_of_what_was_known(
    before: dict[str, Known],
    looked: list[Found],
    now: float,
    keep_seconds: float,
    after: dict[str, Known],
) -> None:
    assert after_look(before, looked, now=now, keep_seconds=keep_seconds) == after


def test_a_device_that_came_back_changed_is_known_as_it_is_now() -> None:
    moved = Found("a", numa_node=1)
    assert after_look({"a": Known(A, 5)}, [moved], now=6, keep_seconds=9) == {"a": Known(moved)}


def test_what_was_known_is_left_as_it_was() -> None:
    before = {"a": Known(A)}
    after_look(before, [B], now=5, keep_seconds=9)
    assert before == {"a": Known(A)}


LOOKS = st.lists(st.tuples(st.floats(0, 100), st.sets(st.sampled_from("abcd"))), max_size=12)
"""Seconds since the look before, and the names that are seen."""
KEEPS = st.one_of(st.just(0.0), st.just(math.inf), st.floats(0.1, 200))


@given(LOOKS, KEEPS)
def test_a_device_is_present_exactly_if_the_last_look_saw_it(
    looks: list[tuple[float, set[str]]], keep_seconds: float
) -> None:
    known: dict[str, Known] = {}
    now = 0.0
    for seconds, seen in looks:
        now += seconds
        known = after_look(known, map(Found, seen), now=now, keep_seconds=keep_seconds)
        assert {name for name, one in known.items() if one.is_present} == seen


@given(LOOKS, KEEPS)
def test_a_missing_device_is_listed_exactly_as_long_as_it_is_kept(
    looks: list[tuple[float, set[str]]], keep_seconds: float
) -> None:
    known: dict[str, Known] = {}
    missed_at: dict[str, float] = {}
    now = 0.0
    for seconds, seen in looks:
        now += seconds
        missed_at |= {name: now for name in known if name not in seen and name not in missed_at}
        known = after_look(known, map(Found, seen), now=now, keep_seconds=keep_seconds)
        missed_at = {name: at for name, at in missed_at.items() if name not in seen}
        kept = {name for name, at in missed_at.items() if now - at < keep_seconds}
        assert {name for name, one in known.items() if not one.is_present} == kept
        missed_at = {name: at for name, at in missed_at.items() if name in kept}
