"""The held devices of one resource: which containers may hold, and their clean-up once they are released.

A device is dirty from its Allocate until it was cleaned up. The kubelet never says that a pod has ended. So
the clean-up runs when PodResources no longer lists a holder of the device, or, if the kubelet allocates it
again before that, within that Allocate. The next process knows of it by the holds, or by the driver's claims.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from msgspec import Struct, field

from devplug.backoff import backoff_seconds
from devplug.devices import Device, Health
from devplug.errors import AllocationError, KubeletError, UnhealthyDeviceError
from devplug.holds.hardware import REPLICA_MARK, Use
from devplug.holds.held_device import NotCleanedError
from devplug.holds.ledger import NO_USES
from devplug.linux.durable_file import read_state, remove_remains
from devplug.linux.notifier import Event, within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from devplug.holds.hardware import Hardware, Key
    from devplug.holds.holders import Holders
    from devplug.holds.ownership import Claims

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 30.0
LAST_RETRY_SECONDS: Final = 600.0
"""The shortest and the longest wait before a clean-up that failed is tried again, in seconds."""

CLEANED_AT_ONCE: Final = 64
"""Most devices of one resource that are cleaned up at the same time."""

LOGGED_LIMIT: Final = 20
"""Most devices that one log line names."""


# ── the devices ───────────────────────────────────────────────────────────────────────────────────


class CleanableDevice(Protocol):
    """A device that is present, and that can be cleaned up."""

    @property
    def name(self) -> str:
        """A device ID, or what the IDs of its replicas begin with."""

    @property
    def identity(self) -> Hardware | None:
        """The identity of its hardware; None if that is not known."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Its folder below /sys/devices and its device numbers."""

    @property
    def has_hardware(self) -> bool:
        """Whether it can be absent: by its name, its node and its path a clean-up may reach others then."""


AnyFound = TypeVar("AnyFound", bound=CleanableDevice)


class Care(Struct, Generic[AnyFound], frozen=True):
    """What becomes of a resource's devices after their use."""

    resource_name: str
    clean: Callable[[str, AnyFound | None], Awaitable[str]] | None = None
    """Cleans up a device, by name and as it was last seen; returns why that failed, or ""."""
    lose: Callable[[AnyFound], Awaitable[object]] | None = None
    """Called for a held device that was unplugged."""
    key: str = "onRelease"
    """What people call the clean-up."""
    replicas: int = 1
    name_of: Callable[[str], str] = str
    """Returns the name of the found device behind a device ID."""
    ids_of: Callable[[str], Sequence[str]] = lambda name: (name,)
    """Returns the device IDs that stand for a found device, by its name."""


