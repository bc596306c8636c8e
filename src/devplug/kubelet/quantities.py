"""Quantities as manifests write them: `2`, `500m`, `1Gi`, `1e3` (api/resource/quantity.go). Pure."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

__all__ = ["quantity_of", "whole"]

_SCALES: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
}

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?",
)


def quantity_of(text: str) -> Decimal | None:
    """Return the number that a quantity stands for; None if it is not one."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    try:
        number = Decimal(found["number"])
        if found["exponent"] is not None:
            return number.scaleb(int(found["exponent"]))
        return number * _SCALES[found["suffix"] or ""]
    except InvalidOperation:
        return None


def whole(quantity: Decimal) -> int:
    """Return a quantity as a count, rounded up as the kubelet rounds it (Quantity.Value)."""
    return int(quantity.to_integral_value(ROUND_CEILING))
