"""The discovery of a plugin's devices: the lists of `devices`, and helpers that make such lists."""

from __future__ import annotations

import asyncio
import glob
import inspect
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.backoff import backoff_seconds
from devplug.errors import PluginError, one_line, quoted
from devplug.linux.inotify import shared_watcher
from devplug.linux.notifier import within
from devplug.linux.threads import DaemonThreads
from devplug.pace import Pace
from devplug.plugin.callbacks import OnlyErrors, is_cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from devplug.devices import Device
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.inventory import Inventory


logger = logging.getLogger(__name__)

# ── asking the plugin, for ever ──

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 30.0
DISTRUST_AFTER_SECONDS: Final = 30.0
"""How long the last list stays in effect while `devices` fails."""

CLOSE_SECONDS: Final = 0.5
"""How long a plain generator gets to reach its `finally`; one that blocks longer is left to its thread."""

_END = object()

_Take: TypeAlias = "Callable[[object], Awaitable[None]]"
"""Passes a list on to the inventory; raises `PluginError` for an invalid one."""


async def discover(
    plugin: DevicePlugin,
    inventory: Inventory,
    *,
    take_first: Callable[[object], Awaitable[None]] | None = None,
    may_fail: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Keep `inventory` up to date until cancelled, or return when `devices` returned its one and only list.

    `take_first` takes the first list in place of `inventory`. Raises `PluginError` if `devices` fails before
    its first list, unless it `may_fail`. Later the list stands, `devices` is called again after 1 to 30 s,
    and after 30 s without a good list every device is Unhealthy and says why.
    """
    taken = 0

    async def take(listed: object) -> None:
        nonlocal taken
        await (inventory.replace if taken or take_first is None else take_first)(listed)
        taken += 1

    with DaemonThreads(1, f"devices-{plugin.resource_name}") as threads:
        failures = 1
        failing_since: float | None = None
        while True:
            taken_before = taken
            try:
                if await _ask(plugin, take, threads):
                    return
                if not (taken or may_fail):
                    raise PluginError(f"{plugin.resource_name}: devices() ended without a list")
                failing_since, retry_seconds = None, FIRST_RETRY_SECONDS
            except Exception as error:
                if not (taken or may_fail):
                    if isinstance(error, PluginError):
                        raise
                    raise PluginError(f"{plugin.resource_name}: devices() failed: {error!r}") from error
                now = clock()
                inventory.note_failure(f"devices() fails: {one_line(repr(error), 100)}")
                if failing_since is None or taken > taken_before:
                    failing_since, failures = now, 1
                retry_seconds = backoff_seconds(failures, FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
                logger.warning(
                    "devices() failed; the last list stays advertised",
                    extra={"resource_name": plugin.resource_name, "retry_seconds": round(retry_seconds, 1)},
                    exc_info=error,
                )
                if now - failing_since >= DISTRUST_AFTER_SECONDS:
                    await inventory.distrust(f"devices() fails: {one_line(repr(error), 100)}")
            await sleep(retry_seconds * random.uniform(0.8, 1.2))  # noqa: S311 -- spreads load, no secret
            failures += 1


async def _ask(plugin: DevicePlugin, take: _Take, threads: DaemonThreads) -> bool:
    """Follow `devices` once; a cancellation stays one, even if the author's clean-up raises."""
    try:
        with OnlyErrors():
            return await _follow(plugin, take, threads)
    except Exception as error:
        if not is_cancelled():
            raise
        extra = {"resource_name": plugin.resource_name}
        logger.warning("devices() raised an error while it was closed", extra=extra, exc_info=error)
        raise asyncio.CancelledError from error


async def _follow(plugin: DevicePlugin, take: _Take, threads: DaemonThreads) -> bool:
    """Call `devices` once and take all its lists; return whether it was one list and not an iterator."""
    loop = asyncio.get_running_loop()
    if inspect.iscoroutinefunction(plugin.devices) or inspect.isasyncgenfunction(plugin.devices):
        given: object = plugin.devices()
    else:
        given = await loop.run_in_executor(threads, plugin.devices)
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, AsyncIterable):
        await _follow_async(aiter(given), take)
    elif isinstance(given, Iterator):
        await _follow_thread(given, take, threads)
    else:
        await take(given)
        return True
    return False


async def _follow_async(given: AsyncIterator[object], take: _Take) -> None:
    try:
        async for listed in given:
            await take(listed)
    finally:
        if inspect.isasyncgen(given):
            await given.aclose()


