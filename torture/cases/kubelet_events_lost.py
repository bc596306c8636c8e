"""The kernel tells nothing of what happens to files: no descriptor for events, no watch, or too many."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from torture.blind import CANNOT
from torture.catalogue import case
from torture.held import nothing_kept
from torture.unseen import KINDS, unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.catalogue import Trial

MEANS: Final = ("instances", "watches")
QUEUE: Final = Path("/proc/sys/fs/inotify/max_queued_events")

SHARE_OF_OVERFLOWS: Final = 5
"""One round of so many floods the queue; the others play in processes that get no events at all."""


@case(
    "kubelet-events-lost",
    fault="X18",
    promise="A plugin that gets no file events, because there is no descriptor, no watch, or too many of "
    "them, sees another kubelet, a removed socket and a changed device within 2 s all the same",
    count=200,
    unit="changes",
    invariants="I2 I3",
    limit_seconds=150,
)
async def kubelet_events_lost(trial: Trial) -> None:
    """Refuse descriptors and watches by the limits of a user namespace; flood the queue in this process."""
    floods = max(1, trial.count // SHARE_OF_OVERFLOWS)
    counts = [(trial.count - floods + 1) // 2, (trial.count - floods) // 2]
    async with asyncio.TaskGroup() as group:
        for means, count in zip(MEANS, counts, strict=True):
            group.create_task(_blind(trial, means, count))
    await _flooded(trial, floods)


async def _blind(trial: Trial, means: str, count: int) -> None:
    """Play rounds in a process that is refused one thing; its rounds have the numbers from 0 on."""
    if not count:
        return
    words = [sys.executable, "-m", "torture.blind", means]
    words += ["--seed", f"{trial.seed}/{trial.case.name}/{means}/{trial.first}", "--rounds", str(count)]
    child = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == CANNOT:
        trial.figure(f"no {means}", f"not played: {errors.decode().strip()}")
        return
    if child.returncode:
        trial.broke(f"I4: without {means}: {errors.decode().strip()[-1000:]}")
        return
    result = json.loads(output)
    trial.done += len(result["times"]) + len(result["broken"])
    for text in result["broken"]:
        trial.broke(f"{text} without {means}")
    trial.times(f"no {means}: change → seen", result["times"], p99_within=2.0)


async def _flooded(trial: Trial, count: int) -> None:
    """Have things happen just after the queue of events has run over."""
    times = []
    async with unseen(trial.folder, 0) as lane:
        folders = [trial.folder / "0" / name for name in "pd"]
        lane.happen("kubelet", Random(0))
        await lane.until_seen("kubelet")
        async with nothing_kept(trial):
            for turn in trial.rounds(count):
                kind = turn.random.choice(KINDS)
                _flood(folders)
                lane.happen(kind, turn.random)
                times.append(await lane.until_seen(kind))
            # What came over a socket that was removed goes on until its kubelet ends.
            lane.happen("kubelet", Random(0))
            await lane.until_seen("kubelet")
    trial.times("queue run over: change → seen", times, p99_within=2.0)


def _flood(folders: Sequence[Path]) -> None:
    """Have more happen than the queue takes, while nobody reads it."""
    for number in range(int(QUEUE.read_text()) // 2 + 64):
        # No two events of one kind for one name in a row, which the kernel would tell as one.
        path = folders[number % len(folders)] / "flood"
        path.touch()
        path.unlink()
