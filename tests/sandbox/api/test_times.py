"""Ages and moments as kubectl shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.times import age, human_duration, later, micro_stamp, moment, stamp

NOW = datetime(2026, 11, 21, 0, 21, 59, 123456, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 54, "2m54s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE + 1, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR + MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY + HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR + DAY, "8y"),
    ],
)
def test_a_duration_has_the_figures_that_people_need(seconds: float, told: str) -> None:
    assert human_duration(seconds) == told


@given(st.integers(0, 20 * YEAR))
def test_an_age_is_counted_from_what_was_stamped(seconds: int) -> None:
    since = NOW - timedelta(seconds=seconds)
    assert age(micro_stamp(since), NOW) == human_duration(seconds)
    assert moment(micro_stamp(since)) == since
    assert moment(stamp(since)) == since.replace(microsecond=0)


@pytest.mark.parametrize("written", ["", "yesterday", "2026-11-21T00:21:59"])
def test_of_what_is_no_moment_the_age_is_unknown(written: str) -> None:
    assert age(written, NOW) == "<unknown>"


def test_a_moment_of_another_zone_is_stamped_in_utc() -> None:
    there = moment("2026-11-21T01:21:59+01:00")
    assert there is not None
    assert stamp(there) == "2026-11-21T00:21:59Z"


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-(2**63), 2**63 - 1))
def test_what_is_later_than_all_time_is_the_end_of_it(at: datetime, seconds: int) -> None:
    found = later(at, seconds)
    assert moment(micro_stamp(found)) == found
    if abs(seconds) < YEAR and 1 < at.year < 9999:
        assert found - at == timedelta(seconds=seconds)
    elif abs(seconds) > 10_000 * YEAR:
        assert found.year == (9999 if seconds > 0 else 1)


@pytest.mark.parametrize("written", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_moment_before_or_after_all_others_in_utc_is_none(written: str) -> None:
    assert moment(written) is None


def test_a_year_has_four_digits() -> None:
    assert stamp(datetime(1, 2, 3, tzinfo=UTC)) == "0001-02-03T00:00:00Z"
