"""The cost of many things at once: 500 calls beside the stream, and a list of 100,000 devices."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measures import CALL_SECONDS, MEGABYTE, Samples
from bench.report import Figure, by_row, percentile
from bench.subjects import MissingError, plug, started
from devplug.errors import RemoteError
from devplug.wire import deviceplugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.floor import EchoClient
    from bench.report import Row
    from bench.subjects import Plugin, Process, Subject

AT_ONCE = 500
MANY = 100_000

CROWD = f"{AT_ONCE} × Allocate at once → all answered"
BESIDE = f"device appears beside {AT_ONCE} × Allocate → list"
LISTED = f"Register → list of {MANY:,} devices"

RESET_PEAK = "5"
"""What `clear_refs` takes to begin the greatest RSS anew (proc(5))."""


async def crowding(
    plugins: Sequence[Plugin], client: EchoClient, rounds: int, pause_seconds: float
) -> list[Row]:
    """Call 500 times at once, and let a device appear in the midst of it."""
    answered, listed = ([Samples(rounds) for _ in plugins] for _ in range(2))
    floor = Samples(rounds)
    for _ in range(rounds):
        for plugin, calls, lists in zip(plugins, answered, listed, strict=True):
            await asyncio.sleep(pause_seconds)
            if calls.failure:
                continue
            try:
                took, waited = await _crowded(plugin)
            except (MissingError, RemoteError) as error:
                calls.failure = lists.failure = str(error)
            else:
                calls.seconds.append(took)
                lists.seconds.append(waited)
        floor.seconds.append(await client.seconds(AT_ONCE))
    none = Samples(rounds, failure="an echo has no lists")
    return [
        *by_row(one.spread(CROWD) for one in (*answered, floor)),
        *by_row(one.spread(BESIDE) for one in (*listed, none)),
    ]


async def _crowded(plugin: Plugin) -> tuple[float, float]:
    """Return how long the last of the answers took, and how long the list."""
    client = await plugin.registered()
    peer, before = client.peer, client.healthy_ids
    if not before:
        raise MissingError("it has no healthy device")
    request = [(before[0],)]
    path = plugin.devices / "crowded"
    try:
        async with asyncio.TaskGroup() as group:
            began = time.monotonic()
            calls = [
                group.create_task(peer.call(deviceplugin.ALLOCATE, request, timeout_seconds=CALL_SECONDS))
                for _ in range(AT_ONCE)
            ]
            await asyncio.sleep(0)  # all of them are on their way
            plugged = time.monotonic()
            plug(path)
            listed_at = await _counted(plugin, len(before) + 1)
            await asyncio.wait(calls)
            ended = time.monotonic()
    except* (MissingError, RemoteError) as errors:
        raise MissingError(str(errors.exceptions[0])) from None
    finally:
        path.unlink()
    await _counted(plugin, len(before))
    return ended - began, listed_at - plugged


async def _counted(plugin: Plugin, count: int) -> float:
    return await plugin.listed(lambda client: len(client.healthy_ids) == count, f"list of {count} devices")


@dataclass(slots=True)
class Large:
    """What a subject with many devices took so far."""

    subject: Subject
    rounds: int
    first: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    rest: list[float] = field(default_factory=list)
    growth: list[float] = field(default_factory=list)
    list_bytes: int = 0
    failure: str = ""

    async def take(self) -> None:
        """Start it, let it send its list, and once more to a kubelet that comes back."""
        if self.failure:
            return
        try:
            async with started(self.subject) as plugin:
                self.first.append(plugin.registered_to_listed)
                settled, _ = plugin.process.memory_bytes()
                reset_peak(plugin.process)
                await plugin.restart_kubelet()
                client = await plugin.registered()
                listed_at = await plugin.fully_listed()
                self.again.append(listed_at - client.registered_at)
                self.rest.append(settled)
                self.growth.append(peak_bytes(plugin.process) - settled)
                self.list_bytes = len(deviceplugin.LIST_AND_WATCH.response.encode(client.devices))
        except MissingError as error:
            self.failure = str(error)

    def figures(self) -> list[Figure]:
        """Return what it took; of sizes the median."""
        return [
            *Samples(self.rounds, self.first, self.failure).spread(f"{LISTED}, the first"),
            *Samples(self.rounds, self.again, self.failure).spread(f"{LISTED}, once more"),
            self._size("bytes of that list", [float(self.list_bytes)] if self.list_bytes else []),
            self._size(f"resident (RSS), {MANY:,} devices", self.rest),
            self._size("greatest growth of RSS while that list is sent", self.growth),
        ]

    def _size(self, name: str, sizes: list[float]) -> Figure:
        value = percentile(sizes, 50) / MEGABYTE if sizes else None
        return Figure(name, "MB", value, "" if sizes else self.failure or "not measured")


def reset_peak(process: Process) -> None:
    """Begin the greatest RSS anew."""
    Path(f"/proc/{process.child.pid}/clear_refs").write_text(RESET_PEAK)


def peak_bytes(process: Process) -> int:
    """Return the greatest RSS since it was begun anew."""
    lines = Path(f"/proc/{process.child.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


async def many(subjects: Sequence[Subject], rounds: int) -> list[list[Figure]]:
    """Measure subjects that have many devices, in turns; a column for each."""
    larges = [Large(subject, rounds) for subject in subjects]
    for _ in range(rounds):
        for large in larges:
            await large.take()
    return [large.figures() for large in larges]
