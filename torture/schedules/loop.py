"""An event loop without I/O, whose time passes only when nothing is left to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StuckError", "VirtualLoop"]


class StuckError(Exception):
    """Somebody waits for what nobody will ever do, or does something without end."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, with a clock that is put forward to the next timer whenever all are waiting.

    Nothing in it is left to chance, and callbacks that are ready run in the order in which they became so: a
    real loop promises that, and our code may rely on it. What no real loop promises is when messages, events
    and timers come, and those of different sources in which order. So chance belongs to whoever stands in for
    them: he calls `call_at` with a time that is drawn.
    """

    limit = 1_000_000
    """How often it may turn between two `begin`."""

    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._clock_resolution = 1e-9
        self._selector = self
        """What `BaseEventLoop` waits with."""

    def begin(self) -> None:
        """Put the clock back to 0, so that a story does not depend on those before it. Nothing may wait."""
        if self._scheduled and not all(handle.cancelled() for handle in self._scheduled):
            raise StuckError(f"left over from the story before: {self._scheduled}")
        self._scheduled.clear()
        self._timer_cancelled_count = 0
        self._now = 0.0
        self._turns = 0

    def time(self) -> float:
        """Return how many seconds of the story have passed."""
        return self._now

    def select(self, timeout: float | None) -> Sequence[object]:
        """Wait for I/O, of which there is none: put the clock forward to the first timer."""
        self._turns += 1
        if timeout is None:
            raise StuckError(f"after {self._now:g} s nothing is left that could happen")
        if self._turns > self.limit:
            raise StuckError(f"{self._now:g} s took {self._turns} turns of the loop")
        if timeout:
            # Not the sum, which may be a little less than the timer's time.
            self._now = self._scheduled[0].when()
        return ()

    def _process_events(self, event_list: Sequence[object]) -> None:
        """Do nothing, as there is no I/O."""

    def _write_to_self(self) -> None:
        """Do nothing, as the loop never sleeps."""
