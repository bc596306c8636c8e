"""The wait after failures: it doubles, and never leaves its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devplug.backoff import backoff_seconds

seconds = st.floats(0.001, 1e6)


def test_the_wait_doubles_up_to_its_bound() -> None:
    assert [backoff_seconds(count, 1, 10) for count in range(7)] == [0, 1, 2, 4, 8, 10, 10]


@given(st.integers(1, 10**9), seconds, seconds)
def test_one_more_failure_never_shortens_the_wait(failures: int, one: float, other: float) -> None:
    first, most = sorted((one, other))
    wait = backoff_seconds(failures, first, most)
    assert first <= wait <= backoff_seconds(failures + 1, first, most) <= most
