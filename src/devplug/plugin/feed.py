"""Two ways to say that devices changed: push them into a `DeviceFeed`, or follow paths with `watch_paths`."""

from __future__ import annotations

import asyncio
import glob
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.errors import PluginError, quoted
from devplug.plugin.snapshot import Pace
from devplug.watching import shared_watcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from devplug.devices import Device

__all__ = ["DeviceFeed", "watch_paths"]

LOOKS_AT_ONCE: Final = 20
"""How many looks may follow each other: a device with its links and their folder is several events."""

LOOKS_PER_SECOND: Final = 20.0
"""How many looks there are in a storm of changes, which may hide that a device has left …"""

LOOK_SHARE: Final = 0.05
"""… and how much of the time they may take, with what is done about them."""


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
        """The readers that have the latest list."""

    def replace(self, devices: Iterable[Device]) -> None:
        """Make `devices` the whole truth."""
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
    matching link points to; the timer is the net. What changes all the time is looked at 20 times at
    once, and then 20 times a second, or less often if that takes long. Raises `PluginError` for a relative
    glob.
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
                try:
                    async with asyncio.timeout(every_seconds):
                        await changed.wait()
                except TimeoutError:
                    continue
                # In a storm of changes one look shows many of them.
                if wait_seconds := pace.wait_seconds(clock()):
                    await asyncio.sleep(max(wait_seconds, took_seconds / LOOK_SHARE))
                pace.spend(clock())


def _matches(globs: Iterable[str]) -> tuple[list[Path], set[str]]:
    """Return the matching paths, dangling links included, and where those that are links point to."""
    # Path.glob passes over a literal path that is a dangling link, whose target may come back.
    paths = sorted({Path(path) for pattern in globs for path in glob.iglob(pattern)})  # noqa: PTH207
    return paths, {os.path.realpath(path) for path in paths if path.is_symlink()}