async def _follow_thread(given: Iterator[object], take: _Take, threads: DaemonThreads) -> None:
    loop = asyncio.get_running_loop()
    try:
        while (listed := await loop.run_in_executor(threads, next, given, _END)) is not _END:
            await take(listed)
    finally:
        if inspect.isgenerator(given):
            await within(CLOSE_SECONDS, loop.run_in_executor(threads, given.close))


# ── for authors ──

LOOKS_AT_ONCE: Final = 20
"""How many scans may follow each other at once: a device with its links and their folder is several
events."""

LOOKS_PER_SECOND: Final = 20.0
"""How many scans a second there are at most during a storm of changes …"""

LOOK_SHARE: Final = 0.05
"""… and which share of the time the scans and their results may take."""


class DeviceFeed:
    """A set of devices that callbacks of any thread change; return it from `devices`.

    Lives as long as its plugin. Nothing is advertised until it was given devices, or an empty list by
    `replace([])`. Each reader gets the latest list, never a backlog.
    """

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self._lock = threading.Lock()
        self._devices = {device.id: device for device in devices}
        self._version = 1 if self._devices else 0
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        """The readers that have got the latest list."""

    def replace(self, devices: Iterable[Device]) -> None:
        """Replace all devices by `devices`."""
        fresh = {device.id: device for device in devices}
        with self._lock:
            self._devices = fresh
            self._changed()

    def put(self, *devices: Device) -> None:
        """Add devices, or change those that have the same ID."""
        with self._lock:
            self._devices.update({device.id: device for device in devices})
            self._changed()

    def remove(self, *ids: str) -> None:
        """Drop devices by ID; unknown IDs are ignored."""
        with self._lock:
            for id_ in ids:
                self._devices.pop(id_, None)
            self._changed()

    def _changed(self) -> None:
        self._version += 1
        # Once each: a device may flap a million times before a loop that is held up has its next turn.
        waiting, self._waiting = self._waiting, {}
        for event, loop in waiting.items():
            loop.call_soon_threadsafe(event.set)

    async def __aiter__(self) -> AsyncIterator[list[Device]]:
        """Yield the list now, if there is one, and after each change."""
        event = asyncio.Event()
        loop = asyncio.get_running_loop()
        seen = 0
        try:
            while True:
                with self._lock:
                    event.clear()
                    self._waiting[event] = loop
                    version, devices = self._version, list(self._devices.values())
                if version != seen:
                    seen = version
                    yield devices
                else:
                    await event.wait()
        finally:
            with self._lock:
                self._waiting.pop(event, None)


async def watch_paths(*globs: str, every_seconds: float = 30) -> AsyncIterator[list[Path]]:
    """Yield the existing paths that match: now, at each change, and every `every_seconds`; sorted, for ever.

    The globs are absolute. Changes come by inotify, also of folders that do not exist yet and of what a
    matching link points to; the timer catches what inotify misses. Paths that change all the time are read
    20 times at once, and then 20 times a second, or less often if that takes long. Raises `PluginError` for a
    relative glob.
    """
    if faults := [
        f"watch_paths: {quoted(text)} is not an absolute path" for text in globs if text[:1] != "/"
    ]:
        raise PluginError(*faults)
    changed = asyncio.Event()
    clock = asyncio.get_running_loop().time
    pace = Pace(LOOKS_PER_SECOND, LOOKS_AT_ONCE)
    async with shared_watcher() as watcher:
        with watcher.subscribe(changed.set) as subscription:
            targets: set[str] = set()
            while True:
                changed.clear()
                began_at = clock()
                subscription.arm([*globs, *targets])
                paths, found = _matches(globs)
                is_all_watched = found <= targets
                targets = found
                if not is_all_watched:
                    # A link's target is known only after a look; watch it, then take the look that counts.
                    continue
                yield [path for path in paths if path.exists()]
                took_seconds = clock() - began_at
                if not await within(every_seconds, changed.wait()):
                    continue
                # In a storm of changes one look shows many of them.
                if wait_seconds := pace.wait_seconds(clock()):
                    await asyncio.sleep(max(wait_seconds, took_seconds / LOOK_SHARE))
                pace.spend(clock())


def _matches(globs: Iterable[str]) -> tuple[list[Path], set[str]]:
    """Return the matching paths, dangling links included, and the targets of those that are links."""
    # Path.glob passes over a literal path that is a dangling link, whose target may come back.
    paths = sorted({Path(path) for pattern in globs for path in glob.iglob(pattern)})  # noqa: PTH207
    return paths, {os.path.realpath(path) for path in paths if path.is_symlink()}
