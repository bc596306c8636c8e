"""The inventory of a plugin: it owns the advertised list, takes new lists, and wakes its watchers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from devplug.devices import HealthState
from devplug.errors import UnhealthyDeviceError, UnknownDeviceError, one_line
from devplug.linux.notifier import Event, Notifier, within
from devplug.pace import Pace
from devplug.plugin.counters import PluginCounters
from devplug.plugin.snapshot import (
    GONE,
    Line,
    Snapshot,
    checked_list,
    difference,
    lines_of,
    next_snapshot,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractAsyncContextManager

    from devplug.devices import Device
    from devplug.plugin.callbacks import PluginCode
    from devplug.plugin.snapshot import Slices


logger = logging.getLogger(__name__)

Result = TypeVar("Result")

LOGGED_AT_ONCE: Final = 20
LOGGED_PER_SECOND: Final = 0.1
"""How many changes are logged one by one, and how often after that: a device may flap all day."""

TRIES_IN_TURNS: Final = 3
"""How often the next snapshot is computed again because a device that left it was allocated meanwhile; after
that it is computed in one go."""


class _HandingOut(Struct):
    """The block of one Allocate. No generator: each of those would be registered with the loop."""

    ids: Sequence[str]
    give: Callable[[Sequence[str]], None]
    keep_back: Callable[[Sequence[str]], Awaitable[None]]

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.give(self.ids)
        else:
            await self.keep_back(self.ids)


class Leaving(Struct, frozen=True):
    """A device that was healthy until a plugin was replaced, and that the kubelet may have chosen by then."""

    device: Device
    former: PluginCode
    """The plugin before, which answers for the device."""
    until: float
    """When no Allocate for it is on its way any more."""


class Inventory:
    """A plugin's devices; lives as long as the plugin is served, on one event loop.

    `version` grows with each change of `snapshot` and of `repeats`. `on_change` is called after each change
    of a public attribute. `held_ids` returns the held IDs; without it, a device that was allocated is held
    for ever. `offered` returns the devices to advertise of an author's list; both are called at each change.
    `why_withheld` returns why an ID is not advertised, or "".
    """

    def __init__(
        self,
        resource_name: str,
        counters: PluginCounters | None = None,
        on_change: Callable[[], None] = lambda: None,
        *,
        held_ids: Callable[[], AbstractSet[str]] | None = None,
        offered: Callable[[Sequence[Device]], Sequence[Device]] = tuple,
        why_withheld: Callable[[str], str] = lambda _: "",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.resource_name = resource_name
        self.since: dict[str, float] = {}
        """Since when each device of the snapshot has its health, as a Unix time in seconds."""
        self.failure: str | None = None
        """Why `devices` fails at the moment; None if it does not."""
        self.counters = counters or PluginCounters()
        self._on_change = on_change
        self._wall_clock = wall_clock
        self.snapshot = Snapshot()
        self.version = 0
        self.repeats = 0
        self._listed: tuple[Device, ...] = ()
        self.leaving: Mapping[str, Leaving] = {}
        """Devices that were healthy until a plugin was replaced a moment ago, by ID."""
        self._has_leaving = Event()
        self._held_ids = held_ids
        self._offered = offered
        self._why_withheld = why_withheld
        self._given: set[str] = set()
        """The IDs that were given out, if there is no `held_ids`."""
        self._given_at: float | None = None
        self._asked_for: Counter[str] = Counter()
        self._marked: dict[str, str] = {}
        self._failing: str | None = None
        self.changes = 0
        """How many lists were different for the kubelet."""
        self._updating = asyncio.Lock()
        self._due = 0
        """The number of changes so far that the snapshot has to contain."""
        self._done = 0
        """The number of those changes that the snapshot contains."""
        self._changed = Notifier()
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether there was a first list."""
        return self.version > 0

    async def replace(self, listed: object) -> None:
        """Replace the list by an author's; raises `PluginError`, changing nothing, for an invalid one."""
        has_recovered = self._take(await in_turns(checked_list(listed)))
        await self._update()
        if has_recovered:
            self._note_recovery()

    async def succeed(
        self, listed: object, begin: Callable[[], None], former: PluginCode, *, leaving_seconds: float = 0
    ) -> None:
        """Replace the list by the first one of a plugin that takes another one's place.

        `begin` is called in the turn of the loop in which the list takes effect; if it raises, nothing
        changes. Devices that become unhealthy with that stay in `leaving` for `leaving_seconds`, answered by
        `former`. Raises `PluginError` for an invalid list.
        """
        checked = await in_turns(checked_list(listed))
        async with self._updating:
            until, leaving = asyncio.get_running_loop().time() + leaving_seconds, {**self.leaving}
            if leaving_seconds:
                devices = self.snapshot.devices.values()
                leaving |= {one.id: Leaving(one, former, until) for one in devices if _is_healthy(one)}
            await self._take_next(checked, begin, leaving)
        self._has_leaving.set()

    def _take(self, listed: tuple[Device, ...]) -> bool:
        """Take an author's list; return whether `devices` has failed until now."""
        has_recovered, self._failing, self.failure = self.failure is not None, None, None
        self._listed = listed
        self._marked.clear()
        return has_recovered

    def _note_recovery(self) -> None:
        logger.info("devices() works again", extra={"resource_name": self.resource_name})
        self._on_change()

    async def mark_unhealthy(self, ids: Iterable[str], reason: str) -> None:
        """Mark devices unhealthy until the next list; unknown IDs are ignored."""
        self._marked.update((id_, one_line(reason)) for id_ in ids if id_ in self.snapshot.devices)
        await self._update()

    def note_failure(self, reason: str) -> None:
        """Record that `devices` has failed; the last list stands for now."""
        self.failure = one_line(reason)
        self._on_change()

    async def distrust(self, reason: str) -> None:
        """Mark every device unhealthy until the next list, because this one is too old."""
        self._failing = one_line(reason)
        await self._update()

    def handing_out(self, devices: Iterable[Device]) -> AbstractAsyncContextManager[None]:
        """Return a block that keeps devices listed while Allocate is answered, and then unless it raises.

        A kubelet that gets an answer about a device that has left the list meanwhile crashes (manager.go).
        """
        ids = [device.id for device in devices]
        self._asked_for.update(ids)
        return _HandingOut(ids, self._give, self._keep_back)

    def _give(self, ids: Iterable[str]) -> None:
        # What is held stays listed, so nothing changes here: no look at thousands of devices for each answer.
        if self._held_ids is None:
            self._given.update(ids)
        self._given_at = self._wall_clock()
        self._stop_asking(ids)
        self._on_change()

    async def _keep_back(self, ids: Iterable[str]) -> None:
        self._stop_asking(ids)
        await self._update()

    def _stop_asking(self, ids: Iterable[str]) -> None:
        self._asked_for.subtract(ids)
        self._asked_for = +self._asked_for

    async def refresh(self) -> None:
        """Bring the list up to date with what is held and offered now."""
        if self.version:
            await self._update()

    async def repeat(self) -> None:
        """Make the streams send the list again as it is."""
        self.repeats += 1
        self.version += 1
        self.wake()

    @property
    def given_at(self) -> float | None:
        """When a device was last given out, as a Unix time in seconds: now, while an answer is being made."""
        return self._wall_clock() if self._asked_for else self._given_at

    def held_ids(self) -> AbstractSet[str]:
        """Return the IDs that are held, with those that are being given out at this moment."""
        held = self._given if self._held_ids is None else self._held_ids()
        return held | self._asked_for.keys()

    def find(self, device_ids: Iterable[str]) -> list[Device]:
        """Return the devices with these IDs, in ID order; raises `UnknownDeviceError` for an unknown one."""
        devices = self.snapshot.devices
        found = []
        for id_ in sorted(device_ids):
            if id_ not in devices:
                raise UnknownDeviceError(id_, self.resource_name, self._why_withheld(id_))
            found.append(devices[id_])
        return found

    def find_healthy(
        self, device_ids: Iterable[str], is_tolerated: Callable[[Device], bool] | None = None
    ) -> list[Device]:
        """Return the devices; raises `AllocationError` if one is unknown, or unhealthy and not tolerated."""
        found = [left.device if (left := self.left(one.id)) else one for one in self.find(device_ids)]
        for device in found:
            may_be_sick = is_tolerated is not None and device.health != GONE and is_tolerated(device)
            if not (_is_healthy(device) or may_be_sick):
                raise UnhealthyDeviceError(device.health.reason, device)
        return found

    def left(self, device_id: str) -> Leaving | None:
        """Return what was healthy until a plugin was replaced a moment ago, if this device was."""
        device = self.snapshot.devices.get(device_id)
        if device is None or _is_healthy(device):
            return None
        return self.leaving.get(device_id)

    async def changed_since(self, version: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait for a newer snapshot; False if the inventory is closed or, checked after `wake`, `is_over`."""
        while not (is_ended := self._is_closed or is_over()) and self.version <= version:
            await self._changed.next.wait()
        return not is_ended

    def wake(self) -> None:
        """Make every waiter of `changed_since` check its `is_over`."""
        self._changed.notify()

    async def close(self) -> None:
        """End all watching; the snapshot stays for the calls that are still in flight."""
        self._is_closed = True
        self.wake()

    async def _update(self) -> None:
        """Bring the snapshot up to date with all changes up to now."""
        self._due += 1
        due = self._due
        async with self._updating:
            if self._done < due:  # else whoever had the turn before has seen to it
                done = self._due
                await self._take_next()
                self._done = done

    async def _take_next(
        self,
        first: tuple[Device, ...] = (),
        begin: Callable[[], None] | None = None,
        leaving: Mapping[str, Leaving] | None = None,
    ) -> None:
        """Take the next snapshot, if it differs. With many devices other tasks run meanwhile.

        With `begin`, `first` is the first list of another plugin, and `leaving` is for that.
        """
        tries = 0
        leaving = self.leaving if leaving is None else leaving
        while True:
            run = in_turns if tries < TRIES_IN_TURNS else _at_once
            held, before, now = self.held_ids(), self.snapshot, self._wall_clock()
            listed, marked, failing = self._listed, dict(self._marked), self._failing
            if begin is not None:
                listed, marked, failing = first, {}, None
            offered, kept = self._offered(listed), held | leaving.keys()
            fresh = await run(next_snapshot(before, offered, held=kept, marked=marked, failing=failing))
            found = await run(difference(before, fresh))
            # What was asked for meanwhile must not leave.
            late = self.held_ids() - held
            if all(id_ in fresh.devices or id_ not in before.devices for id_ in late):
                break
            tries += 1
        if begin is not None:
            begin()
            if self._take(first):
                self._note_recovery()
            listed_now = fresh.devices
            self.leaving = {
                id_: one
                for id_, one in leaving.items()
                if id_ in listed_now and not _is_healthy(listed_now[id_])
            }
        if not found.is_any and self.version:
            return
        self.snapshot = fresh
        self.changes += found.is_visible
        self.since.update((one.id, now) for one in (*found.came, *found.better, *found.worse))
        for id_ in found.left:
            self.since.pop(id_, None)
        for state, devices in (("healthy", found.better), ("unhealthy", found.worse)):
            self.counters.health_transitions.add(state, times=len(devices))
        self.version += 1
        self._on_change()
        self.wake()

    async def drop_leaving(self) -> None:
        """Let each device of `leaving` leave the list at its time, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            self._has_leaving.clear()
            first = min((one.until for one in self.leaving.values()), default=None)
            if await within(None if first is None else first - clock(), self._has_leaving.wait()):
                continue
            self.leaving = {id_: one for id_, one in self.leaving.items() if one.until > clock()}
            await self._update()


def _is_healthy(device: Device) -> bool:
    return device.health.state is HealthState.HEALTHY


async def log_changes(inventory: Inventory) -> None:
    """Log how the list changes, until it is closed: each change at once, or several together if too many."""
    pace = Pace(LOGGED_PER_SECOND, LOGGED_AT_ONCE)
    logged: Snapshot | None = None
    changes, version, is_open = 0, 0, True
    clock = asyncio.get_running_loop().time
    while is_open:
        is_open = await inventory.changed_since(version)
        wait_seconds = pace.wait_seconds(clock()) if is_open else 0.0
        await asyncio.sleep(wait_seconds)
        version, fresh, all_changes = inventory.version, inventory.snapshot, inventory.changes
        lines = list(await in_turns(lines_of(logged or Snapshot(), fresh, is_first=logged is None)))
        if wait_seconds and all_changes > changes + 1:
            count = {"changes": all_changes - changes}
            lines.append(Line("the device list changes too fast to log each change", count))
        for line in lines:
            level = logging.WARNING if line.is_warning else logging.INFO
            logger.log(level, line.message, extra={"resource_name": inventory.resource_name, **line.facts})
        if lines:
            pace.spend(clock())
        logged, changes = fresh, all_changes


async def in_turns(looking: Slices[Result]) -> Result:
    """Return the result; other tasks run between two slices."""
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found: Result = end.value
            return found
        await asyncio.sleep(0)


async def _at_once(looking: Slices[Result]) -> Result:
    return whole(looking)
