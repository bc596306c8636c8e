"""The metrics of a program with plugins, and the status of its process, from what is served."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.metrics import catalogue
from devplug.metrics.devices import driver_families, process_families, resource_families
from devplug.metrics.families import Family, HistogramSample, Sample
from devplug.status import ProcessStatus, faults_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.driver.status import ClaimCounters
    from devplug.metrics.families import Counts
    from devplug.plugin.counters import PluginCounters
    from devplug.status import DriverStatus, ResourceStatus


# ── metrics ──


def _counter_families(counters: Mapping[str, PluginCounters], streams: Mapping[str, int]) -> Iterator[Family]:
    """Yield the counts and the number of open streams of each resource name."""
    named = sorted(counters.items())
    yield Family(catalogue.STREAMS, [Sample((name,), count) for name, count in sorted(streams.items())])
    yield Family(catalogue.STREAMS_OPENED, [Sample((name,), one.streams_opened) for name, one in named])
    yield Family(catalogue.LISTANDWATCH_UPDATES, [Sample((name,), one.lists_sent) for name, one in named])
    for metric, counts in (
        (catalogue.REGISTRATIONS, {name: one.registrations for name, one in named}),
        (catalogue.ALLOCATIONS, {name: one.allocations for name, one in named}),
        (catalogue.PRE_STARTS, {name: one.pre_starts for name, one in named}),
        (catalogue.PREFERENCES, {name: one.preferences for name, one in named}),
        (catalogue.HEALTH_TRANSITIONS, {name: one.health_transitions for name, one in named}),
    ):
        yield Family(metric, list(_samples(counts)))
    yield Family(
        catalogue.ALLOCATE_DURATION,
        [one.allocate_seconds.sample(name) for name, one in named],
    )
    looks: list[HistogramSample] = [one.look_seconds.sample(name) for name, one in named]
    yield Family(catalogue.DISCOVERY_DURATION, [look for look in looks if look.count])


def _claim_families(counters: Mapping[str, ClaimCounters]) -> Iterator[Family]:
    """Yield the counts of each driver."""
    named = sorted(counters.items())
    prepares = _samples({name: one.prepares for name, one in named})
    unprepares = _samples({name: one.unprepares for name, one in named})
    prepare_seconds = [one.prepare_seconds.sample(name) for name, one in named]
    unprepare_seconds = [one.unprepare_seconds.sample(name) for name, one in named]
    yield Family(catalogue.CLAIM_PREPARES, list(prepares))
    yield Family(catalogue.CLAIM_PREPARE_DURATION, prepare_seconds)
    yield Family(catalogue.CLAIM_UNPREPARES, list(unprepares))
    yield Family(catalogue.CLAIM_UNPREPARE_DURATION, unprepare_seconds)


def _samples(counts: Mapping[str, Counts]) -> Iterator[Sample]:
    for name, one in counts.items():
        for labels, value in one.samples():
            yield Sample((name, *labels), value)


# ── the process ──


def _began_at() -> float:
    """Return the Unix time at which this process began: field 22 of /proc/self/stat (proc_pid_stat(5))."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:  # no /proc here
        return time.time()
    age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_seconds


_STARTED_AT: Final = _began_at()


def status_of(
    resources: tuple[ResourceStatus, ...], version: str, drivers: tuple[DriverStatus, ...] = ()
) -> ProcessStatus:
    """Return the status of this process, with what it serves; `version` is that of devplug."""
    return ProcessStatus(
        process=os.getpid(),
        version=version,
        python=platform.python_version(),
        started_at=_STARTED_AT,
        resources=resources,
        faults=faults_of(resources),
        drivers=drivers,
    )


def serving_families(
    status: ProcessStatus,
    counters: Mapping[str, PluginCounters],
    streams: Mapping[str, int],
    claim_counters: Mapping[str, ClaimCounters],
) -> Iterator[Family]:
    """Yield the metrics: `counters` and open `streams` by resource name, `claim_counters` by driver."""
    yield from process_families(status)
    yield from resource_families(status.resources)
    yield from _counter_families(counters, streams)
    if status.drivers:
        yield from driver_families(status.drivers, time.time())
        yield from _claim_families(claim_counters)
