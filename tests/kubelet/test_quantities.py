"""Quantities read as Kubernetes reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.kubelet.quantities import Quantity, QuantityError


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
def test_a_quantity_is_a_count_rounded_away_from_nought(text: str, count: int) -> None:
    assert Quantity.parse(text).value == count


@pytest.mark.parametrize(
    "text", ["", "m", "one", "1 ", " 1", "1KB", "1ki", "0x10", "1e", "--1", "1..2", "∞", "１"]
)
def test_other_text_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_whole_numbers_are_exact(number: int, suffix: str) -> None:
    scale = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}[suffix]
    assert Quantity.parse(f"{number}{suffix}").value == number * scale


@given(st.text("0123456789.+-eEinumkKMGTP ", max_size=12))
def test_any_text_is_a_quantity_or_refused_by_name(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        assert error.text == text
    else:
        assert abs(quantity.value) <= 2**63 - 1
