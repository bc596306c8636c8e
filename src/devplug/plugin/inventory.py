"""The one owner of what a plugin advertises: it takes lists in, keeps the snapshot, wakes who watches it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.devices import HealthState
from devplug.errors import UnhealthyDeviceError, UnknownDeviceError, one_line
from devplug.plugin.changes import lines_of
from devplug.plugin.snapshot import Snapshot, checked_list, next_snapshot, transitions
from devplug.plugin.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from devplug.devices import Device

__all__ = ["Inventory", "Past"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Past:
    """What an inventory leaves to the next one of its resource: what was listed, and since when."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    since: Mapping[str, float] = field(default_factory=dict)


class Inventory:
    """A plugin's devices; lives as long as the plugin is served, on one event loop.

    `snapshot` is always the latest truth. `version` grows with each change of it, and never otherwise;
    `lists_taken` counts the author's lists, equal ones too. `on_change` is called after each change of what
    can be read here. `past` is what the resource listed a moment ago, when another plugin served it.
    """

    def __init__(
        self,
        resource_name: str,
        tally: Tally | None = None,
        on_change: Callable[[], None] = lambda: None,
        *,
        past: Past | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.resource_name = resource_name
        self.since: dict[str, float] = {}
        """Since when each device of the snapshot has its health, as a Unix time in seconds."""
        self.failure: str | None = None
        """Why `devices` gives no lists at the moment; None if it does."""
        self._tally = tally or Tally()
        self._on_change = on_change
        self._past = past or Past()
        self._wall_clock = wall_clock
        self.snapshot = Snapshot()
        self.version = 0
        self.lists_taken = 0
        self._listed: tuple[Device, ...] = ()
        self._handed_out: set[str] = set()
        self._asked_for: Counter[str] = Counter()
        self._marked: dict[str, str] = {}
        self._failing: str | None = None
        self._changed = asyncio.Condition()
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether there was a first list."""
        return self.version > 0

    @property
    def past(self) -> Past:
        """What the next inventory of this resource has to know of this one."""
        return Past(self.snapshot, self.since) if self.is_ready else self._past

    async def replace(self, listed: object) -> None:
        """Take an author's list as the whole truth; raises `PluginError`, changing nothing, if it is none."""
        self._listed = checked_list(listed)
        self.lists_taken += 1
        self._marked.clear()
        has_recovered, self._failing, self.failure = self.failure is not None, None, None
        await self._update()
        if has_recovered:
            logger.info("devices gives lists again", extra={"resource_name": self.resource_name})
            self._on_change()

    async def mark_unhealthy(self, ids: Iterable[str], reason: str) -> None:
        """Call devices unhealthy until the next list; unknown IDs are ignored."""
        self._marked.update((id_, one_line(reason)) for id_ in ids if id_ in self.snapshot.devices)
        await self._update()

    def note_failure(self, reason: str) -> None:
        """Note that `devices` has failed; the last list stands for now."""
        self.failure = one_line(reason)
        self._on_change()

    async def distrust(self, reason: str) -> None:
        """Call every device unhealthy until the next list: nobody has vouched for this one for too long."""
        self._failing = one_line(reason)
        await self._update()

    @asynccontextmanager
    async def handing_out(self, devices: Sequence[Device]) -> AsyncIterator[None]:
        """Keep devices listed while an answer about them is made, and for good unless the block raises.

        A kubelet that gets an answer about a device that has left the list meanwhile crashes (manager.go).
        """
        ids = [device.id for device in devices]
        self._asked_for.update(ids)
        try:
            yield
        except BaseException:
            self._asked_for = self._asked_for - Counter(ids)
            await self._update()
            raise
        # What is held stays listed, so nothing changes here: no look at thousands of devices for each answer.
        self._handed_out.update(ids)
        self._asked_for = self._asked_for - Counter(ids)
        self._on_change()

    async def release(self, ids: Iterable[str]) -> None:
        """Let go of IDs that no pod holds any more: those that have left the list are dropped from it."""
        released = self._handed_out.intersection(ids)
        self._handed_out -= released
        await self._update()
        if released:
            self._on_change()

    def may_be_held(self, device_id: str) -> bool:
        """Whether a container may hold this ID: it was given out, and nobody has said that it came free."""
        return device_id in self._handed_out or device_id in self._asked_for

    def find(self, device_ids: Iterable[str]) -> list[Device]:
        """Return the devices with these IDs, in ID order; raises `UnknownDeviceError` for an unknown one."""
        devices = self.snapshot.devices
        found = []
        for id_ in sorted(device_ids):
            if id_ not in devices:
                raise UnknownDeviceError(id_, self.resource_name)
            found.append(devices[id_])
        return found

    def find_healthy(self, device_ids: Iterable[str]) -> list[Device]:
        """Return the devices with these IDs; raises `AllocationError` if one is unknown or not healthy."""
        found = self.find(device_ids)
        for device in found:
            if device.health.state is not HealthState.HEALTHY:
                raise UnhealthyDeviceError(device.health.reason, device)
        return found

    async def changed_since(self, version: int) -> bool:
        """Wait until there is a snapshot newer than `version`; False if the inventory was closed instead."""
        if not self._is_closed and self.version <= version:
            async with self._changed:
                await self._changed.wait_for(lambda: self._is_closed or self.version > version)
        return not self._is_closed

    async def close(self) -> None:
        """End all watching; the snapshot stays for the calls that are still in flight."""
        self._is_closed = True
        async with self._changed:
            self._changed.notify_all()

    async def _update(self) -> None:
        fresh = next_snapshot(
            self.snapshot,
            self._listed,
            held=self._handed_out.union(self._asked_for),
            marked=self._marked,
            failing=self._failing,
        )
        if fresh != self.snapshot or not self.version:
            self._note_transitions(fresh)
            self._log(fresh)
            self.snapshot = fresh
            self.version += 1
            self._on_change()
            async with self._changed:
                self._changed.notify_all()

    def _note_transitions(self, fresh: Snapshot) -> None:
        now = self._wall_clock()
        past, self._past = self.past, Past()
        known, self.since = past.snapshot.devices, dict(past.since)
        for device in transitions(past.snapshot, fresh):
            self.since[device.id] = now
            if device.id in known:
                self._tally.health_transitions.add(device.health.state.value)
        if self.since.keys() != fresh.devices.keys():
            self.since = {id_: at for id_, at in self.since.items() if id_ in fresh.devices}

    def _log(self, fresh: Snapshot) -> None:
        for line in lines_of(self.snapshot, fresh, is_first=not self.version):
            level = logging.WARNING if line.is_warning else logging.INFO
            logger.log(level, line.message, extra={"resource_name": self.resource_name, **line.facts})
