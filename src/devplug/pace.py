"""The pace of things that must not follow each other too fast: lists, log lines, writes. Pure."""

from __future__ import annotations

from msgspec import Struct


class Pace(Struct):
    """How fast things may follow each other: a burst at once, then a steady rate. Times are seconds."""

    per_second: float = 2.0
    burst: int = 5
    _left: float | None = None
    _at: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """Return how long the next one has to wait at time `now`; 0 means it may go."""
        missing = 1.0 - self._refilled(now)
        # Who has waited for so long must not have to wait for what the sum of two times lacks.
        return missing / self.per_second if missing > 1e-9 else 0.0

    def spend(self, now: float) -> None:
        """Count one at time `now`, even if it is too early."""
        self._left = max(0.0, self._refilled(now) - 1.0)
        self._at = now

    def _refilled(self, now: float) -> float:
        if self._left is None:
            return float(self.burst)
        return min(float(self.burst), self._left + (now - self._at) * self.per_second)
