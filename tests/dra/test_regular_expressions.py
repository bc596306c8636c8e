"""Regular expressions of `find` and `findAll`: as Python's where both agree, and in a bounded time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.regular_expressions import found_all, is_pattern

CHARACTERS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "c"])
TAKING = st.recursive(
    CHARACTERS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["{2}", "{1,3}", "{2,}", "+", "+?"])).map(
            lambda parts: f"({parts[0]}){parts[1]}"
        ),
        inner.map(lambda part: f"(?i:{part})"),
    ),
    max_leaves=4,
)
"""Patterns that match no empty text: engines differ in how often they repeat one that does."""
PARTS = st.one_of(
    st.sampled_from([r"\b", r"\B", "^", r"\A"]),
    st.tuples(TAKING, st.sampled_from(["", "*", "?", "*?", "??", "{0,2}"])).map(
        lambda one: f"({one[0]}){one[1]}"
    ),
)
PATTERNS = st.lists(st.lists(PARTS, min_size=1, max_size=3).map("".join), min_size=1, max_size=2).map(
    "|".join
)


@given(PATTERNS, st.text("abAc1 ", min_size=1, max_size=7))
def test_matches_are_those_of_python(pattern: str, text: str) -> None:
    """Python is the oracle: both prefer the leftmost match, and then the first way that matches."""
    compiled = re.compile(pattern, re.ASCII)
    expected = []
    at, before = 0, -1
    while at <= len(text) and (found := compiled.search(text, at)):  # as Go's regexp allMatches
        start, end = found.span()
        if end > start or start != before:
            expected.append(found.group())
        at, before = max(end, start + 1), end
    assert list(found_all(text, pattern)) == expected


def test_an_empty_match_behind_another_match_is_left_out() -> None:
    """As Go's regexp FindAllString does."""
    assert list(found_all("baac", "a*")) == ["", "aa", ""]


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)x", "a?" * 40 + "a" * 40 + "$"]
)
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    assert list(found_all("a" * 60 + "!", pattern)) in ([], [""])


@pytest.mark.parametrize(
    "pattern", ["(a{1000}){1000}", "a{99999}", "(?=a)", r"(a)\1", "(" * 4000 + ")" * 4000, "["]
)
def test_a_large_or_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="Illegal regex"):
        list(found_all("a", pattern))


@pytest.mark.nightly  # takes 5 s
def test_a_search_ends_at_its_limit_of_steps() -> None:
    with pytest.raises(ValueError, match="actual cost limit exceeded"):
        list(found_all("a" * 5_000, ".*b|a"))


def test_a_pattern_that_python_cannot_read_is_none() -> None:
    assert is_pattern("a{1,2}")
    assert not is_pattern("(" * 4000 + ")" * 4000)
    assert not is_pattern("a{99999999999999999999}")
