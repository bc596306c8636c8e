"""What is left to chance in a schedule: how long each message and each event takes, and which are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

__all__ = ["Chance"]

QUICK_SECONDS: Final = 0.001
BUSY_SECONDS: Final = 0.05
SLOW_SECONDS: Final = 1.0


class Chance:
    """Draws delays from one source of chance. Lives as long as its schedule, whose faults turn its knobs."""

    def __init__(self, source: random.Random) -> None:
        self._draw = source.random
        self.busy = self._draw() * 0.3
        """How many of all messages take up to 50 ms, and not 1 ms as on an idle machine."""
        self.slow = self._draw() ** 4 * 0.2
        """How many of all messages take up to a second."""
        self.stalled = 0.0
        """How many of all calls and answers take up to `stall_seconds`."""
        self.stall_seconds = 20.0
        self.deaf = 0.0
        """How many of all file events are lost."""

    def calm(self) -> None:
        """End all that makes messages late or loses events: from now on the machine is at rest."""
        self.busy = self.slow = self.stalled = self.deaf = 0.0

    def message(self) -> float:
        """Return how many seconds a message takes."""
        if self.stalled and self._draw() < self.stalled:
            return self._draw() * self.stall_seconds
        return self._short()

    def event(self) -> float | None:
        """Return how many seconds a file event takes; None if it is lost."""
        if self.deaf and self._draw() < self.deaf:
            return None
        return self._short()

    def work(self) -> float:
        """Return how many seconds something takes that needs several turns of a real loop."""
        return self._short()

    def _short(self) -> float:
        which = self._draw()
        if which < self.slow:
            return self._draw() * SLOW_SECONDS
        if which < self.slow + self.busy:
            return self._draw() * BUSY_SECONDS
        return self._draw() * QUICK_SECONDS
