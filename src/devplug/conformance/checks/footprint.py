"""Footprint: what a registered plugin takes from its node while nothing happens."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.conformance.registry import SHOULD, check
from devplug.conformance.stage import once
from devplug.conformance.verdicts import FailedError

if TYPE_CHECKING:
    from devplug.conformance.program import Figures
    from devplug.conformance.stage import Stage

RESIDENT_LIMIT_BYTES: Final = 128 * 1024 * 1024
PROCESSOR_LIMIT: Final = 0.02
"""The part of one processor."""
THREADS_LIMIT: Final = 64
DESCRIPTORS_LIMIT: Final = 128
LINES_PER_SECOND_LIMIT: Final = 2

_MIB: Final = 1024 * 1024


async def _settled(stage: Stage) -> Figures:
    """Return what it takes when the bustle of its start is over."""
    over_at = stage.client.stream_opened_at + stage.times.settle_seconds
    await asyncio.sleep(max(0.0, over_at - time.monotonic()))
    return stage.program.figures()


@dataclass(frozen=True, slots=True)
class _Idle:
    """What a plugin did in a time in which there was nothing to do."""

    seconds: float
    processor_share: float
    lines: int


async def _idle(stage: Stage) -> _Idle:
    before = await _settled(stage)
    begun = time.monotonic()
    lines = stage.program.output().count("\n")
    await asyncio.sleep(stage.times.idle_seconds)
    seconds = time.monotonic() - begun
    return _Idle(
        seconds,
        stage.program.figures().processor_share_since(before, seconds),
        stage.program.output().count("\n") - lines,
    )


@check(
    "FOO01",
    SHOULD,
    "A plugin takes no more than 128 MiB of memory.",
    why="it runs on every node, and with a limit that fits most of them it is killed on some",
    change="look for lists that only grow, and for libraries that are loaded for one function",
    source="squat/generic-device-plugin#11, squat/generic-device-plugin#17, intel/helm-charts#34",
    lane="footprint",
    alone=True,
)
async def is_small(stage: Stage) -> str:
    """Add up the resident memory of its processes when it has settled."""
    resident = (await _settled(stage)).resident_bytes
    if resident > RESIDENT_LIMIT_BYTES:
        raise FailedError(f"{resident / _MIB:.0f} MiB are resident")
    return f"{resident / _MIB:.0f} MiB"


@check(
    "FOO02",
    SHOULD,
    "A plugin takes no more than 2 % of a processor while nothing happens.",
    why="it takes it on every node, all day, from the pods",
    change="wait for events, or look at the devices less often",
    source="smarter-device-manager main.go loops without a pause",
    lane="footprint",
    alone=True,
    quick=False,
)
async def is_idle(stage: Stage) -> str:
    """Measure the processor time of its processes while no call is made and nothing is changed."""
    idle = await once(stage, _idle)
    if idle.processor_share > PROCESSOR_LIMIT:
        raise FailedError(f"it took {100 * idle.processor_share:.1f} % over {idle.seconds:.1f} s")
    return f"{100 * idle.processor_share:.1f} %"


@check(
    "FOO03",
    SHOULD,
    "A plugin has no more than 64 threads.",
    why="pods have a limit of processes, and a thread per stream is a leak that has begun",
    change="bound the pool that serves calls; end what a stream has started with it",
    source="kubernetes.io/docs: process ID limits and reservations",
    lane="footprint",
    alone=True,
)
async def has_few_threads(stage: Stage) -> str:
    """Count the threads of its processes when it has settled."""
    threads = (await _settled(stage)).threads
    if threads > THREADS_LIMIT:
        raise FailedError(f"it has {threads} threads")
    return f"{threads} threads"


@check(
    "FOO04",
    SHOULD,
    "A plugin has no more than 128 files and sockets open.",
    why="what is opened per look or per device runs into the limit of the process, or of the node",
    change="close what you have looked at; one inotify instance is enough for all folders",
    source="kubernetes/kubernetes#64614, NVIDIA/gpu-operator#441",
    lane="footprint",
    alone=True,
)
async def has_few_descriptors(stage: Stage) -> str:
    """Count the open descriptors of its processes when it has settled."""
    descriptors = (await _settled(stage)).descriptors
    if descriptors > DESCRIPTORS_LIMIT:
        raise FailedError(f"it has {descriptors} descriptors open")
    return f"{descriptors} descriptors"


@check(
    "FOO05",
    SHOULD,
    "A plugin prints no more than two lines a second while nothing happens.",
    why="what it prints is kept and searched on every node, and hides what matters",
    change="print when something has changed, not when it was looked at",
    source="the judge's own",
    lane="footprint",
    alone=True,
    quick=False,
)
async def is_quiet(stage: Stage) -> str:
    """Count the lines that it prints while no call is made and nothing is changed."""
    idle = await once(stage, _idle)
    if idle.lines > LINES_PER_SECOND_LIMIT * idle.seconds:
        raise FailedError(f"it printed {idle.lines} lines in {idle.seconds:.1f} s")
    return f"{idle.lines} lines in {idle.seconds:.1f} s"
