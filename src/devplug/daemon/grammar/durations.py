"""Lengths of time as people write them (`500ms`, `30s`, `1h30m`, `forever`) and as seconds. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

from msgspec import Struct

__all__ = ["FOREVER", "DurationRange", "format_duration", "parse_duration"]

FOREVER: Final = math.inf
"""What the word `forever` means, in seconds."""

_DURATION: Final = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?", re.ASCII)
_UNITS_MS: Final = (("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
_DAYS: Final = re.compile(r"(\d{1,6})d", re.ASCII)


class DurationRange(Struct, frozen=True):
    """Which lengths of time a key takes, both ends included, in seconds."""

    shortest_seconds: float
    longest_seconds: float
    forever: bool = False
    """Whether the word `forever` may stand there too."""

    def fault(self, seconds: float) -> str | None:
        """Return what keeps `seconds` from being in this range, or None."""
        if self.shortest_seconds <= seconds <= self.longest_seconds or (self.forever and seconds == FOREVER):
            return None
        return f"{format_duration(seconds)} is out of range; write {self}"

    def __str__(self) -> str:
        """Return the range in words."""
        ends = f"{format_duration(self.shortest_seconds)} to {format_duration(self.longest_seconds)}"
        return f"{ends}, or forever" if self.forever else ends


def parse_duration(text: str) -> float:
    """Return the seconds that `text` means; raises ValueError with what to write instead."""
    if text == "forever":
        return FOREVER
    if text and (found := _DURATION.fullmatch(text)):
        units = zip(found.groups(default="0"), _UNITS_MS, strict=True)
        return sum(int(number) * unit_ms for number, (_, unit_ms) in units) / 1_000
    if _NUMBER.fullmatch(text):
        raise ValueError(f"{text} has no unit; write {text}s if seconds are meant")
    if days := _DAYS.fullmatch(text):
        raise ValueError(f"{text}: a day has no fixed length; write {int(days.group(1)) * 24}h")
    raise ValueError('is not a duration; write one such as "500ms", "30s" or "1h30m"')


def format_duration(seconds: float) -> str:
    """Return `seconds` as the shortest text that `parse_duration` reads back to the millisecond."""
    if seconds == FOREVER:
        return "forever"
    rest_ms = round(seconds * 1_000)
    text = ""
    for unit, unit_ms in _UNITS_MS:
        number, rest_ms = divmod(rest_ms, unit_ms)
        text += f"{number}{unit}" if number else ""
    return text or "0s"
