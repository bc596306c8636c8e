"""Values that stand in header fields: how long a call may last, and texts that are not ASCII ("Requests")."""

from __future__ import annotations

import math
import re
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

__all__ = ["percent_decoded", "percent_encoded", "timeout_seconds", "timeout_text"]

_UNITS: Final = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])").fullmatch
_MOST: Final = 99_999_999
"""Eight digits, whatever the unit."""

_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def timeout_text(seconds: float) -> str:
    """Return a time as `grpc-timeout` has it: in the finest unit that it fits into, never shorter."""
    for unit, size in _UNITS.items():
        count = math.ceil(max(seconds, 0) / size)
        if count <= _MOST:
            return f"{count}{unit}"
    return f"{_MOST}H"


def timeout_seconds(text: str) -> float:
    """Return the time of a `grpc-timeout`; raises ValueError."""
    found = _TIMEOUT(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


def percent_encoded(text: str) -> bytes:
    """Return a text as `grpc-message` has it: visible ASCII and blanks as they are, other bytes as %XX.

    A blank at either end is no part of a field's value (RFC 9113 8.2.1), so it is written as %20.
    """
    inner = text.strip(" ")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    written = quote_from_bytes(inner.encode(errors="replace"), safe=_PLAIN)
    return f"{'%20' * len(before)}{written}{'%20' * len(after)}".encode()


def percent_decoded(value: bytes) -> str:
    """Return the text of a `grpc-message`; what is badly encoded stays as it is."""
    return unquote_to_bytes(value).decode(errors="replace")
