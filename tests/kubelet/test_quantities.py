"""Quantities read as Kubernetes reads them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.kubelet.quantities import quantity_of, whole


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("2", 2),
        ("+2", 2),
        ("-1", -1),
        ("1000m", 1),
        ("500m", 1),
        ("1n", 1),
        ("3u", 1),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("2M", 2_000_000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", 2),
        (".5", 1),
        ("5.", 5),
    ],
)
def test_a_quantity_is_a_count_rounded_up(text: str, count: int) -> None:
    quantity = quantity_of(text)
    assert quantity is not None
    assert whole(quantity) == count


@pytest.mark.parametrize(
    "text", ["", "m", "one", "1 ", " 1", "1KB", "1ki", "0x10", "1e", "--1", "1..2", "∞", "１"]
)
def test_other_text_is_no_quantity(text: str) -> None:
    assert quantity_of(text) is None


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_whole_numbers_are_exact(number: int, suffix: str) -> None:
    scale = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}[suffix]
    assert quantity_of(f"{number}{suffix}") == Decimal(number * scale)


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_nothing(text: str) -> None:
    quantity = quantity_of(text)
    assert quantity is None or quantity.is_finite()
