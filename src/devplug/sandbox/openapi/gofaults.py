"""Why a text is no time, or no bytes, in the words of Go (time/format.go, encoding/base64/base64.go)."""

from __future__ import annotations

import calendar
import re
import string
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["base64_fault", "time_fault"]

_DATE: Final = (
    ("2006", r"[0-9]{4}", "year", range(10_000)),
    ("-", "-", "", range(0)),
    ("01", r"[0-9]{2}", "month", range(1, 13)),
    ("-", "-", "", range(0)),
    ("02", r"[0-9]{2}", "day", range(100)),
    ("T", "T", "", range(0)),
    ("15", r"[0-9]{1,2}", "hour", range(24)),
    (":", ":", "", range(0)),
    ("04", r"[0-9]{2}", "minute", range(60)),
    (":", ":", "", range(0)),
)
_SECOND: Final = ("05", r"[0-9]{2}", "second", range(60))
_SECOND_AND_FRACTION: Final = ("05", r"([0-9]{2})(?:[.,][0-9]+)?", "second", range(60))
_MICROSECONDS: Final = (".000000", r"[.,][0-9]{6}", "", range(0))
_ZONE: Final = ("Z07:00", r"Z|[+-](?:[01][0-9]|2[0-4]):(?:[0-5][0-9]|60)", "", range(0))

_LAYOUTS: Final[Mapping[str, tuple[tuple[str, str, str, range], ...]]] = {
    "MicroTime": (*_DATE, _SECOND, _MICROSECONDS, _ZONE),
    "Time": (*_DATE, _SECOND_AND_FRACTION, _ZONE),
}
"""Each part of a form: how the layout writes it, what matches, its name and its range if it has one."""


_BASE64: Final = frozenset(string.ascii_letters + string.digits + "+/")
_MONTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def time_fault(type_: str, written: str) -> str:
    """Return why `written` is no `Time` or no `MicroTime` (which needs six decimals); empty if it is one."""
    parts = _LAYOUTS[type_]
    rest = written
    read: dict[str, int] = {}
    for element, form, name, allowed in parts:
        found = re.match(form, rest)
        if found is None:
            layout = "".join(part[0] for part in parts)
            told = f"cannot parse {_quoted(rest)} as {_quoted(element)}"
            return f"parsing time {_quoted(written)} as {_quoted(layout)}: {told}"
        rest = rest[found.end() :]
        if name:
            read[name] = int(found[1] if found.lastindex else found[0])
            if read[name] not in allowed:
                return f"parsing time {_quoted(written)}: {name} out of range"
    if rest:
        return f"parsing time {_quoted(written)}: extra text: {_quoted(rest)}"
    if not 1 <= read["day"] <= _days(read["year"], read["month"]):
        return f"parsing time {_quoted(written)}: day out of range"
    return ""


def base64_fault(written: str) -> str:
    """Return why `written` is no bytes in base64; empty if it is. Line ends do not count."""
    coded = written.encode()
    digits = [(at, chr(byte)) for at, byte in enumerate(coded) if byte not in b"\r\n"]
    for number, (at, digit) in enumerate(digits):
        if digit == "=":
            return _padding_fault(digits[number:], number % 4, len(coded))
        if digit not in _BASE64:
            return _corrupt(at)
    return _corrupt(len(coded) - len(digits) % 4) if len(digits) % 4 else ""


def _padding_fault(rest: list[tuple[int, str]], place: int, length: int) -> str:
    """Judge the end, from the first `=` on, which stands at this place of four."""
    if place < 2:
        return _corrupt(rest[0][0])
    needed = 4 - place
    if len(rest) < needed:
        return _corrupt(length)
    if rest[needed - 1][1] != "=":
        return _corrupt(rest[needed - 1][0] - 1)
    return _corrupt(rest[needed][0]) if len(rest) > needed else ""


def _corrupt(at: int) -> str:
    return f"illegal base64 data at input byte {at}"


def _quoted(written: str) -> str:
    """Return a text as `time` quotes it, which is not Go's usual way."""
    return '"' + "".join(map(_quoted_character, written)) + '"'


def _quoted_character(one: str) -> str:
    if one < " " or one >= "\x80":
        return "".join(f"\\x{byte:02x}" for byte in one.encode())
    return f"\\{one}" if one in '"\\' else one


def _days(year: int, month: int) -> int:
    return 29 if month == 2 and calendar.isleap(year) else _MONTHS[month]
