"""The held devices of one resource: which containers may hold, and `onRelease` once they are released.

A device is dirty from its Allocate until `onRelease` has run for it. The kubelet never says that a pod has
ended. So `onRelease` runs when PodResources no longer lists a holder of the device, or, if the kubelet
allocates it again before that, within that Allocate. The names of dirty devices are in a file, for the next
daemon.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.backoff import backoff_seconds
from devplug.daemon.config.templates import Missing
from devplug.daemon.container_response import device_ids, found_name
from devplug.daemon.sources.device import HostDevice
from devplug.devices import Device, Health
from devplug.errors import AllocationError, UnhealthyDeviceError, one_line
from devplug.holds.ledger import NO_USES
from devplug.linux.durable_file import remove_remains, write_whole
from devplug.linux.notifier import within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from devplug.daemon.command_result import CommandResult
    from devplug.daemon.config.types import Resource, TimedCommand
    from devplug.holds.hardware import Use
    from devplug.holds.holders import Holders

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 30.0
LAST_RETRY_SECONDS: Final = 600.0
"""The shortest and the longest wait before an `onRelease` that failed is tried again, in seconds."""

CLEANED_AT_ONCE: Final = 64
"""Most devices of one resource for which `onRelease` runs at the same time."""

LOGGED_LIMIT: Final = 20
"""Most devices that one log line names."""


# ── the devices ───────────────────────────────────────────────────────────────────────────────────


class Books(Struct):
    """What is known of a resource's held devices, over all edits of the resource."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    found: dict[str, HostDevice] = field(default_factory=dict)
    """The devices as the last scan that found them saw them, by name."""
    dirty: set[str] = field(default_factory=set)
    """The names of devices for which `onRelease` has to run."""
    inherited: set[str] = field(default_factory=set)
    """The dirty devices that an older version has left in its own file."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why the last `onRelease` failed, by name."""
    releasing: set[str] = field(default_factory=set)
    """The device IDs of claims that are being released: they keep no replica from being cleaned."""
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one that follows releases."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class HeldDevices:
    """The allocated devices of one resource; lives as long as the resource is served.

    Without `holders` a device counts as held for ever after its Allocate, unless `claimed_ids` returns those
    that claims use. `dirty_file` keeps the names of dirty devices over a restart. `before` are those of the
    resource before an edit: both have the same books, as calls of before may still run. `given` has what
    every Allocate gave, by device ID, as long as PodResources is not asked who holds what. `hand_over` has
    hardware cleaned by the resource that finds it now, where this one does not clean.

    Two daemons may serve the claims of a resource side by side, and release what the other one has given. So
    what is in use stands in the driver's state file alone, and `dirty_file` has what was not cleaned after
    that: it is read when it counts, which is while the driver holds the lock of its claims.
    """

    def __init__(
        self,
        resource: Resource,
        holders: Holders | None,
        *,
        claimed_ids: Callable[[], frozenset[str]] | None = None,
        dirty_file: DirtyFile | None = None,
        before: HeldDevices | None = None,
        given: dict[str, Use | None] | None = None,
        hand_over: Callable[[Use], None] = lambda _: None,
        retry_seconds: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self.books: Books = before.books if before else Books()
        books = self.books
        self.changed = books.changed
        """Set when `health_of` or `held_names` have changed. Whoever waits for it clears it."""
        self._resource = resource
        self._holders = holders
        self._claimed_ids = claimed_ids
        self._retry_seconds = retry_seconds
        self._file = dirty_file
        self._given: dict[str, Use | None] = {} if given is None else given
        self._grouped: frozenset[str] | None = None
        self._ids_of: defaultdict[str, list[str]] = defaultdict(list)
        """The held IDs that `_grouped` has, by the name of the found device."""
        self._found = books.found
        self._present: frozenset[str] = frozenset()
        self._dirty, self._faults = books.dirty, books.faults
        self._inherited = books.inherited
        self._away: frozenset[str] = frozenset()
        self._hand_over = hand_over
        self._releasing = books.releasing
        if before is None and claimed_ids is None:
            self._inherited.update(dirty_file.read() if dirty_file else ())
            self._dirty |= {*self.held_names(), *self._inherited}
        self._is_lost = False
        """Whether records were lost, so that each device is to be cleaned that no container holds."""
        if holders is not None and resource.on_release is not None and claimed_ids is None:
            # An edit that adds `onRelease` has lost nothing.
            self._is_lost = holders.keep_file(resource.name) and before is None
        self._locks, self._turn = books.locks, books.turn
        self._at_once = asyncio.Semaphore(CLEANED_AT_ONCE)
        self._is_needed = asyncio.Event()
        self._woken = books.woken
        self._is_replugged = False
        self._lost: asyncio.Queue[HostDevice] = asyncio.Queue()
        if resource.on_release is not None:
            self._is_needed.set()

    # ── who has what ──

    def held_ids(self) -> frozenset[str]:
        """Return the device IDs that a container may hold, or that were released and are dirty."""
        if self._claimed_ids is not None:
            return self._claimed_ids() | self._given.keys()
        if self._holders is None:
            return frozenset(self._given)
        held = self._holders.held_ids(self._resource.name)
        return held - self._away if self._away else held

    def _note_away(self) -> None:
        """Note which released devices are cleaned when they are plugged in again: lists may drop them."""
        pending = () if self._holders is None else self._holders.pending(self._resource.name)
        away = frozenset(one.device_id for one in pending if self._is_absent(self._name(one.device_id)))
        if away != self._away:
            self._away = away
            self.changed.set()

    def certainly_held_names(self) -> frozenset[str] | None:
        """Return `held_names` if it is known who holds what; else None."""
        is_known = self._claimed_ids is not None or (self._holders is not None and self._holders.is_known)
        return self.held_names() if is_known else None

    def _may_be_held(self, device_id: str) -> bool:
        """Whether a container may hold this ID, which is among those that are held."""
        return self._holders is None or self._holders.may_be_held(self._resource.name, device_id)

    def held_names(self) -> frozenset[str]:
        """Return the names of the found devices behind `held_ids`; the replicas of a device have its name."""
        held = self.held_ids()
        return held if self._resource.share.replicas == 1 else frozenset(map(self._name, held))

    def _name(self, device_id: str) -> str:
        return found_name(device_id, self._resource.share.replicas)

    def health_of(self, name: str) -> Health:
        """Return the health of a device by its last `onRelease`: unhealthy while that fails.

        Also while a use cannot be recorded, because the next daemon would not know that it has to clean.
        """
        return Health.from_fault(self._faults.get(name) or self._record_fault())

    def _record_fault(self) -> str | None:
        if self._holders is None or self._resource.on_release is None:
            return None
        fault = self._holders.record_fault(self._resource.name)
        return f"its use cannot be recorded, so that onRelease may be left out: {fault}" if fault else None

    def follow(self, present: Collection[HostDevice], *, is_any_gone: bool) -> None:
        """Record the present devices; while any is gone, PodResources is asked who holds devices."""
        for one in present:
            # What could not be cleaned while it was away may be cleaned now.
            if one.name in {*self._faults, *self._dirty} and one.name not in self._present:
                self._is_replugged = True
                self._woken.set()
            self._found[one.name] = one
        self._present = frozenset(one.name for one in present)
        self._note_away()
        if self._is_lost and self._holders is not None:
            self._is_lost = False
            logger.warning(
                "records of held devices were lost; onRelease is run for each device that no container holds",
                extra={"resource_name": self._resource.name, "count": len(self._present)},
            )
            ids = {one for name in self._present for one in device_ids(name, self._resource.share.replicas)}
            self._holders.assume_held(self._resource.name, ids - self.held_ids())
            self._dirty |= self._present
        if is_any_gone:
            self._is_needed.set()

    def lose(self, lost: Iterable[HostDevice]) -> None:
        """Record that devices were unplugged: `onLost` is run for those that a container may hold."""
        if self._resource.on_lost is not None:
            held = self.held_names()
            for found in lost:
                if found.name in held:
                    self._lost.put_nowait(found)

    # ── giving out ──

    async def before_giving(self, devices: Iterable[Device]) -> None:
        """Run `onRelease` for the dirty ones of these; raises `UnhealthyDeviceError` if that fails.

        A device of which another container holds another replica is left alone.
        """
        ids = frozenset(device.id for device in devices)
        if self._holders is not None:
            await self._holders.release_or_refuse(self._resource.name, ids)
        for device_id in ids:
            self._given.pop(device_id, None)
        if self._resource.on_release is None:
            return
        self._read_dirty()
        names = sorted({self._name(device_id) for device_id in ids} & self._dirty)
        faults = await self._clean_all(names, ids)
        if broken := [name for name in names if faults[name]]:
            raise UnhealthyDeviceError(faults[broken[0]], *map(Device, broken))

    def _others_hold(self, name: str, ids: Collection[str]) -> bool:
        held = self.held_ids()
        if held is not self._grouped:
            self._grouped = held
            self._ids_of = defaultdict(list)
            for device_id in held:
                self._ids_of[self._name(device_id)].append(device_id)
        return any(one not in ids and self._may_be_held(one) for one in self._ids_of.get(name, ()))

    def give(self, devices: Iterable[Device], uses: Mapping[str, Use] = NO_USES) -> None:
        """Record the Allocate of these devices. Call it before the kubelet has the answer.

        `uses` has what the container gets of each, by device ID. Raises `UnhealthyDeviceError` if they have
        to be cleaned after this use and the use cannot be recorded.
        """
        if self._claimed_ids is not None:
            return  # the driver did so before, in its state file
        ids = [device.id for device in devices]
        if self._resource.on_release is not None:
            self._dirty.update(map(self._name, ids))
        if self._holders is None:
            self._given.update((device_id, uses.get(device_id)) for device_id in ids)
            self._remember()
            return
        self._holders.note_allocated(self._resource.name, ids, uses)
        if self._resource.on_release is not None and (
            fault := self._holders.record(self._resource.name, ids)
        ):
            raise UnhealthyDeviceError(
                f"its use cannot be recorded, so that onRelease may be left out: {fault}",
                *(Device(self._name(device_id)) for device_id in ids),
            )

    def complete(self, device_id: str, use: Use) -> None:
        """Record what a container has of a device, where an older version has recorded the ID alone."""
        if self._holders is not None:
            self._holders.complete(self._resource.name, device_id, use)
        elif device_id in self._given:
            self._given[device_id] = use

    def _read_dirty(self) -> None:
        """Learn what another daemon has left, or cleaned; while we work on one it can do neither."""
        if self._claimed_ids is not None and self._file is not None and not self._releasing:
            self._dirty.clear()
            self._dirty.update(self._file.read())

    def _remember(self) -> None:
        """Keep the dirty devices for the next daemon, if the ledger does not."""
        if self._file is not None and self._holders is None:
            self._file.write(self._dirty)
        elif self._file is not None and self._inherited:
            self._file.write(self._inherited & self._dirty)
            self._inherited &= self._dirty

    # ── coming back ──

    async def release(self, device_ids: Iterable[str]) -> None:
        """End the use of devices by a claim: run `onRelease` for them, unless another claim uses them.

        Raises `AllocationError` if that fails; they are dirty until it is called again, or allocated.
        """
        ids = frozenset(device_ids)
        names = set(map(self._name, ids))
        for device_id in ids:
            self._given.pop(device_id, None)
        self._read_dirty()
        self._releasing |= ids
        self._dirty |= names if self._resource.on_release is not None else set()
        try:
            faults = await self._clean_all(names, self._releasing)
            if names & self._dirty:
                self._remember()
        finally:
            self._releasing -= ids
        self.changed.set()
        if broken := [name for name, fault in sorted(faults.items()) if fault]:
            raise AllocationError(f"device {broken[0]} is not cleaned up: {faults[broken[0]]}")

    async def run(self) -> None:
        """Run `onRelease` for each device that is released, until cancelled.

        After an edit this begins once the run of before has ended.
        """
        async with self._turn, asyncio.TaskGroup() as group:
            group.create_task(self._follow_losses())
            group.create_task(self._try_again())
            if self._holders is not None:
                group.create_task(self._follow_releases(self._holders))
                group.create_task(self._follow_faults(self._holders))

    async def _follow_releases(self, holders: Holders) -> None:
        await self._is_needed.wait()
        name = self._resource.name
        with holders.releases(name):
            await holders.wait(lambda: holders.is_known)
            # What was released before is not listed as a release.
            await self._clean_all(self._dirty - self.held_names())
            self.changed.set()
            tried: frozenset[int] = frozenset()
            while True:
                released = await holders.wait(
                    lambda tried=tried: [one for one in holders.pending(name) if id(one) not in tried]  # type: ignore[misc]
                )
                await self._clean_released(holders, [one.device_id for one in released])
                self._take_cleaned(holders)
                self._note_away()
                tried = frozenset(map(id, holders.pending(name)))
                self.changed.set()

    def _take_cleaned(self, holders: Holders) -> None:
        """End the holds of released devices that need no clean-up any more."""
        pending = holders.pending(self._resource.name)
        dirty = self._dirty if self._resource.on_release is not None else ()
        if cleaned := [one for one in pending if self._name(one.device_id) not in dirty]:
            holders.take(cleaned)

    async def _follow_faults(self, holders: Holders) -> None:
        """Have the devices listed again when uses cannot be recorded, or can be again."""
        fault = ""
        while True:
            await holders.wait(lambda last=fault: self._record_fault() != (last or None))  # type: ignore[misc]
            fault = self._record_fault() or ""
            self.changed.set()

    async def _clean_released(self, holders: Holders, device_ids: Iterable[str]) -> None:
        freed = [device_id for device_id in device_ids if not self._may_be_held(device_id)]
        if not freed:
            return
        extra = {"resource_name": self._resource.name, "devices": freed[:LOGGED_LIMIT], "count": len(freed)}
        logger.info("devices were released", extra=extra)
        names = set(map(self._name, freed))
        if self._resource.on_release is not None:
            self._dirty |= names
            await self._clean_all(names)
            return
        for device_id in freed:
            use = holders.use_of(self._resource.name, device_id)
            if use is not None and use.is_dirty:
                self._hand_over(use)

    def adopt(self, name: str) -> None:
        """Have a device cleaned that was used under another resource name, before a container gets it."""
        if self._resource.on_release is not None and self._holders is not None:
            self._dirty.add(name)
            ids = device_ids(name, self._resource.share.replicas)
            self._holders.assume_held(self._resource.name, set(ids) - self.held_ids())

    async def _try_again(self) -> None:
        tries = 1
        while True:
            self._woken.clear()
            wait_seconds = backoff_seconds(tries, self._retry_seconds, LAST_RETRY_SECONDS)
            is_woken = await within(wait_seconds if self._faults else None, self._woken.wait())
            if is_woken and not self._is_replugged:
                continue
            self._is_replugged = False
            await self._clean_all({*self._faults, *self._dirty})
            tries = tries + 1 if self._faults else 1

    async def _clean_all(self, names: Iterable[str], ids: Collection[str] = ()) -> dict[str, str]:
        """Run `onRelease` for these devices at the same time; return by name why it failed, "" if it did not.

        One that a container may hold is left alone; `ids` are those that count as free, because the kubelet
        allocates them.
        """
        wanted = sorted(names)
        if self._resource.on_release is None or not wanted:
            return dict.fromkeys(wanted, "")
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(self._clean(name, ids)) for name in wanted}
        return {name: task.result() for name, task in tasks.items()}

    async def _clean(self, name: str, ids: Collection[str]) -> str:
        """Run `onRelease` for a dirty device, one run at a time; return why it failed, or ""."""
        assert self._resource.on_release is not None
        async with self._locks[name], self._at_once:
            if name not in self._dirty or self._others_hold(name, ids) or self._is_absent(name):
                return ""
            found = self._found.get(name, HostDevice(name))
            fault = await self._command(self._resource.on_release.exec, found, "onRelease")
            if fault:
                self._faults[name] = fault
                self._woken.set()
            else:
                self._dirty.discard(name)
                self._faults.pop(name, None)
                self._remember()
                if self._holders is not None:
                    self._take_cleaned(self._holders)
            self.changed.set()
            return fault

    def _is_absent(self, name: str) -> bool:
        """Whether a device is not there: by its name, its node and its path the command may reach others."""
        found = self._found.get(name)
        return found is not None and bool(found.nodes or found.hardware) and name not in self._present

    async def _follow_losses(self) -> None:
        while True:
            found = await self._lost.get()
            assert self._resource.on_lost is not None
            await self._command(self._resource.on_lost.exec, found, "onLost")

    async def _command(self, command: TimedCommand, found: HostDevice, key: str) -> str:
        """Run a command of the file for one device; return why it failed, or ""."""
        from devplug.daemon.commands import command_arguments, command_environment, run_command

        arguments = command_arguments(command.command, found)
        if isinstance(arguments, Missing):
            fault = f"{key}: {arguments.reason}"
        else:
            env = command_environment(self._resource.name, found)
            result = await run_command(arguments, timeout_seconds=command.timeout_seconds, env=env)
            fault = _fault(result, key, command.timeout_seconds)
        facts = {"resource_name": self._resource.name, "device_id": found.name}
        if fault:
            logger.warning("a command of the configuration failed", extra={**facts, "reason": fault})
        else:
            logger.info("a command of the configuration was run", extra={**facts, "key": key})
        return fault


