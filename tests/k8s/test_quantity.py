"""Quantities: the grammar of Kubernetes, what a count is made of, and what is no quantity."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.quantity import Quantity, QuantityError, canonical

LARGEST = 2**63 - 1
FACTORS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
FACTORS |= {suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)}
FACTORS |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("2", 2),
        ("+2", 2),
        ("-3", -3),
        ("007", 7),
        ("2.", 2),
        (".5", 1),
        ("1.0", 1),
        ("1000m", 1),
        ("500m", 1),
        ("1001m", 2),
        ("1n", 1),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Ki", 1536),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-1", 2),
        ("1e+2", 100),
        ("-500m", -1),
    ],
)
def test_a_quantity_counts_as_a_whole_number_rounded_away_from_zero(text: str, value: int) -> None:
    assert Quantity.parse(text).value == value


@pytest.mark.parametrize("text", ["0", "1", "1000m", "1e0", "2.0", "20e-1", "1Ki"])
def test_a_quantity_may_be_whole_in_several_ways(text: str) -> None:
    assert Quantity.parse(text).is_whole


@pytest.mark.parametrize("text", ["500m", "1.5", "1n", "15e-1", "0.001"])
def test_a_quantity_with_a_fraction_is_not_whole(text: str) -> None:
    assert not Quantity.parse(text).is_whole


def test_less_than_a_thousandth_short_of_a_whole_number_is_whole() -> None:
    """The API rounds to thousandths before it looks (MilliValue)."""
    assert Quantity.parse("0.9999").is_whole


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "abc", ".", "+", "m", "1.1.1", "1i", "1ki", "1KiB", "0x10", "1_000", "1,5", "٣", "1\n"],
)
def test_what_breaks_the_grammar_is_refused_in_the_words_of_kubernetes(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        Quantity.parse(text)
    assert caught.value.fault.startswith(("quantities must match the regular expr", "unable to parse quant"))


@pytest.mark.parametrize("text", ["1i", "1mi", "1kM", "1e", "1e+", "1m5", "3K"])
def test_an_unknown_suffix_is_named_as_the_fault(text: str) -> None:
    with pytest.raises(QuantityError, match="unable to parse quantity's suffix") as caught:
        Quantity.parse(text)
    assert caught.value.text == text


@pytest.mark.parametrize(("text", "value"), [("9E", 9 * 10**18), ("10E", LARGEST), ("1e999999999", LARGEST)])
def test_what_is_too_large_is_cut(text: str, value: int) -> None:
    assert Quantity.parse(text).value == value
    assert Quantity.parse(f"-{text}").value == -value


@pytest.mark.parametrize("text", ["1e-999999999", "0.0000000001", "1e-10"])
def test_what_is_too_small_is_a_billionth(text: str) -> None:
    assert Quantity.parse(text).number == Fraction(1, 10**9)


def test_a_text_that_is_too_long_is_refused_without_working_it_out() -> None:
    with pytest.raises(QuantityError):
        Quantity.parse("9" * 100_000)


@given(st.decimals(0, 10**9, places=4), st.sampled_from([*FACTORS]), st.sampled_from(["", "+", "-"]))
def test_the_suffix_multiplies_the_number(number: Decimal, suffix: str, sign: str) -> None:
    quantity = Quantity.parse(f"{sign}{number:f}{suffix}")
    exact = min(Fraction(number) * FACTORS[suffix], Fraction(LARGEST))
    assert 0 <= abs(quantity.number) - exact < Fraction(1, 10**9)
    assert abs(quantity.value) - 1 < abs(quantity.number) <= abs(quantity.value)
    assert (quantity.number < 0) == (sign == "-" and number > 0)


@given(st.integers(0, 10**6), st.integers(-12, 12), st.sampled_from("eE"))
def test_an_exponent_is_a_power_of_ten(mantissa: int, exponent: int, letter: str) -> None:
    quantity = Quantity.parse(f"{mantissa}{letter}{exponent}")
    exact = mantissa * Fraction(10) ** exponent
    assert 0 <= quantity.number - exact < Fraction(1, 10**9)


@given(st.text(st.sampled_from("0123456789.+-eEinumkKMGTP "), max_size=12) | st.text(max_size=8))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert quantity.text == text
    assert abs(quantity.number) <= LARGEST


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0", "0"),
        ("0Ki", "0"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("24684096Ki", "24684096Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("5e0", "5"),
        ("-1", "-1"),
        ("1E", "1E"),
    ],
)
def test_a_quantity_has_one_form(text: str, told: str) -> None:
    assert canonical(Quantity.parse(text)) == told


@given(st.integers(-(10**6), 10**6), st.sampled_from(["", "n", "m", "k", "M", "Ki", "Mi", "e3", "E-2"]))
def test_the_form_means_the_same_and_is_its_own_form(number: int, suffix: str) -> None:
    quantity = Quantity.parse(f"{number}{suffix}")
    again = Quantity.parse(canonical(quantity))
    assert again.number == quantity.number
    assert canonical(again) == again.text
