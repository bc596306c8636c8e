"""What served plugins have gone through, as metric families. Pure, but that it reads them as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.metrics import catalogue
from devplug.metrics.families import Family, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.metrics.accumulating import Counts
    from devplug.plugin.tally import Tally

__all__ = ["tally_families"]


def tally_families(tallies: Mapping[str, Tally], streams: Mapping[str, int]) -> Iterator[Family]:
    """Yield the counts of each resource name, and how many streams are open of each."""
    named = sorted(tallies.items())
    yield Family(catalogue.STREAMS, [Sample((name,), count) for name, count in sorted(streams.items())])
    yield Family(catalogue.STREAMS_OPENED, [Sample((name,), tally.streams_opened) for name, tally in named])
    yield Family(catalogue.LISTANDWATCH_UPDATES, [Sample((name,), tally.lists_sent) for name, tally in named])
    for metric, counts in (
        (catalogue.REGISTRATIONS, {name: tally.registrations for name, tally in named}),
        (catalogue.ALLOCATIONS, {name: tally.allocations for name, tally in named}),
        (catalogue.PRE_STARTS, {name: tally.pre_starts for name, tally in named}),
        (catalogue.PREFERENCES, {name: tally.preferences for name, tally in named}),
        (catalogue.HEALTH_TRANSITIONS, {name: tally.health_transitions for name, tally in named}),
    ):
        yield Family(metric, list(_samples(counts)))
    yield Family(
        catalogue.ALLOCATE_DURATION,
        [tally.allocate_seconds.sample(name) for name, tally in named],
    )
    looks: list[HistogramSample] = [tally.look_seconds.sample(name) for name, tally in named]
    yield Family(catalogue.DISCOVERY_DURATION, [one for one in looks if one.count])


def _samples(counts: Mapping[str, Counts]) -> Iterator[Sample]:
    for name, one in counts.items():
        for labels, value in one.samples():
            yield Sample((name, *labels), value)