def _fault(result: CommandResult, key: str, timeout_seconds: float) -> str:
    """Return why a command of the key `key` failed, or "" if it exited with 0 in time."""
    if result.fault:
        return one_line(f"{key}: {result.fault}")
    if result.was_killed:
        return f"{key} took longer than {timeout_seconds:g} s"
    if result.exit_code != 0:
        said = f": {result.first_line}" if result.first_line else ""
        return one_line(f"{key} ended with {result.exit_code}{said}")
    return ""


# ── what the next daemon has to know ──────────────────────────────────────────────────────────────


class DirtyFile:
    """The JSON file with the names of a resource's dirty devices, if there are any; it has one writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cannot_write = False

    def read(self) -> frozenset[str]:
        """Return the names; none, after a logged warning, if the file is damaged."""
        remove_remains(self._path)
        try:
            names = json.loads(self._path.read_text(encoding="utf-8"))
            if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
                raise ValueError("it is not a list of names")
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot read the list of devices whose onRelease is still to run; they are allocated "
                "without it",
                extra={"path": str(self._path), "reason": str(error)},
            )
            return frozenset()
        return frozenset(names)

    def write(self, names: Collection[str]) -> None:
        """Replace the file by one with `names`, at once for every reader and after a power cut, too.

        Blocks until the disk has it: a device has to be in the file before a container has the device.
        """
        try:
            if names:
                write_whole(self._path, json.dumps(sorted(names)) + "\n")
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            if not self._cannot_write:
                logger.warning(
                    "cannot write the list of devices whose onRelease is still to run; a restart of devplug "
                    "forgets it",
                    extra={"path": str(self._path), "reason": error.strerror},
                )
            self._cannot_write = True
        else:
            self._cannot_write = False