class Books(Struct, Generic[AnyFound]):
    """What is known of a resource's held devices, over all edits of the resource."""

    changed: Event = field(default_factory=Event)
    found: dict[str, AnyFound] = field(default_factory=dict)
    """The devices as the last scan that found them saw them, by name."""
    dirty: set[str] = field(default_factory=set)
    """The names of devices that have to be cleaned up."""
    inherited: set[str] = field(default_factory=set)
    """The dirty devices that an older version has left in a file of its own."""
    unknown: set[str] | None = None
    """The devices that were seen since it was noticed that records are lost; None if they are not."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why the last clean-up failed, by name."""
    releasing: set[str] = field(default_factory=set)
    """The device IDs of claims that are being released: they keep no replica from being cleaned."""
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one that follows releases."""
    woken: Event = field(default_factory=Event)


class HeldDevices(Generic[AnyFound]):
    """The allocated devices of one resource; lives as long as the resource is served.

    Without `holders` and `claims` a device counts as held for ever after its Allocate: `given` has these by
    ID. `releasing` has the IDs that claims release. `dirty_file` and `hardware_of` are for names of dirty
    devices that an older version has left. `before` are those of the resource before an edit: both have the
    same books, as calls of before may still run. `clean_elsewhere` has hardware cleaned by the resource that
    finds it now. Its second argument says whether a resource without a command may do that. `is_in_use` says
    whether a container has the hardware by another resource.

    Two daemons may serve the claims of a resource side by side. So what is in use or to be cleaned stands in
    the driver's state file alone.
    """

    def __init__(
        self,
        care: Care[AnyFound],
        holders: Holders | None,
        *,
        claims: Claims | None = None,
        releasing: set[str] | None = None,
        dirty_file: Path | None = None,
        hardware_of: Callable[[str], Hardware | None] = lambda _: None,
        before: HeldDevices[AnyFound] | None = None,
        given: dict[str, Use | None] | None = None,
        clean_elsewhere: Callable[[Use, bool], Awaitable[str | None]] | None = None,
        is_in_use: Callable[[AnyFound], bool] = lambda _: False,
        retry_seconds: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self.books: Books[AnyFound] = before.books if before else Books()
        if releasing is not None:
            self.books.releasing = releasing
        books = self.books
        self.changed = books.changed
        """Set when `health_of` or `held_names` have changed. Whoever waits for it clears it."""
        self._care = care
        self._is_needed = Event()
        self._holders = holders
        self._claims = claims
        self._retry_seconds = retry_seconds
        self._file = dirty_file
        self._hardware_of = hardware_of
        self._given: dict[str, Use | None] = {} if given is None else given
        self._grouped: frozenset[str] | None = None
        self._ids_of: defaultdict[str, list[str]] = defaultdict(list)
        """The held IDs that `_grouped` has, by the name of the found device."""
        self._found = books.found
        self._present: frozenset[str] = frozenset()
        self._dirty, self._faults = books.dirty, books.faults
        self._inherited = books.inherited
        self._away: frozenset[str] = frozenset()
        self._clean_elsewhere = clean_elsewhere
        self._is_in_use = is_in_use
        self._releasing = books.releasing
        is_damaged = False
        if before is None:
            inherited = frozenset[str]() if dirty_file is None else dirty_names(dirty_file)
            self._inherited.update(inherited or ())
            if claims is None:
                self._dirty |= {*self.held_names(), *self._inherited}
            is_damaged = inherited is None
        self._is_lost = is_damaged and care.clean is not None
        """Whether records were lost, so that each device is to be cleaned that no container holds."""
        # An edit that adds a clean-up has lost nothing.
        self._is_lost |= self.set_care(care) and before is None
        self._locks, self._turn = books.locks, books.turn
        self._at_once = asyncio.Semaphore(CLEANED_AT_ONCE)
        self._woken = books.woken
        self._is_replugged = False
        self._is_retired = self._is_left = False
        self._lost: list[AnyFound] = []
        self._has_lost = Event()

    def set_care(self, care: Care[AnyFound]) -> bool:
        """Clean up in another way from now on; return whether records were lost."""
        self._care = care
        if care.clean is None:
            return False
        self._is_needed.set()
        return self._holders is not None and self._holders.keep_file(care.resource_name)

    # ── who has what ──

    def held_ids(self) -> frozenset[str]:
        """Return the device IDs that a container may hold, or that were released and are dirty."""
        if self._claims is not None:
            return self._claims.held_ids() | self._given.keys()
        if self._holders is None:
            return frozenset(self._given)
        held = self._holders.ledger.held_ids(self._care.resource_name)
        return held - self._away if self._away else held

    def is_any_pending(self) -> bool:
        """Whether a released device still has to be cleaned, here or by another resource."""
        if self._claims is not None:
            return bool(self._claims.to_clean())
        return self._holders is not None and bool(
            self._holders.ledger.pending_releases(self._care.resource_name)
        )

    def _note_away(self) -> None:
        """Note which released devices are cleaned when they are plugged in again: lists may drop them."""
        pending = (
            () if self._holders is None else self._holders.ledger.pending_releases(self._care.resource_name)
        )
        away = frozenset(one.device_id for one in pending if self._is_absent(self.name_of(one.device_id)))
        if away != self._away:
            self._away = away
            self.changed.set()

    def certainly_held_names(self) -> frozenset[str] | None:
        """Return `held_names` if it is known who holds what; else None."""
        is_known = self._claims is not None or (self._holders is not None and self._holders.ledger.is_known)
        return self.held_names() if is_known else None

    def _may_be_held(self, device_id: str) -> bool:
        """Whether a container may hold this ID, which is among those that are held."""
        return self._holders is None or self._holders.ledger.may_be_held(self._care.resource_name, device_id)

    def held_names(self) -> frozenset[str]:
        """Return the names of the found devices behind `held_ids`; the replicas of a device have its name."""
        held = self.held_ids()
        if self._care.replicas == 1 and not any(REPLICA_MARK in one for one in held):
            return held
        return frozenset(map(self.name_of, held))

    def name_of(self, device_id: str) -> str:
        """Return the name of the found device behind an ID, whatever its number of replicas was."""
        name, _, _ = device_id.rpartition(REPLICA_MARK)
        if not name or device_id in self._found:
            return self._care.name_of(device_id)
        if self._holders is not None:
            use = self._holders.ledger.use_of(self._care.resource_name, device_id)
        else:
            use = self._given.get(device_id) or self._claimed_use(device_id)
        if use is not None:
            return use.name
        return name if name in self._found else self._care.name_of(device_id)

    def health_of(self, name: str) -> Health:
        """Return the health of a device: unhealthy if its clean-up fails or its use cannot be recorded."""
        return Health.from_fault(self._faults.get(name) or self._record_fault())

    @property
    def is_any_unhealthy(self) -> bool:
        """Whether `health_of` is unhealthy for any device."""
        return bool(self._faults or self._record_fault())

    def _record_fault(self) -> str | None:
        if self._holders is None or self._care.clean is None:
            return None
        fault = self._holders.record_fault(self._care.resource_name)
        return self._unrecorded(fault) if fault else None

    def _unrecorded(self, fault: str) -> str:
        return f"its use cannot be recorded, so that {self._care.key} may be left out: {fault}"

    def follow(self, present: Collection[AnyFound], *, is_any_gone: bool) -> None:
        """Record the present devices; while any is gone, PodResources is asked who holds devices."""
        for one in present:
            # What could not be cleaned while it was away may be cleaned now.
            if one.name in {*self._faults, *self._dirty} and one.name not in self._present:
                self._is_replugged = True
                self._woken.set()
            self._found[one.name] = one
        self._present = frozenset(one.name for one in present)
        self._note_away()
        self._note_loss()
        if is_any_gone:
            self._is_needed.set()

    def _note_loss(self, ids: Collection[str] = ()) -> None:
        """If records were lost, clean up each device when it is first seen, unless held or in `ids`."""
        books = self.books
        if self._claims is not None and self._care.clean is not None:
            self._is_lost |= self._claims.are_records_lost()
        if self._is_lost and books.unknown is None:
            books.unknown = set()
            logger.warning(
                "records of held devices were lost; each device that no container holds is cleaned up",
                extra={"resource_name": self._care.resource_name, "count": len(self._present)},
            )
        if books.unknown is None or not (new := self._present - books.unknown):
            return
        books.unknown |= new
        if self._holders is not None:
            ids = {one for name in new for one in self._care.ids_of(name)}
            self._holders.assume_held(self._care.resource_name, ids - self.held_ids())
            self._dirty |= new
        elif self._claims is not None:
            self._inherited |= {name for name in new if not self._others_hold(name, ids)}
            self._woken.set()

    def retire(self, *, is_left: bool = False) -> None:
        """Let the resource that finds the hardware now clean up what this one fails to clean."""
        self._is_retired, self._is_left = True, is_left
        self._is_replugged = True
        self._woken.set()

    def lose(self, lost: Iterable[AnyFound]) -> None:
        """Record that devices were unplugged: `onLost` is run for those that a container may hold."""
        if self._care.lose is not None:
            held = self.held_names()
            for found in lost:
                if found.name in held:
                    self._lost.append(found)
                    self._has_lost.set()

    # ── giving out ──

    async def before_giving(self, devices: Iterable[Device]) -> None:
        """Clean up dirty devices without held replicas; raises `UnhealthyDeviceError` if that fails."""
        ids = frozenset(device.id for device in devices)
        if self._holders is not None:
            await self._holders.release_or_refuse(self._care.resource_name, ids)
        for device_id in ids:
            self._given.pop(device_id, None)
        if self._care.clean is None:
            return
        if self._claims is not None:
            # A claim with admin access, or another share, only joins a container that has the device.
            ids -= self._claims.prepared_ids()
        self._note_loss(ids)
        wanted = {self.name_of(device_id) for device_id in ids}
        self._dirty |= wanted & self._inherited
        names = sorted(wanted & self._dirty)
        faults = await self._clean_all(names, ids)
        if broken := [name for name in names if faults[name]]:
            raise UnhealthyDeviceError(faults[broken[0]] or "", *map(Device, broken))

    def _others_hold(self, name: str, ids: Collection[str]) -> bool:
        held = self.held_ids()
        if held is not self._grouped:
            self._grouped = held
            self._ids_of = defaultdict(list)
            for device_id in held:
                self._ids_of[self.name_of(device_id)].append(device_id)
        return any(one not in ids and self._may_be_held(one) for one in self._ids_of.get(name, ()))

    def give(self, devices: Iterable[Device], uses: Mapping[str, Use] = NO_USES) -> None:
        """Record the Allocate of these devices, with what the container gets of each by ID.

        Call it before the kubelet has the answer. Raises `UnhealthyDeviceError` if the use cannot be
        recorded.
        """
        if self._claims is not None:
            return  # the driver did so before, in its state file
        ids = [device.id for device in devices]
        if self._care.clean is not None:
            self._dirty.update(map(self.name_of, ids))
        if self._holders is None:
            self._given.update((device_id, uses.get(device_id)) for device_id in ids)
            return
        self._holders.note_allocated(self._care.resource_name, ids, uses)
        if self._care.clean is not None and (fault := self._holders.record(self._care.resource_name, ids)):
            raise UnhealthyDeviceError(
                self._unrecorded(fault),
                *(Device(self.name_of(device_id)) for device_id in ids),
            )

    def complete(self, device_id: str, use: Use) -> None:
        """Record what a container has of a device, where an older version has recorded the ID alone."""
        if self._holders is not None:
            self._holders.complete(self._care.resource_name, device_id, use)
        elif device_id in self._given:
            self._given[device_id] = use

    def _claimed_use(self, device_id: str) -> Use | None:
        return None if self._claims is None else self._claims.use_of(device_id)

    def _forget_inherited(self) -> None:
        """Remove the file of an older version once all that it names is cleaned."""
        if self._file is not None and not self._inherited:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            self._file = None

    async def _adopt_inherited(self, claims: Claims) -> None:
        """Have the driver record what is to be cleaned up although no use of it is recorded."""
        names = set(self._inherited)
        uses = {}
        for name in names:
            found = self._found.get(name)
            hardware = self._hardware_of(name) if found is None else found.identity
            uses[name] = Use(name, hardware, () if found is None else found.keys, is_dirty=True)
        if uses:
            await claims.adopt(uses)
        self._inherited -= names
        self._forget_inherited()

    # ── coming back ──

    async def release(self, device_ids: Iterable[str]) -> None:
        """End the use of devices by a claim; raises `AllocationError`, or `NotCleanedError` to try later."""
        ids = frozenset(device_ids)
        names = set(map(self.name_of, ids))
        for device_id in ids:
            self._given.pop(device_id, None)
        self._releasing |= ids
        uses = {one: self._claimed_use(one) for one in ids}
        used = {self.name_of(one) for one, use in uses.items() if use is not None and use.is_dirty}
        self._dirty |= used if self._care.clean is None else names
        try:
            faults = await self._clean_all(names, self._releasing)
        finally:
            self._releasing -= ids
            self._dirty -= names.difference(map(self.name_of, self._releasing))
        self.changed.set()
        left = {name for name, fault in faults.items() if fault is None}
        if broken := [name for name, fault in sorted(faults.items()) if fault]:
            raise AllocationError(f"device {broken[0]} is not cleaned up: {faults[broken[0]]}")
        if left:
            raise NotCleanedError(one for one in ids if self.name_of(one) in left)

    async def run(self) -> None:
        """Clean up each device that is released, until cancelled; after an edit once the run before ends."""
        async with self._turn, asyncio.TaskGroup() as group:
            group.create_task(self._follow_losses())
            group.create_task(self._try_again() if self._claims is None else self._adopt(self._claims))
            if self._holders is not None:
                group.create_task(self._follow_releases(self._holders))
                group.create_task(self._follow_faults(self._holders))

    async def _follow_releases(self, holders: Holders) -> None:
        await self._is_needed.wait()
        name = self._care.resource_name
        with holders.releases(name):
            await holders.wait(lambda: holders.ledger.is_known)
            # What was released before is not listed as a release.
            await self._clean_all(self._dirty - self.held_names())
            self.changed.set()
            tried, answered_at = frozenset[int](), holders.answered_at
            while True:
                # Another resource may find at any time what this one does not find any more.
                await holders.wait(
                    lambda tried=tried, at=answered_at: (  # type: ignore[misc]
                        not tried.issuperset(map(id, holders.ledger.pending_releases(name)))
                        or holders.answered_at != at
                    )
                )
                answered_at, pending = holders.answered_at, holders.ledger.pending_releases(name)
                if released := [one for one in pending if id(one) not in tried]:
                    await self._clean_released(holders, [one.device_id for one in released])
                elif pending:
                    await self._clean_all(self._dirty - self._faults.keys())
                self._take_cleaned(holders)
                self._note_away()
                tried = frozenset(map(id, holders.ledger.pending_releases(name)))
                if released or len(tried) < len(pending):
                    self.changed.set()

    def _take_cleaned(self, holders: Holders) -> None:
        """End the holds of released devices that need no clean-up any more."""
        pending = holders.ledger.pending_releases(self._care.resource_name)
        if cleaned := [one for one in pending if not self._is_to_clean(holders, one.device_id)]:
            holders.take(cleaned)

    def _is_to_clean(self, holders: Holders, device_id: str) -> bool:
        use = holders.ledger.use_of(self._care.resource_name, device_id)
        is_wanted = self._care.clean is not None or (use is not None and use.is_dirty)
        return is_wanted and self.name_of(device_id) in self._dirty

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
        extra = {
            "resource_name": self._care.resource_name,
            "devices": freed[:LOGGED_LIMIT],
            "count": len(freed),
        }
        logger.info("devices were released", extra=extra)
        names = set(map(self.name_of, freed))
        self._dirty |= names
        await self._clean_all(
            {self.name_of(device_id) for device_id in freed if self._is_to_clean(holders, device_id)}
        )

    async def clean(self, found: AnyFound) -> str | None:
        """Clean up a device that another resource had; return why that failed, or None if it is in use."""
        assert self._care.clean is not None
        if self._others_hold(found.name, ()) or self._is_in_use(found):
            return None
        return await self._care.clean(found.name, found)

    async def _adopt(self, claims: Claims) -> None:
        """Have the driver record what an older version has left, or what was lost. It tries again."""
        while True:
            self._woken.clear()
            is_adopted = not self._inherited
            if not is_adopted:
                try:
                    await self._adopt_inherited(claims)
                    is_adopted = True
                except KubeletError as error:
                    logger.warning(
                        "cannot record which devices are to be cleaned up; tried again",
                        extra={"resource_name": self._care.resource_name, "reason": str(error)},
                    )
            await within(None if is_adopted else self._retry_seconds, self._woken.wait())

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

    async def _clean_all(self, names: Iterable[str], ids: Collection[str] = ()) -> dict[str, str | None]:
        """Clean up devices at the same time. Held devices are left alone, unless their IDs are in `ids`.

        Return by name why that failed: "" for success, None for a device that is away or in use.
        """
        wanted = sorted(names)
        if not wanted:
            return {}
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(self._clean(name, ids)) for name in wanted}
        return {name: task.result() for name, task in tasks.items()}

    async def _clean(self, name: str, ids: Collection[str]) -> str | None:
        """Clean up a dirty device, one run at a time; return what `_clean_all` does."""
        async with self._locks[name], self._at_once:
            if name not in self._dirty or self._others_hold(name, ids):
                return ""
            if (fault := await self._cleaned(name)) is None:
                return None
            if fault:
                self._faults[name] = fault
                self._woken.set()
            else:
                self._dirty.discard(name)
                self._faults.pop(name, None)
                self._inherited.discard(name)
                self._forget_inherited()
                if self._holders is not None:
                    self._take_cleaned(self._holders)
            self.changed.set()
            return fault

    async def _cleaned(self, name: str) -> str | None:
        """Return why the clean-up failed; None if the device is absent or a container has its hardware."""
        is_gone = name not in self._present
        if self._clean_elsewhere is not None and (is_gone or (self._is_retired and name in self._faults)):
            use = self._use_of(name)
            may_be_left = is_gone and not self._is_left
            if use is not None and (fault := await self._clean_elsewhere(use, may_be_left)) is not None:
                return fault
        if self._care.clean is None:
            return None if self._is_absent(name) else ""
        found = self._found.get(name)
        if self._is_absent(name) or (found is not None and self._is_in_use(found)):
            return None
        return await self._care.clean(name, found)

    def _use_of(self, name: str) -> Use | None:
        """Return what a container had of a device until its release."""
        if (holders := self._holders) is None:
            found = (self._claimed_use(one) for one in self._releasing if self.name_of(one) == name)
            return next(found, None)
        pending = (one.device_id for one in holders.ledger.pending_releases(self._care.resource_name))
        uses = (
            holders.ledger.use_of(self._care.resource_name, one)
            for one in pending
            if self.name_of(one) == name
        )
        return next(uses, None)

    def _is_absent(self, name: str) -> bool:
        """Whether a device is not there: by its name, its node and its path the command may reach others."""
        if name in self._present:
            return False
        if (found := self._found.get(name)) is not None:
            return found.has_hardware
        use = self._use_of(name)
        return use is not None and bool(use.hardware or use.numbers)

    async def _follow_losses(self) -> None:
        while True:
            await self._has_lost.wait()
            self._has_lost.clear()
            assert self._care.lose is not None
            while self._lost:
                await self._care.lose(self._lost.pop(0))


async def clean_left(holders: Holders, clean_elsewhere: Callable[[Use, bool], Awaitable[str | None]]) -> None:
    """Have resources clean the hardware that ended processes have left dirty, until cancelled."""
    not_before: dict[tuple[str, str], float] = {}
    clock = asyncio.get_running_loop().time
    while True:
        answered_at, left = holders.answered_at, holders.pending_left()
        for released in left:
            key = released.resource_name, released.device_id
            use = holders.ledger.use_of(*key)
            if use is None or clock() < not_before.get(key, 0):
                continue
            fault = await clean_elsewhere(use, False)  # noqa: FBT003 -- a callback
            if fault == "":
                holders.take([released])
            elif fault:
                not_before[key] = clock() + FIRST_RETRY_SECONDS
        seen = left, answered_at
        await holders.wait(lambda seen=seen: seen != (holders.pending_left(), holders.answered_at))  # type: ignore[misc]


# ── the files of older versions ───────────────────────────────────────────────────────────────────


def dirty_names(path: Path) -> frozenset[str] | None:
    """Return the dirty devices that an older version has left; None, after a warning, for a damaged file."""
    remove_remains(path)
    try:
        names = json.loads(read_state(path))
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ValueError("it is not a list of names")
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        logger.warning(
            "cannot read the list of devices that are still to be cleaned up; each device that no "
            "container holds is cleaned up before it is allocated",
            extra={"path": str(path), "reason": str(error)},
        )
        return None
    return frozenset(names)
