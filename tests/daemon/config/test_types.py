"""Durations: what people write, what it means, and what they are told."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.types import FOREVER, DurationRange, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("10m", 600),
        ("1h30m", 5400),
        ("1h1m1s1ms", 3661.001),
        ("90s", 90),
        ("0s", 0),
        ("forever", math.inf),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "is not a duration"),
        ("30", "30 has no unit; write 30s if seconds are meant"),
        ("0", "0 has no unit; write 0s if seconds are meant"),
        ("2d", "2d: a day has no fixed length; write 48h"),
        ("1.5s", "is not a duration"),
        ("30m1h", "is not a duration"),
        ("1s1s", "is not a duration"),
        ("1 s", "is not a duration"),
        ("1S", "is not a duration"),
        ("-1s", "is not a duration"),
        ("٣s", "is not a duration"),
        ("s", "is not a duration"),
        ("1s\n", "is not a duration"),
        ("9999999999s", "is not a duration"),
    ],
)
def test_anything_else_is_told_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_formatted_is_read_back_to_the_millisecond(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1_000)) == milliseconds / 1_000


@given(st.from_regex(r"(\d{1,4}h)?(\d{1,4}m)?(\d{1,4}s)?(\d{1,4}ms)?", fullmatch=True))
def test_formatting_what_was_read_changes_no_length(text: str) -> None:
    if text.isascii() and text:
        assert parse_duration(format_duration(parse_duration(text))) == parse_duration(text)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_sentence(text: str) -> None:
    sentence = ""
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        sentence = str(error)
    assert not sentence or "write" in sentence


def test_a_range_has_both_its_ends_in_it_and_says_them() -> None:
    limits = DurationRange(0.1, 60)
    assert limits.fault(0.1) is None
    assert limits.fault(60) is None
    assert limits.fault(0.05) == "50ms is out of range; write 100ms to 1m"
    assert limits.fault(FOREVER) == "forever is out of range; write 100ms to 1m"
    assert DurationRange(0, 60, forever=True).fault(FOREVER) is None
    assert str(DurationRange(0, 60, forever=True)) == "0s to 1m, or forever"
