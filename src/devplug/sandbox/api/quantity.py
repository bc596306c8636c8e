"""Quantities in the one form in which the API server tells them: `1000m` is `1`, `1024Mi` is `1Gi`.

How a quantity is read is `devplug.kubelet.quantity`' (resource/quantity.go CanonicalizeBytes for the form).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fractions import Fraction

    from devplug.kubelet.quantity import Quantity

__all__ = ["canonical"]

_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_PLAIN: Final = _DECIMAL.index("")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENT: Final = re.compile(r"[eE][-+]?[0-9]+\Z")


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
    exponent = bool(_EXPONENT.search(quantity.text))
    while number % 1000 == 0 and (exponent or step < len(_DECIMAL) - 1):
        number, step = number / 1000, step + 1
    if exponent:
        return f"{number}e{3 * (step - _PLAIN)}" if step != _PLAIN else str(number)
    return f"{number}{_DECIMAL[step]}"


def _binary(number: Fraction) -> str:
    whole = -(-abs(number) // 1)
    step = 0
    while whole % 1024 == 0 and step < len(_BINARY) - 1:
        whole, step = whole // 1024, step + 1
    return f"{'-' if number < 0 else ''}{whole}{_BINARY[step]}"
