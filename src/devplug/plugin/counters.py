"""The counters of each resource name since the process began. Pure.

A program keeps them when the plugin that serves the name ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.metrics.families import ALLOCATE_BOUNDS_SECONDS, DISCOVERY_BOUNDS_SECONDS, Counts, Histogram

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


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

FORMER_LIMIT: Final = 100
"""For how many resources that are no longer served the counts are kept, the latest ones: names may come and
go for years."""


class CounterBook:
    """The counters of all resources; lives as long as the program serves."""

    def __init__(self) -> None:
        self._counters: dict[str, PluginCounters] = {}

    @property
    def counters(self) -> Mapping[str, PluginCounters]:
        """The counts of each resource, by name."""
        return self._counters

    def counters_of(self, name: str) -> PluginCounters:
        """Return the counts of a resource, which begin with 0 when it is first asked for."""
        return self._counters.setdefault(name, PluginCounters())

    def leave(self, name: str) -> None:
        """Keep the counts of a resource that is not served any more: the last ones to be forgotten."""
        self._counters[name] = self._counters.pop(name, PluginCounters())

    def forget_former(self, served: Collection[str]) -> None:
        """Forget the counts of all but the latest of those that are not served."""
        former = [name for name in self._counters if name not in served]
        for name in former[:-FORMER_LIMIT]:
            del self._counters[name]
