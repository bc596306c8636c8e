"""Very many resources in one program, and a kubelet that restarts."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.kubelet.manager import Kubelet
from torture.beds import Fed
from torture.catalogue import case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torture.catalogue import Trial

MOST: Final = 1_000
FEW: Final = 60
"""How many there are where fewer restarts than all are played."""

BACK_SECONDS: Final = 30.0
"""How long all may take to be back on a machine that does other things: 5 s on a quiet one."""

DESCRIPTORS: Final = 4
"""Of one resource: its socket, its lock, and both ends of the kubelet's connection, as both are in here."""

MEMORY: Final = Path("/dev/shm")
"""A kubelet writes its checkpoint for each list, to the disk: what that takes is the disk's, not ours."""


@case(
    "fleet-of-resources",
    fault="X28",
    promise="1,000 resources of one program are all back after a restart of the kubelet, registered once, "
    "and hold three descriptors each",
    count=3,
    unit="restarts",
    invariants="I2 I3 I7",
    limit_seconds=150,
)
async def fleet_of_resources(trial: Trial) -> None:
    """Serve many resources, and restart the kubelet again and again."""
    size = MOST if trial.count >= trial.case.count else FEW
    _allow_descriptors(size * DESCRIPTORS + 200)
    plugins = [Fed("d", resource_name=f"example.com/r{number}") for number in range(size)]
    before = len(os.listdir("/proc/self/fd"))
    times: list[float] = []
    with _quick_folder(trial) as folder:
        kubelet = Kubelet(folder)
        async with kubelet.running(), serve(*plugins, plugin_dir=folder, registration="socket") as serving:
            started = time.perf_counter()
            async with asyncio.timeout(BACK_SECONDS):
                await serving.wait_registered()
            trial.figure("start → all are registered", f"{time.perf_counter() - started:.1f} s")
            each = (len(os.listdir("/proc/self/fd")) - before) / size
            trial.figure("descriptors of a resource, both ends", f"{each:.1f}")
            # Some are there once, and those of the last registrations for a moment yet.
            trial.check(each <= DESCRIPTORS + 50 / size, f"I3: {each:.1f} descriptors for each resource")
            for turn in trial.rounds():
                await kubelet.restart(orderly=turn.random.random() < 0.5)
                started = time.perf_counter()
                async with asyncio.timeout(BACK_SECONDS):
                    await kubelet.wait(lambda: sum(kubelet.allocatable().values()) == size)
                times.append(time.perf_counter() - started)
                registered = _registrations(kubelet)
                twice = [name for name, count in registered.items() if count > 1]
                trial.check(not twice, f"I7: {len(twice)} registered more than once", turn.number)
                trial.check(len(registered) == size, f"I7: {len(registered)} of {size} called", turn.number)
    trial.times("restart → all are back", times)


def _registrations(kubelet: Kubelet) -> dict[str, float]:
    """Return how often each resource has called this process of the kubelet; one look for all of them."""
    (family,) = kubelet.metrics.registrations.collect()
    return {one.labels["resource_name"]: one.value for one in family.samples if one.name.endswith("_total")}


def _allow_descriptors(count: int) -> None:
    """Let this process have so many open; as a rule it is allowed 1,024, and may allow itself more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _quick_folder(trial: Trial) -> Iterator[Path]:
    """Yield a folder in memory for a block, if there are such; else the trial's."""
    if not os.access(MEMORY, os.W_OK):
        yield trial.folder
        return
    with tempfile.TemporaryDirectory(prefix="tt-", dir=MEMORY) as folder:
        yield Path(folder)
