"""Kubernetes quantities, as they stand under `limits`: `2`, `500m`, `1Ki`, `1e3` (resource/quantity.go).

How one is read, and the one form in which the API server tells it: `1000m` is `1`, `1024Mi` is `1Gi`
(CanonicalizeBytes). Pure.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from msgspec import Struct

from devplug.errors import DevplugError, quoted

_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(\.(?P<decimals>[0-9]*))?"
    r"(?P<suffix>[eEinumkKMGTP]*[-+]?[0-9]*)",
)
_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]+)")

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

_DECIMAL_FORMS: Final = tuple(_DECIMAL)
_PLAIN: Final = _DECIMAL_FORMS.index("")
_BINARY_FORMS: Final = ("", *_BINARY)

_LARGEST: Final = 2**63 - 1
"""What is larger becomes this, as in Kubernetes; what is negative and smaller becomes its negative."""

_NANO: Final = 10**9
_EXPONENT_LIMIT: Final = 10_000
_LENGTH_LIMIT: Final = 1000
"""Far more than anybody means, so that no short text asks for a number of a million digits."""


class QuantityError(DevplugError):
    """A text is no quantity; the sentence is the one of Kubernetes, with the text in front."""

    def __init__(self, text: str, fault: str) -> None:
        self.text = text
        self.fault = fault
        super().__init__(f"{quoted(text)}: {fault}")


class Quantity(Struct, frozen=True):
    """An exact number with the text that it was written as."""

    text: str
    number: Fraction
    """Rounded away from 0 to billionths, which is as exactly as Kubernetes keeps it."""

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str) -> Quantity:
        """Read a quantity; raises `QuantityError`."""
        form = _FORM.fullmatch(text)
        if form is None or len(text) > _LENGTH_LIMIT:
            raise QuantityError(
                text,
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            )
        decimals = form["decimals"] or ""
        amount = Fraction(int(form["whole"] + decimals), 10 ** len(decimals)) * _factor(text, form["suffix"])
        rounded = min(Fraction(-(-amount * _NANO // 1), _NANO), Fraction(_LARGEST))
        return cls(text, -rounded if form["sign"] == "-" else rounded)

    @property
    def value(self) -> int:
        """The whole number, rounded away from 0: what the kubelet counts devices by (Quantity.Value)."""
        return _rounded_away(self.number)

    @property
    def is_whole(self) -> bool:
        """Whether the API takes it for an integer, which it judges by thousandths (Quantity.MilliValue)."""
        return _rounded_away(self.number * 1000) % 1000 == 0


def _factor(text: str, suffix: str) -> Fraction:
    """Return what a suffix multiplies by."""
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    if suffix in _BINARY:
        return Fraction(2) ** _BINARY[suffix]
    if exponent := _EXPONENT.fullmatch(suffix):
        power = max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, int(exponent[1])))
        return Fraction(10) ** power
    raise QuantityError(text, "unable to parse quantity's suffix")


def _rounded_away(number: Fraction) -> int:
    return -(-number // 1) if number >= 0 else number // 1


def canonical(quantity: Quantity) -> str:
    """Return the quantity without fractions and with the largest suffix of the family it is written in."""
    number = quantity.number
    if quantity.text.endswith("i") and abs(number) >= 1024:
        return _binary(number)
    if number == 0:
        return "0"
    step = _PLAIN
    while number.denominator != 1:
        number, step = number * 1000, step - 1
    exponent = _EXPONENT.search(quantity.text) is not None
    while number % 1000 == 0 and (exponent or step < len(_DECIMAL_FORMS) - 1):
        number, step = number / 1000, step + 1
    if exponent:
        return f"{number}e{3 * (step - _PLAIN)}" if step != _PLAIN else str(number)
    return f"{number}{_DECIMAL_FORMS[step]}"


def _binary(number: Fraction) -> str:
    whole = -(-abs(number) // 1)
    step = 0
    while whole % 1024 == 0 and step < len(_BINARY_FORMS) - 1:
        whole, step = whole // 1024, step + 1
    return f"{'-' if number < 0 else ''}{whole}{_BINARY_FORMS[step]}"
