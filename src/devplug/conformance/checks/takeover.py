"""Successors: a plugin that was ended or killed, and is started again in the same folder, or too early."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.conformance.restart_scenes import dead_sockets, ids_of, to_same_ids
from devplug.conformance.rules import changed_ids
from devplug.conformance.testbed import once_in_a_run
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check

if TYPE_CHECKING:
    from collections.abc import Collection

    from devplug.conformance.testbed import TestBed

_LANE = "successors"


@check(
    "RES17",
    MUST,
    "The device IDs are the same after a restart of the plugin.",
    why="the kubelet's checkpoint names the IDs that pods hold; under another ID a device is given to a "
    "second pod",
    change="make IDs from what the device is (serial number, bus address), never from a counter, a time or "
    "a random number",
    source="Kubernetes e2e_node/device_plugin_test.go, the cases over a restart of the plugin",
    lane=_LANE,
    quick=False,
)
async def same_ids_after_a_restart(bed: TestBed) -> None:
    """End the plugin with SIGTERM, start it again beside the same kubelet, and compare the IDs."""
    ids = ids_of(bed)
    program = bed.program
    await program.stop(bed.times.end_seconds)
    moment = time.monotonic()
    await bed.launch()
    await bed.wait_back(
        moment, bed.times.start_seconds, "the plugin was ended and started again, and sent no list"
    )
    if change := changed_ids(ids, await to_same_ids(bed, ids)):
        raise FailedError(f"started again, {change}")


@dataclass(frozen=True, slots=True)
class _Revival:
    trouble: str
    dead: Collection[str] = ()
    """The sockets on which nobody listens when the successor has settled."""


async def _revival(bed: TestBed) -> _Revival:
    await bed.program.kill()
    # A container is not back at once either, and names are made of seconds.
    await asyncio.sleep(bed.times.settle_seconds)
    moment = time.monotonic()
    await bed.launch()
    words = "the plugin was killed and started again, and sent no list"
    try:
        await bed.wait_back(moment, bed.times.start_seconds, words)
    except FailedError as error:
        return _Revival(str(error))
    await asyncio.sleep(bed.times.settle_seconds)
    return _Revival("", dead_sockets(bed.folder))


@check(
    "RES18",
    MUST,
    "A plugin starts although a killed one has left its socket file.",
    why="a plugin that runs out of memory is killed, and otherwise all its successors fail",
    change="remove your socket's path before you bind if nobody answers there, or use a new name each time",
    source="unix(7), EADDRINUSE: a socket file outlives its process; kubernetes/kubernetes#128696",
    lane=_LANE,
    quick=False,
)
async def starts_after_a_kill(bed: TestBed) -> None:
    """Kill the plugin, which leaves its socket file, start it again, and wait for its list."""
    if trouble := (await once_in_a_run(bed, _revival)).trouble:
        raise FailedError(trouble)


@check(
    "RES19",
    SHOULD,
    "A successor reuses or removes the socket file that a killed plugin has left.",
    why="dead sockets pile up until the kubelet restarts, and programs that look for plugins dial each of "
    "them",
    change="use the same name at each start, or remove at the start those sockets of your own naming at "
    "which nobody listens",
    source="kubernetes/kubernetes#128696, #132660",
    lane=_LANE,
    quick=False,
)
async def no_dead_socket(bed: TestBed) -> None:
    """Kill the plugin, start it again, and look for sockets in the folder that refuse a connection."""
    seen = await once_in_a_run(bed, _revival)
    if seen.trouble:
        raise SkippedError("the plugin does not start again after it was killed (RES18)")
    if seen.dead:
        raise FailedError(f"nobody listens any more at {', '.join(sorted(seen.dead))}")


@check(
    "RES20",
    SHOULD,
    "A plugin that starts before its predecessor has ended serves as soon as that has ended.",
    why="with a rolling update that starts the new pod first, and with a slow end, two of them overlap",
    change="if two may not run at once, let the second wait until the first is gone instead of exiting; and "
    "remove a socket at your end only if the file is still the one that you made",
    source="kubernetes/kubernetes#121994, #127803",
    lane=_LANE,
    quick=False,
)
async def serves_after_an_overlap(bed: TestBed) -> None:
    """Start a second one beside the first, end the first with SIGTERM, and see whether the second serves."""
    first = bed.program
    took_seconds = bed.kubelet.attempts_since(first.started_at)[0].started_at - first.started_at
    moment = time.monotonic()
    second = await bed.launch()
    # One that waits for the first never registers now; it has the time that it needs to come so far.
    await bed.kubelet.until(
        lambda: bool(bed.kubelet.attempts_since(moment)) or not bed.is_alive(),
        2 * took_seconds + bed.times.settle_seconds,
    )
    if bed.is_alive():
        await first.stop(bed.times.end_seconds)
        await asyncio.sleep(bed.times.settle_seconds)
    if second.exit_code is not None:
        raise FailedError(
            f"the second plugin ended with {second.exit_code} beside the first: {second.last_words()}"
        )
    await bed.wait_ready(bed.times.return_seconds, "the first plugin ended, and the second sent no list")
    await bed.check_serves()
