"""The clock of a kubelet under test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """The kubelet's clock, in seconds: it goes on by itself, and can be moved on."""

    def __init__(self, on_advance: Callable[[], None]) -> None:
        self._moved_seconds = 0.0
        self._on_advance = on_advance

    def __call__(self) -> float:
        """Return the time, from no particular beginning."""
        return time.monotonic() + self._moved_seconds

    def advance(self, seconds: float) -> None:
        """Go on by so many seconds at once; the kubelet then reports its node, as it would have by then.

        Raises `ValueError` for fewer than none: this clock never goes back.
        """
        if seconds < 0:
            raise ValueError(f"the kubelet's clock cannot go back by {-seconds:g} s")
        self._moved_seconds += seconds
        self._on_advance()
