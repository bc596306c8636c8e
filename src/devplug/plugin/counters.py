"""The counters of each resource name since the process began. Pure.

A program keeps them, and the last list, when the plugin that serves the name ends. Times are passed in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.metrics.families import ALLOCATE_BOUNDS_SECONDS, DISCOVERY_BOUNDS_SECONDS, Counts, Histogram

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from devplug.plugin.snapshot import Past

__all__ = ["FORMER_LIMIT", "REPLACED_WITHIN_SECONDS", "PluginCounters", "Records"]

# ── counters ──


class PluginCounters(Struct):
    """Counts of one resource name; lives as long as the process, also while the resource is served anew."""

    registrations: Counts = field(default_factory=partial(Counts, "accepted", "refused", "unreachable"))
    streams_opened: int = 0
    lists_sent: int = 0
    """Over all streams together."""
    allocations: Counts = field(default_factory=partial(Counts, "granted", "refused", "failed", "timed_out"))
    allocate_seconds: Histogram = field(default_factory=lambda: Histogram(ALLOCATE_BOUNDS_SECONDS))
    """Of all calls, whatever the answer was."""
    preferences: Counts = field(default_factory=partial(Counts, "ranked", "failed"))
    pre_starts: Counts = field(default_factory=partial(Counts, "finished", "refused", "failed", "timed_out"))
    health_transitions: Counts = field(default_factory=partial(Counts, "healthy", "unhealthy"))
    """By the new health, of devices that were listed before."""
    look_seconds: Histogram = field(default_factory=lambda: Histogram(DISCOVERY_BOUNDS_SECONDS))
    """How long scans for devices took, where that is known."""


# ── what is remembered ──

REPLACED_WITHIN_SECONDS: Final = 10.0
"""How soon a plugin has to follow another one of its name for its devices to count as listed all the time."""

FORMER_LIMIT: Final = 100
"""For how many resources that are no longer served the counts are kept, the latest ones: names may come and
go for years."""


class Records:
    """The counters and last lists of all resources; lives as long as the program serves.

    Times are seconds on one clock that never goes back.
    """

    def __init__(self) -> None:
        self._counters: dict[str, PluginCounters] = {}
        self._pasts: dict[str, tuple[float, Past]] = {}

    @property
    def counters(self) -> Mapping[str, PluginCounters]:
        """The counts of each resource, by name."""
        return self._counters

    def counters_of(self, name: str) -> PluginCounters:
        """Return the counts of a resource, which begin with 0 when it is first asked for."""
        return self._counters.setdefault(name, PluginCounters())

    def leave(self, name: str, past: Past, now: float) -> None:
        """Keep the last list of a plugin that has ended, for the next one of its name."""
        recent = {one: (at, left) for one, (at, left) in self._pasts.items() if _is_recent(at, now)}
        self._pasts = {**recent, name: (now, past)}
        self._counters[name] = self._counters.pop(name, PluginCounters())  # the last one to be forgotten

    def take(self, name: str, now: float) -> Past | None:
        """Return the last list of the plugin before, once; None if none ended a moment ago."""
        at, past = self._pasts.pop(name, (now, None))
        return past if _is_recent(at, now) else None

    def forget_former(self, served: Collection[str]) -> None:
        """Forget the counts of all but the latest of those that are not served."""
        former = [name for name in self._counters if name not in served]
        for name in former[:-FORMER_LIMIT]:
            del self._counters[name]


def _is_recent(at: float, now: float) -> bool:
    return now - at <= REPLACED_WITHIN_SECONDS
