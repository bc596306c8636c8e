"""What a resource has gone through since the process began, as numbers that only grow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.metrics.accumulating import (
    ALLOCATE_BOUNDS_SECONDS,
    DISCOVERY_BOUNDS_SECONDS,
    Counts,
    Histogram,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Tally"]


def _counts(*results: str) -> Callable[[], Counts]:
    def begun() -> Counts:
        counts = Counts()
        for result in results:
            counts.begin(result)
        return counts

    return begun


@dataclass(slots=True)
class Tally:
    """Counts of one resource name; lives as long as the process, also while the resource is served anew."""

    registrations: Counts = field(default_factory=_counts("accepted", "refused", "unreachable"))
    streams_opened: int = 0
    lists_sent: int = 0
    """To all streams together."""
    allocations: Counts = field(default_factory=_counts("granted", "refused", "failed", "timed_out"))
    allocate_seconds: Histogram = field(default_factory=lambda: Histogram(ALLOCATE_BOUNDS_SECONDS))
    """Of all of them, whatever the answer was."""
    preferences: Counts = field(default_factory=_counts("ranked", "failed"))
    pre_starts: Counts = field(default_factory=_counts("finished", "refused", "failed", "timed_out"))
    health_transitions: Counts = field(default_factory=_counts("healthy", "unhealthy"))
    """By the new health, of devices that were listed before."""
    look_seconds: Histogram = field(default_factory=lambda: Histogram(DISCOVERY_BOUNDS_SECONDS))
    """How long looks for devices took, where that is known."""
