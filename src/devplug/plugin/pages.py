"""What a program with plugins tells of itself: the pages of `probes`, from what is served."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import devplug
from devplug.metrics.devices import process_families, resource_families
from devplug.plugin.families import tally_families
from devplug.plugin.statuses import faults_of, faults_told
from devplug.probes import Probes
from devplug.status.text import text_of
from devplug.status.values import ProcessStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.metrics.families import Family
    from devplug.plugin.serving import Serving
    from devplug.status.values import ResourceStatus

__all__ = ["probes_of", "process_status", "serving_families", "status_of"]


def _began_at() -> float:
    """Return when this process began, as a Unix time in seconds, for this is imported at the first question.

    It is in the 22nd field of /proc/self/stat, in ticks since the machine's start (proc_pid_stat(5)).
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:  # no /proc here
        return time.time()
    age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_seconds


_STARTED_AT: Final = _began_at()


def process_status(serving: Serving) -> ProcessStatus:
    """Return how this process is at this moment, as far as its plugins tell."""
    return status_of(serving.statuses())


def status_of(resources: tuple[ResourceStatus, ...]) -> ProcessStatus:
    """Return the status of this process, with what it serves."""
    return ProcessStatus(
        process=os.getpid(),
        version=devplug.__version__,
        python=platform.python_version(),
        started_at=_STARTED_AT,
        resources=resources,
        faults=faults_of(resources),
    )


def serving_families(serving: Serving, status: ProcessStatus) -> Iterator[Family]:
    """Yield the metrics of what is served; `status` is that of this moment."""
    yield from process_families(status)
    yield from resource_families(status.resources)
    yield from tally_families(serving.tallies, serving.streams)


def probes_of(serving: Serving) -> Probes:
    """Return the pages about what is served."""
    return Probes(
        status=lambda: text_of(process_status(serving)),
        faults=lambda: faults_told(serving.faults().items()),
        families=lambda: serving_families(serving, process_status(serving)),
        pulse=serving.pulse,
    )
