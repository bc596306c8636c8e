"""Two ways to say that devices changed: push them into a `DeviceFeed`, or follow paths with `watch_paths`."""

from __future__ import annotations

import asyncio
import glob
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.errors import PluginError, quoted
from devplug.watching import shared_watcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from devplug.devices import Device

__all__ = ["DeviceFeed", "watch_paths"]


class DeviceFeed:
    """A set of devices that callbacks of any thread change; return it from `devices`.

    Lives as long as its plugin. Nothing is advertised until it was given devices, or an empty list by
    `replace([])`. Each reader gets the latest list, never a backlog.
    """

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self._lock = threading.Lock()
        self._devices = {device.id: device for device in devices}
        self._version = 1 if self._devices else 0
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def replace(self, devices: Iterable[Device]) -> None:
        """Make `devices` the whole truth."""
        fresh = {device.id: device for device in devices}
        with self._lock:
            self._devices = fresh
            self._changed()

    def put(self, *devices: Device) -> None:
        """Add devices, or change those that have the same ID."""
        with self._lock:
            self._devices = {**self._devices, **{device.id: device for device in devices}}
            self._changed()

    def remove(self, *ids: str) -> None:
        """Drop devices by ID; unknown IDs are ignored."""
        with self._lock:
            self._devices = {id_: device for id_, device in self._devices.items() if id_ not in ids}
            self._changed()

    def _changed(self) -> None:
        self._version += 1
        for event, loop in self._readers.items():
            loop.call_soon_threadsafe(event.set)

    async def __aiter__(self) -> AsyncIterator[list[Device]]:
        """Yield the list now, if there is one, and after each change."""
        event = asyncio.Event()
        seen = 0
        with self._lock:
            self._readers[event] = asyncio.get_running_loop()
        try:
            while True:
                with self._lock:
                    event.clear()
                    version, devices = self._version, list(self._devices.values())
                if version != seen:
                    seen = version
                    yield devices
                else:
                    await event.wait()
        finally:
            with self._lock:
                del self._readers[event]


async def watch_paths(*globs: str, every_seconds: float = 30) -> AsyncIterator[list[Path]]:
    """Yield the existing paths that match: now, at each change, and every `every_seconds`; sorted, for ever.

    The globs are absolute. Changes come by inotify, also of folders that do not exist yet and of what a
    matching link points to; the timer is the net. Raises `PluginError` for a relative glob.
    """
    if faults := [
        f"watch_paths: {quoted(text)} is not an absolute path" for text in globs if text[:1] != "/"
    ]:
        raise PluginError(*faults)
    changed = asyncio.Event()
    async with shared_watcher() as watcher:
        with watcher.subscribe(changed.set) as subscription:
            targets: set[str] = set()
            while True:
                changed.clear()
                subscription.arm([*globs, *targets])
                paths, found = _matches(globs)
                is_all_watched = found <= targets
                targets = found
                if not is_all_watched:
                    # A link's target is known only after a look; watch it, then take the look that counts.
                    continue
                yield [path for path in paths if path.exists()]
                try:
                    async with asyncio.timeout(every_seconds):
                        await changed.wait()
                except TimeoutError:
                    continue


def _matches(globs: Iterable[str]) -> tuple[list[Path], set[str]]:
    """Return the matching paths, dangling links included, and where those that are links point to."""
    # Path.glob passes over a literal path that is a dangling link, whose target may come back.
    paths = sorted({Path(path) for pattern in globs for path in glob.iglob(pattern)})  # noqa: PTH207
    return paths, {os.path.realpath(path) for path in paths if path.is_symlink()}
