"""How many calls a server takes: a token bucket, as a value (golang.org/x/time/rate). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["TokenBucket"]

_CLOCK_ERROR_SECONDS: Final = 1e-6
"""A token that is missing for less than this is there: seconds as a float are a little off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """A bucket that holds up to `size` tokens, one for each call, and is refilled at `per_second`.

    Full at first, and replaced at each call that is allowed. Times are seconds of any clock that does not go
    back.
    """

    per_second: float
    size: int
    counted_at_seconds: float
    missing: float = 0.0
    """How many tokens it lacked at `counted_at_seconds`; 0 is full."""

    def taken(self, now_seconds: float) -> TokenBucket | None:
        """Return the bucket after one call, or None if the call is refused; then this one goes on."""
        refilled = (now_seconds - self.counted_at_seconds) * self.per_second
        missing = max(0.0, self.missing - refilled) + 1
        if (missing - self.size) / self.per_second >= _CLOCK_ERROR_SECONDS:
            return None
        return replace(self, missing=missing, counted_at_seconds=now_seconds)
