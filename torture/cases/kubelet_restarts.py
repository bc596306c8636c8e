"""The kubelet goes and comes back: in order, killed, twice in a row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from torture.beds import RESOURCE, Fed, bed
from torture.catalogue import case
from torture.held import nothing_kept

if TYPE_CHECKING:
    from torture.beds import Bed
    from torture.catalogue import Trial

WARM_UP = 200
"""Restarts until the C library has the memory that it keeps."""


@case(
    "kubelet-restarts",
    fault="X01",
    promise="Each clean restart of the kubelet brings one registration, the same IDs, and the whole list",
    count=1_000,
    unit="restarts",
    invariants="I2 I3 I7 I9",
)
async def kubelet_restarts(trial: Trial) -> None:
    """Restart an idle kubelet in order, again and again."""
    ids = [f"d{number}" for number in range(8)]
    async with bed(trial.folder, Fed(*ids)) as stage:
        for _ in range(WARM_UP):
            await _restarted(stage, len(ids))
        times = []
        async with nothing_kept(trial):
            for turn in trial.rounds():
                times.append(await _restarted(stage, len(ids)))
                listed = [device.id for device in stage.kubelet.devices(RESOURCE)]
                trial.check(listed == ids, f"I9: {listed} were {ids}", turn.number)
                count = stage.kubelet.registrations(RESOURCE)
                trial.check(count == 1, f"I7: {count} registrations after one restart", turn.number)
    trial.times("restart → whole list", times, p99_within=1.0)


async def _restarted(stage: Bed, count: int) -> float:
    """Restart the kubelet; return the seconds from its socket's return to the whole list."""
    await stage.kubelet.restart(orderly=True)
    # Or the next restart would end a registration that is not over: another fault, tried elsewhere.
    took = await stage.until_allocatable(count)
    await asyncio.wait_for(stage.serving.wait_registered(), 2)
    return took
