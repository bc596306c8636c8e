"""Many restarts in a row: what a plugin keeps of each of them adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.registry import MUST, SHOULD, check
from devplug.conformance.restart_scenes import expect_restart_survived, restarts_in_a_row
from devplug.conformance.rules.restart import (
    DESCRIPTORS_MORE,
    ENOUGH,
    MEBIBYTE,
    memory_growth_bytes,
    more_descriptors,
    more_threads,
    threads_more,
)
from devplug.conformance.verdicts import FailedError, SkippedError

if TYPE_CHECKING:
    from devplug.conformance.restart_scenes import Row
    from devplug.conformance.stage import Stage

_LANE = "restarts in a row"
_GROWTH_MEBIBYTES = 8


@check(
    "RES11",
    MUST,
    "A plugin is back after each of many restarts in a row.",
    why="one that gives up after some tries is lost until somebody restarts it",
    change="make what belongs to one registration anew for the next, and set no limit to the tries",
    source="kubevirt/device-plugin-manager#32, squat/generic-device-plugin#37",
    lane=_LANE,
    quick=False,
)
async def back_after_each(stage: Stage) -> str:
    """Restart the kubelet as soon as the plugin is back, 20 times or as often as a minute allows."""
    await expect_restart_survived(stage)
    seen = await restarts_in_a_row(stage)
    if seen.trouble:
        raise FailedError(seen.trouble)
    return f"{seen.restarts} restarts in {seen.seconds:.1f} s"


async def _row(stage: Stage) -> Row:
    await expect_restart_survived(stage)
    seen = await restarts_in_a_row(stage)
    if seen.trouble:
        raise SkippedError("it was not back after each restart, see RES11")
    if seen.restarts < ENOUGH:
        raise SkippedError(f"{seen.restarts} restarts took {seen.seconds:.0f} s, too few to show a leak")
    return seen


@check(
    "RES12",
    SHOULD,
    "Restarts of the kubelet leave no descriptors open.",
    why="at the limit of open files, 1024 on many nodes, the plugin can be dialled no more",
    change="close the old server, its connections, the connection to the kubelet and every watch before you "
    "open new ones",
    source="kubernetes/kubernetes#64614, NVIDIA/gpu-operator#441",
    lane=_LANE,
    quick=False,
)
async def descriptors(stage: Stage) -> str:
    """Count the open descriptors before many restarts and after them."""
    seen = await _row(stage)
    before, after = seen.figures[0].descriptors, seen.figures[-1].descriptors
    if more_descriptors(seen.figures) > DESCRIPTORS_MORE:
        raise FailedError(f"{after} descriptors are open after {seen.restarts} restarts, {before} before")
    return f"{before} before, {after} after"


@check(
    "RES13",
    SHOULD,
    "Memory does not grow from restart to restart.",
    why="the plugin is killed at its memory limit, and that is another restart",
    change="give up all that belongs to the old server; look for handlers that never return",
    source="squat/generic-device-plugin#11",
    lane=_LANE,
    quick=False,
)
async def memory(stage: Stage) -> str:
    """Compare the resident memory after many restarts with that after half of them."""
    seen = await _row(stage)
    growth = memory_growth_bytes(seen.figures) / MEBIBYTE
    if growth > _GROWTH_MEBIBYTES:
        raise FailedError(
            f"it grew by {growth:.1f} MiB over the later half of {seen.restarts} restarts; "
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
async def threads(stage: Stage) -> str:
    """Compare the number of threads after many restarts with that after half of them."""
    seen = await _row(stage)
    more = more_threads(seen.figures)
    if more > threads_more(seen.figures):
        raise FailedError(
            f"{more} more threads are there after the later half of {seen.restarts} restarts, "
            f"{seen.figures[-1].threads} in all"
        )
    return f"{seen.figures[0].threads} before, {seen.figures[-1].threads} after"
