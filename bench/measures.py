"""The figures: one function each, over all plugins at once and in turns, so that the same noise hits all.

Starts and ends are among them: how long they take, and what they leave behind.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bench.report import Figure, Report, Row, by_row, median, spread
from bench.subjects import STOP_SECONDS, MissingError, Plugin, Stopped, plug, started
from devplug.errors import RemoteError
from devplug.wire import deviceplugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.subjects import Process, Subject

CALL_SECONDS = 10
FIGURE_SECONDS = 90
"""How long one figure may take; slow plugins get fewer samples, and the table says so."""

ALLOCATE_BATCH = 100
MEGABYTE = 1_000_000


# ── starts and ends ──


@dataclass(slots=True)
class Lives:
    """The starts and ends of one subject."""

    subject: Subject
    wanted: int
    registered: list[float] = field(default_factory=list)
    listed: list[float] = field(default_factory=list)
    ends: list[Stopped] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    failure: str = ""

    def born(self, plugin: Plugin) -> None:
        """Note how it started."""
        self.registered.append(plugin.started_to_registered)
        self.listed.append(plugin.registered_to_listed)

    async def die(self, plugin: Plugin) -> None:
        """Stop it, and note how that went and what it left in the folder."""
        self.ends.append(await plugin.process.stopped())
        self.left |= {file.name for file in plugin.folder.iterdir()} - {"kubelet.sock"}

    def start_figures(self) -> list[Figure]:
        """Return how long starts took."""
        return [
            median("process start → Register, median", self.registered, self.failure),
            median("Register → full list, median", self.listed, self.failure),
        ]

    def stop_figures(self) -> list[Figure]:
        """Return how ends went."""
        codes = {end.exit_code for end in self.ends}
        code = self.ends[-1].exit_code if self.ends else None
        killed = f"killed after {STOP_SECONDS} s" if None in codes else ""
        several = f"several: {sorted(code for code in codes if code is not None)}" if len(codes) > 1 else ""
        return [
            median("SIGTERM → gone, median", [end.seconds for end in self.ends], self.failure),
            Figure(
                "exit code after SIGTERM",
                "",
                code,
                killed or several or (self.failure if code is None else ""),
            ),
            Figure(
                "files left in the plugin folder",
                "",
                float(len(self.left)) if self.ends else None,
                ", ".join(sorted(self.left)),
            ),
        ]


async def starting(lives: Sequence[Lives]) -> None:
    """Start and stop each subject, all but the last time, in turns."""
    for _ in range(max(life.wanted for life in lives) - 1):
        for life in lives:
            if life.failure:
                continue
            try:
                async with started(life.subject) as plugin:
                    life.born(plugin)
                    await life.die(plugin)
            except MissingError as error:
                life.failure = str(error)


# ── figures ──


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each thing is done, and how far apart devices come and go."""

    starts: int = 5
    calls: int = 2000
    plugs: int = 50
    restarts: int = 20
    pause_seconds: float = 0.6
    """Longer than the pace at which a plugin may hold lists back (ours: two in a second)."""
    idle_seconds: float = 5


@dataclass(slots=True)
class Samples:
    """The times measured of one plugin so far; a failure ends it."""

    wanted: int
    seconds: list[float] = field(default_factory=list)
    failure: str = ""
    spent: float = 0

    def spread(self, name: str) -> list[Figure]:
        """Return the median and the 99th percentile."""
        return spread(name, self.seconds, self.wanted, self.failure)


class Running(Protocol):
    """Anything with a process."""

    @property
    def process(self) -> Process:
        """The process, as the system sees it."""


Sample = Callable[[Plugin], Awaitable[list[float]]]
"""Measures once, or a few times in a row; raises `MissingError` or `RemoteError` if that is not to be had."""


async def turn(plugins: Sequence[Plugin], samples: Sequence[Samples], sample: Sample) -> None:
    """Measure each plugin once, but for those that failed or have had their time."""
    for plugin, mine in zip(plugins, samples, strict=True):
        if mine.failure:
            continue
        began = time.monotonic()
        try:
            mine.seconds += await sample(plugin)
        except (MissingError, RemoteError) as error:
            mine.failure = str(error)
        mine.spent += time.monotonic() - began
        if mine.spent > FIGURE_SECONDS:
            mine.failure = f"stopped after {FIGURE_SECONDS} s"


async def allocate(plugins: Sequence[Plugin], counts: Counts) -> list[Row]:
    """Allocate of one device, as a client sees it."""
    samples = [Samples(counts.calls) for _ in plugins]
    size = min(ALLOCATE_BATCH, counts.calls)
    for _ in range(math.ceil(counts.calls / ALLOCATE_BATCH)):
        await turn(plugins, samples, lambda plugin: allocate_batch(plugin, size))
    return by_row(mine.spread("Allocate, one device") for mine in samples)


async def allocate_batch(plugin: Plugin, calls: int) -> list[float]:
    """Return how long each of so many calls in a row took."""
    client = await plugin.registered()
    if not client.healthy_ids:
        raise MissingError("it has no healthy device")
    request, seconds = [(client.healthy_ids[0],)], []
    for _ in range(calls):
        began = time.perf_counter()
        await client.peer.call(deviceplugin.ALLOCATE, request, timeout_seconds=CALL_SECONDS)
        seconds.append(time.perf_counter() - began)
    return seconds


