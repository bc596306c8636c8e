"""The counters of one resource name since the process began. Pure."""

from __future__ import annotations

from functools import partial

from msgspec import Struct, field

from devplug.metrics.families import ALLOCATE_BOUNDS_SECONDS, DISCOVERY_BOUNDS_SECONDS, Counts, Histogram


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
