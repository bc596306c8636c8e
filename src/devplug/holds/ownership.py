"""The owner of the decision which resource offers which hardware, for all resources of one process.

`decide` decides; this gathers what it has to know, and wakes the resources for which a decision changes
something. It is for what only the machine shows: a link and its node, a USB device and its serial port,
hardware that a container holds.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import defaultdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from devplug.holds.decide import Decision, Face, Findings, Found, Hold, Listing, decide
from devplug.holds.hardware import MEMORY_MAJOR, REPLICA_MARK, Use, number_key, wholes
from devplug.holds.names import NamesRegister
from devplug.linux.inotify import shared_watcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.holds.hardware import Hardware, Key
    from devplug.holds.held_device import Remembered


class FoundDevice(Protocol):
    """A device that is present: one that a source of the daemon finds, or that a plugin in code lists.

    It is a frozen `Struct`, of which `replace` makes one with another name.
    """

    @property
    def name(self) -> str:
        """Its name by its finder: a device ID, or what the IDs of its replicas begin with."""

    @property
    def identity(self) -> Hardware | None:
        """The identity of its hardware; None if that is not known."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Its folder below /sys/devices and its device numbers."""


AnyFound = TypeVar("AnyFound", bound=FoundDevice)


class HeldDevice(Struct, frozen=True):
    """A device that a container may hold, or that has to be cleaned before another one gets it."""

    resource_name: str
    device_id: str
    use: Use | None = None
    holder: str = ""
    """Who has it, for people; empty where that is not known."""
    is_over: bool = False
    """Whether no container has it any more, and it only has to be cleaned."""
    driver: str = ""
    """The DRA driver by which a claim has it; empty for a device plugin."""


async def _adopt_none(_: Mapping[str, Use]) -> None:
    """Record nothing: there is no driver."""


class Claims(Struct, frozen=True):
    """The record of a DRA driver about one resource: what claims use, and what is to be cleaned up."""

    held_ids: Callable[[], frozenset[str]] = frozenset
    """Returns the IDs of devices in use."""
    use_of: Callable[[str], Use | None] = lambda _: None
    """Returns what containers have, or had until it is to be cleaned up, of a device."""
    to_clean: Callable[[], frozenset[str]] = frozenset
    """Returns the IDs of devices that no claim uses any more, and that are to be cleaned up."""
    adopt: Callable[[Mapping[str, Use]], Awaitable[None]] = _adopt_none
    """Records devices to clean up, by ID, whose uses the driver has not recorded."""
    are_records_lost: Callable[[], bool] = lambda: False
    """Whether it does not know any more what is to be cleaned up."""
    prepared_ids: Callable[[], frozenset[str]] = frozenset
    """Returns those of `held_ids` that a container may have: a claim is prepared."""


def held_by_pods(held: Iterable[tuple[str, str, Remembered, bool]]) -> Iterator[HeldDevice]:
    """Yield the devices that `Holders.held` yields."""
    for resource_name, device_id, hold, is_over in held:
        pods = sorted({f"{one.namespace}/{one.pod}" for one in hold.holders})
        yield HeldDevice(resource_name, device_id, hold.use, ", ".join(pods), is_over)