async def plugging(plugins: Sequence[Plugin], counts: Counts) -> list[Row]:
    """A device node appears or vanishes, and the kubelet has a list that says so."""

    async def healthy_becomes(plugin: Plugin, change: int, what: str) -> list[float]:
        wanted = len((await plugin.registered()).healthy_ids) + change
        path = plugin.devices / "plugged"
        began = time.monotonic()
        if change > 0:
            plug(path)
        else:
            path.unlink()
        listed_at = await plugin.listed(lambda client: len(client.healthy_ids) == wanted, what)
        return [listed_at - began]

    def new_samples() -> list[Samples]:
        return [
            Samples(
                counts.plugs,
                failure="" if plugin.subject.watches_devices() else "its command has no {devices}",
            )
            for plugin in plugins
        ]

    came, went = new_samples(), new_samples()
    for _ in range(counts.plugs):
        await asyncio.sleep(counts.pause_seconds)
        await turn(plugins, came, lambda plugin: healthy_becomes(plugin, 1, "list with a new device"))
        for mine, other in zip(came, went, strict=True):
            other.failure = other.failure or mine.failure
        await asyncio.sleep(counts.pause_seconds)
        await turn(plugins, went, lambda plugin: healthy_becomes(plugin, -1, "list without a lost device"))
    return [
        *by_row(mine.spread("device appears → list") for mine in came),
        *by_row(mine.spread("device vanishes → list") for mine in went),
    ]


async def restarting(plugins: Sequence[Plugin], counts: Counts) -> list[Row]:
    """The kubelet goes and comes back, and the plugin registers again."""

    async def restart(plugin: Plugin) -> list[float]:
        back_at = await plugin.restart_kubelet()
        client = await plugin.registered()
        await plugin.fully_listed()
        return [client.registered_at - back_at]

    samples = [Samples(counts.restarts) for _ in plugins]
    for _ in range(counts.restarts):
        await turn(plugins, samples, restart)
    return by_row(mine.spread("kubelet restart → Register") for mine in samples)


async def idling(plugins: Sequence[Running], counts: Counts, what: str) -> list[Row]:
    """Processor time while nothing happens, all plugins in the same seconds."""

    def spent(plugin: Running) -> float | MissingError:
        try:
            return plugin.process.processor_seconds()
        except MissingError as error:
            return error

    before = [spent(plugin) for plugin in plugins]
    began = time.monotonic()
    await asyncio.sleep(counts.idle_seconds)
    seconds = time.monotonic() - began
    found = []
    for plugin, first in zip(plugins, before, strict=True):
        match first, spent(plugin):
            case float(first), float(last):
                found.append([Figure(f"idle processor time, {what}", "%", (last - first) / seconds * 100)])
            case _, last:
                found.append([Figure(f"idle processor time, {what}", "%", None, str(last))])
    return by_row(found)


def memory(plugins: Sequence[Running], what: str) -> list[Row]:
    """Memory now, as the system counts it."""

    def of(plugin: Running) -> list[Figure]:
        names = f"resident (RSS), {what}", f"resident, shared in parts (PSS), {what}"
        try:
            sizes = plugin.process.memory_bytes()
        except MissingError as error:
            return [Figure(name, "MB", None, str(error)) for name in names]
        return [Figure(name, "MB", size / MEGABYTE) for name, size in zip(names, sizes, strict=True)]

    return by_row(of(plugin) for plugin in plugins)


def devices(plugins: Sequence[Plugin]) -> list[Row]:
    """How many devices are listed: plugins find their own where they cannot be told."""
    clients = [plugin.kubelet.client for plugin in plugins]
    return by_row([Figure("devices listed", "", len(one.devices) if one else None)] for one in clients)


def threads(plugins: Sequence[Running], name: str = "threads") -> list[Row]:
    """How many threads there are."""

    def of(plugin: Running) -> Figure:
        try:
            return Figure(name, "", plugin.process.threads())
        except MissingError as error:
            return Figure(name, "", None, str(error))

    return by_row([of(plugin)] for plugin in plugins)


async def measure(subjects: Sequence[Subject], counts: Counts) -> Report:
    """Measure everything of subjects that run side by side; one that does not start has no column."""
    lives = [Lives(subject, counts.starts) for subject in subjects]
    await starting(lives)
    async with AsyncExitStack() as stack:
        plugins = []
        for life in lives:
            if not life.failure:
                try:
                    plugins.append(await stack.enter_async_context(started(life.subject)))
                except MissingError as error:
                    life.failure = str(error)
                else:
                    life.born(plugins[-1])
        alive = [life for life in lives if not life.failure]
        missing = [f"{life.subject.name} was not measured: {life.failure}" for life in lives if life.failure]
        if not alive:
            return Report([], [], missing)
        found = [
            *devices(plugins),
            *await idling(plugins, counts, "at the start"),
            *memory(plugins, "at the start"),
            *threads(plugins),
            *await allocate(plugins, counts),
            *await plugging(plugins, counts),
            *await restarting(plugins, counts),
            *memory(plugins, "after all that"),
        ]
        for life, plugin in zip(alive, plugins, strict=True):
            await life.die(plugin)
    return Report(
        [life.subject.name for life in alive],
        [
            *by_row(life.start_figures() for life in alive),
            *found,
            *by_row(life.stop_figures() for life in alive),
        ],
        missing,
    )


async def measure_many(subject: Subject, counts: Counts) -> list[Row]:
    """Measure what depends on the number of devices, of a subject that has many."""
    what = f"{subject.device_count:,} devices"
    name = f"Register → full list, {what}"
    try:
        async with started(subject) as plugin:
            listed = Figure(name, "ms", plugin.registered_to_listed * 1000)
            return [Row((listed,)), *await idling([plugin], counts, what), *memory([plugin], what)]
    except MissingError as error:
        return [Row((Figure(name, "ms", None, str(error)),))]
