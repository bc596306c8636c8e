"""The follower of the host, which scans again for each source that reads sysfs when something has changed.

`debounce` decides when; this has the events, the timer and the scan.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from devplug.daemon.sources.debounce import Debounce, Departures
from devplug.linux.inotify import EventKind, shared_watcher
from devplug.linux.notifier import Event, within
from devplug.linux.uevents import DEAF_PERIOD_SECONDS, shared_uevents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator

    from devplug.daemon.sources.device import HostDevice
    from devplug.linux.inotify import FileEvent, Subscription, Watcher
    from devplug.linux.uevents import Uevent, UeventListener

logger = logging.getLogger(__name__)


async def follow(
    look: Callable[[], tuple[HostDevice, ...]],
    *,
    subsystems: Collection[str] = (),
    globs: Collection[str] = (),
    resync_seconds: float = 30.0,
    clock: Callable[[], float] | None = None,
) -> AsyncGenerator[tuple[HostDevice, ...], None]:
    """Yield what `look` returns: at once, after each settled change, and every `resync_seconds`; for ever.

    A device that leaves while others come or flap is removed from the last result at once.

    Changes are the kernel's events of these subsystems (of all, if there are none), and what inotify reports
    for these absolute globs, as of udev's links. Both are subscribed before the first scan, so that no change
    is missed. Without events, and after a scan that failed, the next scan is due after `DEAF_PERIOD_SECONDS`
    at the latest. A result that equals the one before is yielded, too.

    `look` is called on the loop. Its `OSError` is logged once per text; the last result stands. `clock` is in
    seconds, and the loop's own by default.
    """
    clock = clock or asyncio.get_running_loop().time
    async with shared_uevents() as listener, shared_watcher() as watcher:
        follower = _Follower(frozenset(subsystems), Debounce(resync_seconds), clock)
        with follower.hears(listener, watcher) as subscription:
            faults: set[str] = set()
            known: tuple[HostDevice, ...] = ()
            while True:
                began_at = clock()
                is_whole = follower.settling.due_at() <= began_at
                # Before the look: what happens during it has to be shown by another one.
                is_listening = listener.listen()
                if is_whole:
                    follower.settling.looked(began_at)
                if globs:
                    subscription.arm(globs)
                found = None
                try:
                    found = look()
                except OSError as error:
                    if str(error) not in faults:
                        faults.add(str(error))
                        logger.warning(
                            "cannot read the devices of this machine; those found last stay listed",
                            extra={"path": error.filename, "reason": error.strerror or str(error)},
                        )
                follower.departures.looked(began_at, clock())
                needs_more = found is None or not is_listening
                follower.settling.resync_seconds = (
                    min(resync_seconds, DEAF_PERIOD_SECONDS) if needs_more else resync_seconds
                )
                if found is not None:
                    known = found if is_whole else still_there(known, found)
                    yield known
                await follower.due()


def still_there(known: Iterable[HostDevice], seen: Iterable[HostDevice]) -> tuple[HostDevice, ...]:
    """Return the known devices that are seen again with all their nodes, as they are known. Pure."""
    by_name = {one.name: one for one in seen}

    def is_there(one: HostDevice) -> bool:
        now = by_name.get(one.name)
        if now is None or (now.hardware, now.plugged) != (one.hardware, one.plugged):
            return False
        return {*one.nodes} <= {*now.nodes}

    return tuple(filter(is_there, known))


class _Follower:
    """The events of one source, and the wait for its next scan; lives as long as the source is followed."""

    def __init__(self, subsystems: frozenset[str], settling: Debounce, clock: Callable[[], float]) -> None:
        self.settling = settling
        self.departures = Departures()
        self._subsystems = subsystems
        self._clock = clock
        self._is_sooner = Event()
        self._waits_until = -math.inf

    @contextmanager
    def hears(self, listener: UeventListener, watcher: Watcher) -> Iterator[Subscription]:
        """Record all events that concern the source, until the block is left."""
        with (
            listener.subscribe(self._on_uevent),
            watcher.subscribe(lambda: None, self._on_file) as subscription,
        ):
            yield subscription

    async def due(self) -> None:
        """Return when the next scan is due."""
        while (wait_seconds := (due_at := self._due_at()) - self._clock()) > 0:
            self._is_sooner.clear()
            self._waits_until = due_at
            await within(wait_seconds, self._is_sooner.wait())
        self._waits_until = -math.inf

    def _on_uevent(self, event: Uevent | None) -> None:
        if event is None:
            self.settling.missed(self._clock())
        elif not self._subsystems or event.subsystem in self._subsystems or not event.subsystem:
            self.settling.note(event.action, self._clock())
            self.departures.note(event.action, self._clock())
        self._reconsider()

    def _on_file(self, event: FileEvent) -> None:
        # A link that udev makes anew is removed first, so this is a change until it has settled.
        self.settling.note("change", self._clock())
        if event.kind in {EventKind.REMOVED, EventKind.LEFT}:
            self.departures.note("remove", self._clock())
        self._reconsider()

    def _due_at(self) -> float:
        return min(self.settling.due_at(), self.departures.due_at())

    def _reconsider(self) -> None:
        """Wake the wait if a scan is due sooner than before: most events of a device only put it off."""
        if self._due_at() < self._waits_until:
            self._is_sooner.set()