def number_at(path: str) -> Key | None:
    """Return the key of the device number to which a path leads, links followed; None if to no hardware."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- within each Allocate, a Path costs as much again
    except OSError:
        return None
    is_block = stat.S_ISBLK(status.st_mode)
    number = os.major(status.st_rdev), os.minor(status.st_rdev)
    if not is_block and (not stat.S_ISCHR(status.st_mode) or number[0] == MEMORY_MAJOR):
        return None
    return number_key(number, is_block=is_block)


def _folders_of(path: str) -> tuple[str, str]:
    """Return the folders of a path, and of what it leads to."""
    return str(Path(path).parent), str(Path(os.path.realpath(path)).parent)


class _Resource(Struct, Generic[AnyFound]):
    """What one resource has found last."""

    looked: Sequence[AnyFound] = ()
    names: frozenset[str] = frozenset()
    """The names of the source for them."""
    listing: Listing | None = None
    on_change: Callable[[], None] = lambda: None


class Outcome(Struct, Generic[AnyFound], frozen=True):
    """What one resource offers of what it has found."""

    offered: tuple[AnyFound, ...]
    """Under their names: a device that a container holds has the name under which it is held."""
    withheld: Mapping[str, str]
    """By name: why a device is not offered."""


def _listing(face: Face, looked: Iterable[FoundDevice], *, is_shared: bool) -> Listing:
    found = tuple([Found(one.name, one.identity, one.keys) for one in looked])
    return Listing(face.resource_name, found, is_shared, face.driver)


def _outcome(decision: Decision, face: Face, looked: Sequence[AnyFound]) -> Outcome[AnyFound]:
    """Return what a face offers of what its resource has found."""
    names, withheld = decision.names_of(face), decision.withheld_of(face)
    if not names and not withheld:
        return Outcome(tuple(looked), {})
    offered = [
        replace(one, name=names[one.name]) if one.name in names else one  # type: ignore[type-var]
        for one in looked
        if one.name not in withheld
    ]
    return Outcome(
        tuple(sorted(offered, key=lambda one: one.name)),
        {name: one.reason for name, one in withheld.items()},
    )


class Whereabouts(Struct, frozen=True):
    """What is known of a device that is not offered by a name."""

    reason: str = ""
    """Why it is not; empty if that is not known."""
    offered_as: tuple[str, str] | None = None
    """The resource name, and the name of the device in it, under which the hardware is found now."""


class Ownership(Generic[AnyFound]):
    """Which resource offers which hardware; lives as long as its process.

    `number_at` returns the key of the device number to which a host path leads now; None if it leads to
    none, and `hardware_at` the hardware there. `held` yields what is held now, of all resources and by
    claims, and `revision` returns a value that changes with it.
    """

    def __init__(
        self,
        number_at: Callable[[str], Key | None],
        register: NamesRegister | None = None,
        held: Callable[[], Iterable[HeldDevice]] = lambda: (),
        revision: Callable[[], object] = lambda: None,
        boot: str = "",
        hardware_at: Callable[[str], Hardware | None] = lambda _: None,
    ) -> None:
        self.names = register or NamesRegister()
        self.boot = boot
        self._number_at = number_at
        self._hardware_at = hardware_at
        self._held = held
        self._revision = revision
        self._ranks: dict[str, int] = {}
        self._resources: dict[Face, _Resource[AnyFound]] = {}
        self.incomplete: dict[Face, set[str]] = {}
        """By face: the held IDs of which an older version has recorded nothing else."""
        self._findings = Findings()
        self._found_at: int | None = None
        """The version of what `_findings` was made of."""
        self._decision = Decision()
        self._decided_at: object = None
        """The state of everything that the decision was made of."""
        self._version = 0
        self._is_due = False
        self._leads: dict[str, Key | None] = {}
        """To which device number each host path of a container led when the decision was made."""
        self._has_paths = asyncio.Event()
        """Set when `_leads` may have other paths, or one may lead elsewhere."""

    # ── what resources say ──

    def reorder(self, resource_names: Iterable[str]) -> None:
        """Record the order of the resources in the configuration; a resource that is not in it comes last."""
        self._ranks = {name: rank for rank, name in enumerate(resource_names)}
        self._version += 1
        self.refresh()

    def look(
        self,
        face: Face,
        looked: Sequence[AnyFound],
        *,
        is_shared: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> Outcome[AnyFound]:
        """Record what a resource has found; return what it offers of that.

        `on_change` is called when that becomes something else without a look of the resource.
        """
        resource = self._resources.setdefault(face, _Resource())
        resource.on_change = on_change
        listing = resource.listing
        if listing is None or looked != resource.looked or is_shared != listing.is_shared:
            resource.looked, resource.listing = looked, _listing(face, looked, is_shared=is_shared)
            resource.names = frozenset([one.name for one in looked])
            self._version += 1
        return _outcome(self._current(face), face, looked)

    def foresee(self, face: Face, looked: Sequence[AnyFound], *, is_shared: bool) -> Outcome[AnyFound]:
        """Return what `look` would return, and change nothing: for an edit that is not in effect."""
        mine = _listing(face, looked, is_shared=is_shared)
        decision = decide(Findings(self._listings({face: mine})), self._holds(), self.names.twins)
        return _outcome(decision, face, looked)

    def leave(self, face: Face) -> None:
        """Forget what a resource has found; a second call does nothing."""
        if self._resources.pop(face, None):
            self._version += 1
            self.refresh()

    # ── decisions ──

    def refresh_soon(self) -> None:
        """Decide again in the next turn of the loop, if something has changed by then."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._refresh_now)

    def _refresh_now(self) -> None:
        self._is_due = False
        self.refresh()

    async def follow_paths(self, inside: Callable[[str], str] = str) -> None:
        """Decide again when a path of a container leads elsewhere, until cancelled.

        `inside` returns where a host path is for this process. A container that restarts opens what the
        paths of its answer lead to by then (reference of the kubelet, 4.9).
        """
        folders_of: dict[str, tuple[str, str]] = {}
        armed: set[str] = set()
        has_moved = False

        def look() -> None:
            nonlocal has_moved
            has_moved = True
            self._has_paths.set()

        async with shared_watcher() as watcher:
            with watcher.subscribe(look) as subscription:
                while True:
                    await self._has_paths.wait()
                    self._has_paths.clear()
                    for path in folders_of.keys() - self._leads.keys():
                        del folders_of[path]
                    for path in self._leads.keys() - folders_of.keys():
                        folders_of[path] = _folders_of(inside(path))
                    folders = {folder for pair in folders_of.values() for folder in pair}
                    if folders != armed:
                        armed, has_moved = folders, True
                        subscription.arm([f"{folder}/*" for folder in sorted(folders)])
                    if has_moved:
                        has_moved = False
                        folders_of.clear()  # a link may lead to another folder now
                        self._has_paths.set()
                        self._look_at_paths()

    def _look_at_paths(self) -> None:
        leads = {path: self._number_at(path) for path in self._leads}
        if leads != self._leads:
            self._version += 1
            self.refresh()

    def refresh(self) -> None:
        """Decide again, if something has changed."""
        self._current()

    def conflict(
        self, face: Face, found: AnyFound, names: Collection[str], *, is_shared: bool
    ) -> Hold | None:
        """Return another hold of a device's hardware; None if a container may have the device.

        The caller allocates the resource's devices with these names, and has checked that no pod holds them.
        """
        decision = self._current()
        return decision.conflict(face, names, self._own_keys(face, found.keys), is_shared=is_shared)

    def is_in_use(self, face: Face, found: AnyFound) -> bool:
        """Whether a container has the hardware of a device that was released, in another way."""
        decision = self._current()
        return decision.is_in_use(face, found.name, self._own_keys(face, found.keys))

    def absent(self, face: Face) -> frozenset[str]:
        """Return the names of a resource's held devices whose hardware nothing shows to be present."""
        unfound = [one for one in self._current().unfound if one.face == face]
        return frozenset(
            one.name
            for one in unfound
            if one.use is not None and (one.use.hardware or one.use.numbers) and not self._leads_to_it(one)
        )

    def elsewhere(self, face: Face) -> dict[str, str]:
        """Return a resource's held devices that are present and not among what it offers, by name.

        An edit may have narrowed its selector: "". Else it says why a released device cannot be allocated.
        """
        decision = self._current()
        unfound = [one for one in decision.unfound if one.face == face]
        found = {name for other, name in decision.elsewhere if other == face}
        found.update(one.name for one in unfound if self._leads_to_it(one))
        withheld = decision.withheld_of(face)
        return dict.fromkeys(found, "") | {
            one.listed_as: one.reason for one in withheld.values() if one.listed_as
        }

    def whereabouts(self, is_meant: Callable[[str, str], bool]) -> Whereabouts:
        """Return what is known of a device that is not offered by a name.

        `is_meant` returns whether it has this name in a resource.
        """
        decision, holds = self._current(), self._holds()
        reasons = [
            (face.resource_name, name, one.reason)
            for face, withheld in decision.withheld.items()
            for name, one in withheld.items()
        ]
        # Held hardware keeps its name: the device is offered by its new name once it is free.
        reasons += [
            (face.resource_name, name, f"held as {hold}")
            for face, names in decision.names.items()
            for name, held_name in names.items()
            for hold in holds
            if (hold.face, hold.name) == (face, held_name)
        ]
        reasons += [(hold.resource_name, hold.name, f"held as {hold}") for hold in holds]
        for resource_name, name, reason in reasons:
            if is_meant(resource_name, name):
                return Whereabouts(reason)
        known = (self.names.hardware_of(*one) for one in self.names.known() if is_meant(*one))
        hardware = next(known, None)
        return Whereabouts() if hardware is None else self._whereabouts_of(hardware, holds)

    def _whereabouts_of(self, hardware: Hardware, holds: Iterable[Hold]) -> Whereabouts:
        """Return what hardware is held or offered as."""
        twins = self.names.twins
        for hold in holds:
            if hold.use and hold.use.hardware and hardware.is_same(hold.use.hardware, twins):
                return Whereabouts(f"held as {hold}")
        for listing in self._listings():
            for found in listing.found:
                if found.hardware is not None and hardware.is_same(found.hardware, twins):
                    name = listing.resource_name, found.name
                    return Whereabouts(f"offered as {' '.join(name)} now", name)
        return Whereabouts()

    def _leads_to_it(self, hold: Hold) -> bool:
        """Whether a path of a container still leads to the device that it got, and not to another one."""
        if hold.use is None or not hold.leads_to:
            return False
        if (hardware := hold.use.hardware) is None:
            return True  # it may be: nothing tells
        for path in hold.use.paths:
            if (key := self._number_at(path)) is None:
                continue
            there = self._hardware_at(path)
            if key in hold.use.numbers if there is None else hardware.is_same(there, self.names.twins):
                return True
        return False

    def note_given(self, face: Face, given: Iterable[tuple[AnyFound, Use]]) -> None:
        """Take over holds that were recorded just now: without a new decision, if that changes no offer."""
        name, driver = face
        holds = [
            Hold(name, found.name, use, self._own_keys(face, found.keys), driver=driver)
            for found, use in given
        ]
        for hold in holds:
            for path in hold.use.paths if hold.use else ():
                self._lead(path)
            self._decision.add(hold)
        names = self._resources[face].names if face in self._resources else frozenset()
        if any(hold.name not in names or self._findings.is_found_elsewhere(hold) for hold in holds):
            self.refresh_soon()
        else:
            self._decided_at = self._state()

    def own(self, face: Face, use: Use) -> Use:
        """Return a use without the device numbers, and their paths, that several devices of a resource have.

        They do not show which of the devices a container has, as a control node does not.
        """
        common = self._findings.common.get(face)
        if not common:
            return use
        paths = tuple(path for path in use.paths if self._number_at(path) not in common)
        return replace(use, numbers=self._own_keys(face, use.numbers), paths=paths)

    def _own_keys(self, face: Face, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        common = self._findings.common.get(face)
        return tuple(key for key in keys if key not in common) if common else keys

    def _state(self) -> object:
        return self._version, self._revision()

    def _current(self, caller: Face | None = None) -> Decision:
        """Return the decision on what is known now, and wake the resources for which it changes something."""
        state = self._state()
        if state != self._decided_at:
            if self._found_at != self._version:
                self._found_at, self._findings = self._version, Findings(self._listings())
                self._note_twins(self._findings.listings)
            before, self._decision = self._decision, decide(self._findings, self._holds(), self.names.twins)
            self._decided_at = state
            for face in sorted(self._resources, key=self._rank):
                if face != caller and self._decision.differs(before, face):
                    self._resources[face].on_change()
        return self._decision

    def _rank(self, face: Face) -> tuple[int, Face]:
        return self._ranks.get(face.resource_name, len(self._ranks)), face

    def _listings(self, others: Mapping[Face, Listing] = MappingProxyType({})) -> list[Listing]:
        """Return what each resource has found, in the order of the configuration; some are in `others`."""
        found = {face: one.listing for face, one in self._resources.items()} | dict(others)
        return [one for face in sorted(found, key=self._rank) if (one := found[face]) is not None]

    def _holds(self) -> list[Hold]:
        self.incomplete, self._leads = {}, {}
        return [self._hold(one) for one in self._held()]

    def _hold(self, held: HeldDevice) -> Hold:
        face = Face(held.resource_name, held.driver)
        resource = self._resources.get(face)
        use, (name, driver) = held.use, face
        if use is None:
            self.incomplete.setdefault(face, set()).add(held.device_id)
            found_name = self._name_of(held, resource)
            if resource is not None and found_name not in resource.names:
                hardware = self.names.hardware_of(name, found_name)
                use = None if hardware is None else Use(found_name, hardware)
            return Hold(name, found_name, use, holder=held.holder, is_over=held.is_over, driver=driver)
        leads_to = self._own_keys(face, tuple([key for path in use.paths if (key := self._lead(path))]))
        use = self.own(face, use)
        if use.boot != self.boot:
            # After a boot the kernel gives the numbers to other devices.
            use = replace(use, numbers=())
        return Hold(name, use.name, use, leads_to, held.holder, held.is_over, driver)

    def _lead(self, path: str) -> Key | None:
        key = self._leads[path] = self._number_at(path)
        self._has_paths.set()
        return key

    def _name_of(self, held: HeldDevice, resource: _Resource[AnyFound] | None) -> str:
        """Return the name of a held device that has nothing but its ID: that of a replica has more."""
        name = held.device_id.rpartition(REPLICA_MARK)[0]
        is_found = resource is not None and name in resource.names
        is_replica = is_found or (name and self.names.hardware_of(held.resource_name, name))
        return name if is_replica else held.device_id

    def _note_twins(self, listings: Iterable[Listing]) -> None:
        places: dict[str, set[str]] = defaultdict(set)
        for listing in listings:
            for one in listing.found:
                if one.hardware is not None and one.hardware.serial:
                    places[one.hardware.serial].add(one.hardware.place)
        twins = (serial for serial, of_serial in places.items() if len(of_serial) > 1)
        self.names.note_twins(whole for serial in twins for whole in wholes(serial))
