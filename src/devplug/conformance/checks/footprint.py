"""Footprint: the memory, CPU time, threads and descriptors of a plugin, idle and over kubelet restarts.

An idle one is measured while nothing happens; what a plugin keeps of each restart adds up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.conformance.restart_scenes import expect_restart_survived, restarts_in_a_row
from devplug.conformance.rules import (
    DESCRIPTORS_MORE,
    ENOUGH,
    MEBIBYTE,
    memory_growth_bytes,
    more_descriptors,
    more_threads,
    threads_more,
)
from devplug.conformance.testbed import once
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check

if TYPE_CHECKING:
    from devplug.conformance.figures import Figures
    from devplug.conformance.restart_scenes import Row
    from devplug.conformance.testbed import TestBed

RESIDENT_LIMIT_BYTES: Final = 128 * 1024 * 1024
PROCESSOR_LIMIT: Final = 0.02
"""The part of one processor."""
THREADS_LIMIT: Final = 64
DESCRIPTORS_LIMIT: Final = 128
LINES_PER_SECOND_LIMIT: Final = 2

_MIB: Final = 1024 * 1024

_LANE = "restarts in a row"
_GROWTH_MEBIBYTES = 8


# ── an idle plugin ──


async def _settled(bed: TestBed) -> Figures:
    """Return its usage when its start has settled."""
    over_at = bed.client.stream_opened_at + bed.times.settle_seconds
    await asyncio.sleep(max(0.0, over_at - time.monotonic()))
    return bed.program.figures()


@dataclass(frozen=True, slots=True)
class _Idle:
    """What a plugin did in a time in which there was nothing to do."""

    seconds: float
    processor_share: float
    lines: int


async def _idle(bed: TestBed) -> _Idle:
    before = await _settled(bed)
    begun = time.monotonic()
    lines = bed.program.output().count("\n")
    await asyncio.sleep(bed.times.idle_seconds)
    seconds = time.monotonic() - begun
    return _Idle(
        seconds,
        bed.program.figures().processor_share_since(before, seconds),
        bed.program.output().count("\n") - lines,
    )


@check(
    "FOO01",
    SHOULD,
    "A plugin takes no more than 128 MiB of memory.",
    why="the plugin runs on every node, and a memory limit that fits most nodes kills it on the others",
    change="look for lists that only grow, and for libraries that are loaded for one function",
    source="squat/generic-device-plugin#11, squat/generic-device-plugin#17, intel/helm-charts#34",
    lane="footprint",
    alone=True,
)
async def is_small(bed: TestBed) -> str:
    """Add up the resident memory of its processes when it has settled."""
    resident = (await _settled(bed)).resident_bytes
    if resident > RESIDENT_LIMIT_BYTES:
        raise FailedError(f"the plugin has {resident / _MIB:.0f} MiB of resident memory")
    return f"{resident / _MIB:.0f} MiB"


@check(
    "FOO02",
    SHOULD,
    "A plugin takes no more than 2 % of a processor while nothing happens.",
    why="the pods of every node lack that time, all day",
    change="wait for events, or look at the devices less often",
    source="smarter-device-manager main.go loops without a pause",
    lane="footprint",
    alone=True,
    quick=False,
)
async def is_idle(bed: TestBed) -> str:
    """Measure the processor time of its processes while no call is made and nothing changes."""
    idle = await once(bed, _idle)
    if idle.processor_share > PROCESSOR_LIMIT:
        raise FailedError(
            f"the plugin took {100 * idle.processor_share:.1f} % of a processor over {idle.seconds:.1f} s"
        )
    return f"{100 * idle.processor_share:.1f} %"


@check(
    "FOO03",
    SHOULD,
    "A plugin has no more than 64 threads.",
    why="pods have a limit of processes and threads, and a plugin with a thread for each stream reaches it",
    change="limit the pool that serves calls, and end the threads of a stream with the stream",
    source="kubernetes.io/docs: process ID limits and reservations",
    lane="footprint",
    alone=True,
)
async def has_few_threads(bed: TestBed) -> str:
    """Count the threads of its processes when it has settled."""
    threads = (await _settled(bed)).threads
    if threads > THREADS_LIMIT:
        raise FailedError(f"the plugin has {threads} threads")
    return f"{threads} threads"


@check(
    "FOO04",
    SHOULD,
    "A plugin has no more than 128 files and sockets open.",
    why="files that are opened for each scan or each device reach the limit of the process, or of the node",
    change="close files after reading them; one inotify instance is enough for all folders",
    source="kubernetes/kubernetes#64614, NVIDIA/gpu-operator#441",
    lane="footprint",
    alone=True,
)
async def has_few_descriptors(bed: TestBed) -> str:
    """Count the open descriptors of its processes when it has settled."""
    descriptors = (await _settled(bed)).descriptors
    if descriptors > DESCRIPTORS_LIMIT:
        raise FailedError(f"the plugin has {descriptors} descriptors open")
    return f"{descriptors} descriptors"


@check(
    "FOO05",
    SHOULD,
    "A plugin prints no more than two lines a second while nothing happens.",
    why="every line is stored and searched on every node, and noise hides what matters",
    change="print when something has changed, not at every check",
    source="devplug's own rule",
    lane="footprint",
    alone=True,
    quick=False,
)
async def is_quiet(bed: TestBed) -> str:
    """Count the lines that it prints while no call is made and nothing changes."""
    idle = await once(bed, _idle)
    if idle.lines > LINES_PER_SECOND_LIMIT * idle.seconds:
        raise FailedError(f"the plugin printed {idle.lines} lines in {idle.seconds:.1f} s")
    return f"{idle.lines} lines in {idle.seconds:.1f} s"


# ── twenty restarts in a row ──


@check(
    "RES11",
    MUST,
    "A plugin registers after each of many restarts in a row.",
    why="a plugin that gives up after some tries is lost until somebody restarts it",
    change="make a new server, socket and connection for each registration, and do not limit the attempts",
    source="kubevirt/device-plugin-manager#32, squat/generic-device-plugin#37",
    lane=_LANE,
    quick=False,
)
async def back_after_each(bed: TestBed) -> str:
    """Restart the kubelet as soon as the plugin has registered, 20 times or as often as a minute allows."""
    await expect_restart_survived(bed)
    seen = await restarts_in_a_row(bed)
    if seen.trouble:
        raise FailedError(seen.trouble)
    return f"{seen.restarts} restarts in {seen.seconds:.1f} s"


async def _row(bed: TestBed) -> Row:
    await expect_restart_survived(bed)
    seen = await restarts_in_a_row(bed)
    if seen.trouble:
        raise SkippedError("the plugin did not register after each restart (RES11)")
    if seen.restarts < ENOUGH:
        raise SkippedError(f"{seen.restarts} restarts took {seen.seconds:.0f} s, too few to show a leak")
    return seen


@check(
    "RES12",
    SHOULD,
    "Restarts of the kubelet leave no descriptors open.",
    why="at the limit of open files, 1024 on many nodes, the kubelet can no longer dial the plugin",
    change="close the old server, its connections, the connection to the kubelet and every watch before you "
    "open new ones",
    source="kubernetes/kubernetes#64614, NVIDIA/gpu-operator#441",
    lane=_LANE,
    quick=False,
)
async def descriptors(bed: TestBed) -> str:
    """Count the open descriptors before many restarts and after them."""
    seen = await _row(bed)
    before, after = seen.figures[0].descriptors, seen.figures[-1].descriptors
    if more_descriptors(seen.figures) > DESCRIPTORS_MORE:
        raise FailedError(
            f"{before} descriptors were open before {seen.restarts} restarts, and {after} after them"
        )
    return f"{before} before, {after} after"


@check(
    "RES13",
    SHOULD,
    "Memory does not grow from restart to restart.",
    why="the plugin is killed at its memory limit, and that is another restart",
    change="release everything that belongs to the old server, and look for handlers that never return",
    source="squat/generic-device-plugin#11",
    lane=_LANE,
    quick=False,
)
async def memory(bed: TestBed) -> str:
    """Compare the resident memory after many restarts with that after half of them."""
    seen = await _row(bed)
    growth = memory_growth_bytes(seen.figures) / MEBIBYTE
    if growth > _GROWTH_MEBIBYTES:
        raise FailedError(
            f"resident memory grew by {growth:.1f} MiB over the later half of {seen.restarts} restarts; "
            f"{_GROWTH_MEBIBYTES} are allowed"
        )
    return f"{growth:+.1f} MiB over the later half of {seen.restarts} restarts"


@check(
    "RES14",
    SHOULD,
    "Restarts of the kubelet leave no threads behind.",
    why="a thread that still serves the old kubelet takes the changes that were meant for the new one",
    change="end the handler of ListAndWatch when its context is cancelled, and the server with its workers",
    source="squat/generic-device-plugin generic.go, where ListAndWatch never looks at its context",
    lane=_LANE,
    quick=False,
)
async def threads(bed: TestBed) -> str:
    """Compare the number of threads after many restarts with that after half of them."""
    seen = await _row(bed)
    more = more_threads(seen.figures)
    if more > threads_more(seen.figures):
        raise FailedError(
            f"{more} threads more run after the later half of {seen.restarts} restarts, "
            f"{seen.figures[-1].threads} in all"
        )
    return f"{seen.figures[0].threads} before, {seen.figures[-1].threads} after"
