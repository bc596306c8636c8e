"""Globs of Go and regular expressions of smarter cover the same names after the translation as before."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from devplug.daemon.config.globs import covers
from devplug.daemon.importers.go_globs import glob_of, literal
from devplug.daemon.importers.smarter import NAMES_LIMIT, REPEATS, covered_by
from tests.daemon.importers.gomodel import BadPatternError, go_match

NAMES = st.text("ab01-!^]*[", min_size=1, max_size=5).filter(lambda name: not name.startswith("."))
PATTERNS = st.one_of(
    st.text("ab01*?[]^-!\\", min_size=1, max_size=8),
    st.lists(
        st.sampled_from(
            ["a", "b*", "?", "[ab]", "[^a]", "[!a]", "[0-1]", "[^!-]", "\\*", "[\\]a]", "[\\-a]"]
        ),
        min_size=1,
        max_size=5,
    ).map("".join),
)


@given(PATTERNS, NAMES)
@example("[^a]", "b")
@example("[!a]", "!")
@example("[a^]", "^")
@example("**", "ab")
@example("[\\]\\-!]", "-")
def test_a_glob_covers_what_go_would_match(pattern: str, name: str) -> None:
    try:
        expected = go_match(pattern, name)
    except BadPatternError:
        with pytest.raises(ValueError):
            glob_of(f"/dev/{pattern}")
        return
    # Go has ranges that cover nothing, and ends of ranges that cannot be written here; both are told.
    with suppress(ValueError):
        glob, _ = glob_of(f"/dev/{pattern}")
        assert covers(glob, f"/dev/{name}") == expected


@given(st.text("ab*?[]!-^", min_size=1, max_size=6), NAMES)
def test_a_literal_covers_itself_and_nothing_else(text: str, name: str) -> None:
    assert covers(f"/dev/{literal(text)}", f"/dev/{text}")
    assert covers(f"/dev/{literal(text)}", f"/dev/{name}") == (text == name)


@pytest.mark.parametrize(
    ("pattern", "reason"), [("dev/x", "absolute"), ("/dev/x\\", "backslash"), ("/dev/[", "Go")]
)
def test_what_go_cannot_use_is_said(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        glob_of(pattern)


def test_a_path_is_cleaned_as_go_cleans_it() -> None:
    assert glob_of("//dev/./snd/../video0") == ("/dev/video0", False)


# ── regular expressions ───────────────────────────────────────────────────────────────────────────

ATOMS = st.sampled_from(["a", "b", "0", "[0-9]", "[ab]", "\\d", "\\.", "[^a]", ".", "i2c-"])
REPEATED = st.tuples(ATOMS, st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}"])).map(
    lambda pair: pair[0] if len(pair[0]) > 2 and pair[0][0] == "i" else "".join(pair)
)
SEQUENCES = st.lists(REPEATED, min_size=1, max_size=3).map("".join)
REGEXES = st.one_of(
    SEQUENCES,
    st.tuples(SEQUENCES, SEQUENCES, SEQUENCES).map(lambda three: f"{three[0]}({three[1]}|{three[2]})"),
).map(lambda inner: f"^{inner}$")
MATCHED = st.text("ab019.-", min_size=1, max_size=7)


@given(REGEXES, MATCHED)
@example("^ttyUSB[0-9]*$", "ttyUSB0")
@example("^(ttyUSB0|ttyUSB1)$", "ttyUSB1")
@example("^vcsm.*$", "vcsm-cma")
def test_globs_and_names_cover_what_the_regular_expression_matches(regex: str, name: str) -> None:
    assume(not name.startswith("."))
    with suppress(ValueError):  # too many globs
        covered = covered_by(regex)
        assert len(covered.names) <= NAMES_LIMIT
        found = name in covered.names or any(covers(f"/dev/{glob}", f"/dev/{name}") for glob in covered.globs)
        assert found == bool(re.search(regex, name)) or (covered.is_bounded and not found)
        assert not found or name.startswith(covered.prefix)


def test_numbers_below_a_thousand_are_all_covered() -> None:
    covered = covered_by("^ttyUSB[0-9]+$")
    assert REPEATS == 3
    for number in (0, 7, 10, 99, 100, 999):
        assert any(covers(glob, f"ttyUSB{number}") for glob in covered.globs)
    assert not any(
        covers(glob, name) for glob in covered.globs for name in ("ttyUSB", "ttyUSB0a", "ttyUSB1000")
    )


@pytest.mark.parametrize(
    ("regex", "names"),
    [
        ("^snd$", ("snd",)),
        ("^net/tun$", ("net/tun",)),
        ("^(?:a|b)c$", ("ac", "bc")),
        ("^video[0-2]$", ("video0", "video1", "video2")),
        ("^ttyS?0$", ("tty0", "ttyS0")),
        (r"^rtc\.0$", ("rtc.0",)),
    ],
)
def test_a_few_names_are_written_out(regex: str, names: tuple[str, ...]) -> None:
    assert covered_by(regex).names == names


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("ttyUSB0", "anchor it"),
        ("^ttyUSB0", "anchor it"),
        ("^a|b$", "outside of a group"),
        ("^(?i)a$", "plain group"),
        (r"^\bfoo$", r"has \\b"),
        ("^[[:digit:]]$", "by name"),
        ("^a(b$", "partner"),
        ("^a)b$", "partner"),
        ("^a**$", "repetition of a repetition"),
        ("^a{9}$", "at most 8"),
        ("^[a-z", "anchor it"),
        ("^[a-z$", "without"),
        ("^(a|b)(c|d)(e|f)(g|h)(i|j)(k|l)(m|n).*$", "globs"),
        ("^a{x}$", "no repetition"),
    ],
)
def test_what_no_glob_says_is_told_with_its_reason(regex: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        covered_by(regex)
