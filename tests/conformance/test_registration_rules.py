"""The rules for a registration are those by which a kubelet finds a plugin."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.rules.registration import endpoint_fault, longest_overlap_seconds, loose_bits

moments = st.integers(0, 1000).map(float)
spans = st.lists(st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair))))
file_names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.+=:@,", min_size=3, max_size=75)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("", "is empty"),
        ("..", "which is a path"),
        ("../other.sock", "which is a path"),
        ("/var/lib/kubelet/device-plugins/own.sock", "which is a path"),
        ("folder/own.sock", "which is a path"),
        ("kubelet.sock", "the kubelet's own socket"),
        ("own#1.sock", 'dials "own"'),
        ("own?.sock", 'dials "own"'),
        ("own%20.sock", 'dials "own .sock"'),
        ("own%.sock", "cannot dial"),
        ("own\n.sock", "cannot dial"),
        ("own\0.sock", "cannot dial"),
        ("x" * 76, "a path of 108 bytes"),
    ],
)
def test_an_endpoint_that_leads_elsewhere_is_a_fault(endpoint: str, words: str) -> None:
    assert words in (endpoint_fault(endpoint) or "")


@given(file_names.filter(lambda name: not set(name) <= {"."}))
def test_a_plain_file_name_is_no_fault(endpoint: str) -> None:
    assert endpoint_fault(endpoint) is None


@given(st.lists(moments))
def test_calls_one_after_the_other_do_not_overlap(turns: list[float]) -> None:
    turns = sorted(turns)
    assert longest_overlap_seconds(pairwise(turns)) == 0


@given(spans, moments, moments, moments)
def test_two_calls_overlap_for_as_long_as_both_are_open(
    others: list[tuple[float, float]], start: float, shared: float, rest: float
) -> None:
    pair = [(start, start + shared), (start, start + shared + rest)]
    assert longest_overlap_seconds(pair) == shared
    assert longest_overlap_seconds([*others, *pair]) >= shared


@pytest.mark.parametrize(
    ("mode", "umask", "bits"),
    [(0o755, 0o022, 0), (0o777, 0o022, 0o022), (0o775, 0o002, 0), (0o777, 0o002, 0o002), (0o700, 0o777, 0)],
)
def test_a_mode_is_held_against_the_umask_that_was_given(mode: int, umask: int, bits: int) -> None:
    assert loose_bits(mode, umask) == bits
