"""Fleets: very many resources in one program, and very many daemons on one node, when its kubelet restarts.

All of them call it in the same moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from torture.catalogue import case
from torture.daemons import until
from torture.testbed import Fed, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from devplug.kubelet.changes import Change
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

MOST_DAEMONS: Final = 200
FEW_DAEMONS: Final = 12
"""How many there are where fewer restarts than all are played."""

UP_SECONDS: Final = 90.0
"""How long all may take to be back on a machine that does other things: 3 s on a quiet one."""

AGAIN_SECONDS: Final = 0.3
"""How long it is waited for calls that nobody needs."""

END_SECONDS: Final = 60.0
AT_ONCE_SECONDS: Final = 0.1


# ── resources of one program ──


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
                registered = kubelet.metrics.registrations()
                twice = [name for name, count in registered.items() if count > 1]
                trial.check(not twice, f"I7: {len(twice)} registered more than once", turn.number)
                trial.check(len(registered) == size, f"I7: {len(registered)} of {size} called", turn.number)
    trial.times("restart → all are back", times)


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


# ── daemons of one node ──


@case(
    "fleet-of-daemons",
    fault="X29",
    promise="200 daemons of one node are all back after a restart of the kubelet: each has called it once, "
    "or twice if it began in the moment in which a killed kubelet's socket was replaced; all end cleanly",
    count=5,
    unit="restarts",
    invariants="I2 I4 I5 I7",
    limit_seconds=300,
    alone=True,
)
async def fleet_of_daemons(trial: Trial) -> None:
    """Run many daemons, and restart the kubelet again and again."""
    size = MOST_DAEMONS if trial.count >= trial.case.count else FEW_DAEMONS
    names = [f"example.com/d{number}" for number in range(size)]
    kubelet = Kubelet.under(trial.folder)
    back: list[float] = []
    most_at_once = most_again = 0
    async with kubelet.running(), _forked(trial, names):
        trial.figure("start → all are registered", f"{await _all_back(kubelet, size, UP_SECONDS):.1f} s")
        logs = [trial.folder / f"{name.rpartition('/')[2]}.log" for name in names]
        await _all_answered(logs, dict.fromkeys(logs, 0))
        for turn in trial.rounds():
            before = {log: log.stat().st_size for log in logs}
            orderly = turn.random.random() < 0.5
            taken_at: list[float] = []
            async with asyncio.TaskGroup() as group:
                with kubelet.changes() as changes:
                    noting = group.create_task(_note(changes, taken_at))
                    await kubelet.restart(orderly=orderly)
                    back.append(await _all_back(kubelet, size, BACK_SECONDS))
                    # One that has not heard the answer yet would rightly call the next kubelet again.
                    await _all_answered(logs, before)
                    await asyncio.sleep(AGAIN_SECONDS)
                    noting.cancel()
            calls = kubelet.metrics.registrations()
            # A call that is begun while a killed kubelet's socket is replaced may reach the next kubelet: who
            # cannot know that calls again.
            allowed = {1} if orderly else {1, 2}
            for name, log in zip(names, logs, strict=True):
                story = f"I7: {name} has called {calls.get(name, 0):g} times: {log.read_text()[-800:]}"
                trial.check(calls.get(name) in allowed, story, turn.number)
            again = sum(count > 1 for count in calls.values())
            trial.check(again <= size // 4, f"I7: {again} of {size} have called twice", turn.number)
            most_again = max(most_again, again)
            most_at_once = max(most_at_once, _most_within(taken_at, AT_ONCE_SECONDS))
    trial.times("restart → all are back", back)
    trial.figure("most that called twice", most_again)
    trial.figure("most registrations within 0.1 s", most_at_once)
    left = sorted(path.name for path in kubelet.plugin_dir.glob("devplug-*"))
    trial.check(not left, f"I5: {len(left)} sockets are left: {left[:3]}")


async def _all_back(kubelet: Kubelet, size: int, seconds: float) -> float:
    """Wait until the kubelet has the device of each daemon; return the seconds."""
    return await within(
        seconds,
        kubelet.wait(lambda: sum(kubelet.allocatable().values()) == size),
        lambda: f"I2: {sum(kubelet.allocatable().values())} of {size} are back after {seconds:g} s",
    )


async def _all_answered(logs: Sequence[Path], before: Mapping[Path, int]) -> None:
    """Wait until each daemon has told, beyond what it had told before, that it is registered."""
    for log in logs:
        await until(
            lambda log=log: b"registered with the kubelet" in log.read_bytes()[before[log] :],  # type: ignore[misc]
            BACK_SECONDS,
            lambda log=log: f"I2: it has no answer: {log.read_text()[-800:]}",  # type: ignore[misc]
        )


async def _note(changes: AsyncIterator[Change], taken_at: list[float]) -> None:
    """Note when plugins are taken on."""
    async for change in changes:
        taken_at += [change.at_seconds] if change.kind is ChangeKind.REGISTERED else []


def _most_within(times: Sequence[float], seconds: float) -> int:
    """Return how many of these times, which are in order, are so close together."""
    return max((sum(first <= one < first + seconds for one in times) for first in times), default=0)


@asynccontextmanager
async def _forked(trial: Trial, names: Sequence[str]) -> AsyncIterator[None]:
    """Run a daemon for each name for a block, and hold the way in which they end against I4."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torture.daemon_fleet", str(trial.folder), *names),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(END_SECONDS):
            output, _ = await process.communicate()
        codes = Counter(json.loads(output))
        trial.check(codes == {0: len(names)}, f"I4: of {len(names)} daemons, by exit code: {dict(codes)}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
