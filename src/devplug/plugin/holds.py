"""The holds of plugins in code: what containers have of their devices, and the clean-up after that.

`docs/who-holds-a-device.md` says what it is for. A plugin gives a device its own nodes, in `Device`; by their
numbers the hardware is known, whatever its ID is.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace as copied
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.devices import Device, HealthState, kubelet_device
from devplug.errors import UnhealthyDeviceError
from devplug.holds.decide import Face
from devplug.holds.hardware import Use
from devplug.holds.held_devices import Care, HeldDevices, clean_left
from devplug.holds.holders import ANSWER_SECONDS, Holders, audit_holders
from devplug.holds.ledger_store import IN_CODE
from devplug.holds.ownership import HeldDevice, Ownership, held_by_pods, number_at
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.linux.boot import boot_id
from devplug.linux.inotify import until_present
from devplug.linux.notifier import Event
from devplug.plugin.contract import offers
from devplug.plugin.resource_lock import LOCK_FOLDER, ResourceLock
from devplug.plugin.snapshot import GONE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager
    from pathlib import Path

    from devplug.holds.hardware import Key
    from devplug.holds.ownership import Claims
    from devplug.linux.notifier import Notifier
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.drivers import Drivers
    from devplug.plugin.inventory import Inventory
    from devplug.status import DeviceStatus


CLEAN_UP: Final = "clean_up"


class ListedDevice(Struct, frozen=True):
    """A device as its plugin lists it, under the ID that the kubelet knows."""

    name: str
    device: Device
    """As the plugin has it: its own ID may be another one than `name` while a container has the hardware."""
    keys: tuple[Key, ...] = ()
    """The numbers of its own device nodes."""

    identity = None
    has_hardware = True

    @property
    def listed(self) -> Device:
        """The device under the ID that the kubelet knows."""
        return self.device if self.device.id == self.name else copied(self.device, id=self.name)


def _own_paths(device: Device) -> list[str]:
    return [node.host_path for node in device.device_nodes if not node.is_shared]


def _keys(device: Device) -> tuple[Key, ...]:
    return tuple([key for path in _own_paths(device) if (key := number_at(path))])


class NodeHolds:
    """The holds of all plugins of a program; lives as long as they are served.

    `folder` has the plugins' sockets. `pod_resources` is the kubelet's socket that says who holds what; where
    that never answers, a device is held until the kubelet allocates it again. `repeat_list` has the kubelet
    write its checkpoint. `notifier` is notified when holders change, and notifies of other changes.
    """

    def __init__(
        self,
        folder: Path,
        pod_resources: Path,
        drivers: Drivers,
        repeat_list: Callable[[], Awaitable[None]],
        notifier: Notifier,
    ) -> None:
        self.folder = folder / LOCK_FOLDER
        self._drivers = drivers
        self._notifier = notifier
        self._socket = pod_resources
        self.holders = Holders(
            pod_resources,
            self.folder,
            checkpoint=folder / CHECKPOINT_NAME,
            rewrite_checkpoint=repeat_list,
            clock=asyncio.get_running_loop().time,
            is_served=lambda name: not ResourceLock(folder, name).is_free(),
            other_claims=drivers.others,
            owner=IN_CODE,
            on_change=notifier.notify,
        )
        self.boot = boot_id()
        self.ownership: Ownership[ListedDevice] = Ownership(
            number_at,
            None,
            self._held,
            self._revision,
            self.boot,
        )
        self._holdings: dict[str, Holding] = {}

    def _held(self) -> Iterator[HeldDevice]:
        yield from held_by_pods(self.holders.held())
        yield from self._drivers.held()

    def _revision(self) -> object:
        return self.holders.revision, self._drivers.claims_revision

    def add(self, plugin: DevicePlugin, claims: Claims | None, dra: str) -> Holding:
        """Return the holds of one more plugin; `claims` and its driver `dra` are for a plugin for claims."""
        name = plugin.resource_name
        if claims is None:
            was_killed = ResourceLock(self.folder.parent, name).is_left()
            self.holders.own(name, is_waiting=True, was_killed=was_killed)
        self._holdings[name] = Holding(plugin, self, claims, dra)
        self.ownership.reorder(self._holdings)
        return self._holdings[name]

    def remove(self, resource_name: str) -> None:
        """Leave the holds of a plugin that is served no more to the next process."""
        if holding := self._holdings.pop(resource_name, None):
            self.ownership.leave(holding.face)
            self.holders.disown(resource_name)

    async def run(self) -> None:
        """Ask PodResources for the holders of devices, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.holders.run())
            group.create_task(self._decide())
            group.create_task(self.ownership.follow_paths())
            group.create_task(audit_holders(self.holders, lambda: self._holdings))
            group.create_task(clean_left(self.holders, self.clean_elsewhere))
            # What the process before has given out may be free by now.
            await until_present(self._socket)
            with self.holders.needed():
                await self.holders.wait(lambda: self.holders.ledger.is_known)

    async def clean_elsewhere(self, use: Use, may_be_left: bool) -> str | None:  # noqa: FBT001 -- a callback
        """Have hardware cleaned by the plugin that lists it now; see `HeldDevices`."""
        found = [(holding, one) for holding in self._holdings.values() for one in holding.found_of(use)]
        for holding, one in found:
            if holding.cleans:
                return await holding.held.clean(one)
        return "" if found and may_be_left else None

    async def _decide(self) -> None:
        """Decide again which plugin offers which hardware, after each change."""
        while True:
            change = self._notifier.next
            self.ownership.refresh_soon()
            await change.wait()


class Holding:
    """The holds of one plugin's devices; lives as long as the resource is served."""

    def __init__(
        self,
        plugin: DevicePlugin,
        node: NodeHolds,
        claims: Claims | None,
        driver: str,
    ) -> None:
        self._plugin = plugin
        self._node = node
        self._name = plugin.resource_name
        self.face = Face(self._name, driver)
        self._claims = claims
        self._holders = node.holders if claims is None else None
        self._changed = Event()
        self._listed: dict[str, ListedDevice] = {}
        """The devices that are offered, by the ID that the kubelet knows."""
        self._author_list: Sequence[Device] = ()
        self._found: Sequence[ListedDevice] = ()
        """The devices of `_author_list`: to make 100,000 of them takes half a second."""
        self._last: dict[str, Device] = {}
        """The last list, by ID."""
        self.clean_up: Callable[[Device], Awaitable[str]] | None = None
        """Runs the plugin's `clean_up` for a device; returns why that failed, or "". Its service sets it."""
        self.held: HeldDevices[ListedDevice] = HeldDevices(
            self._care(),
            self._holders,
            claims=claims,
            clean_elsewhere=node.clean_elsewhere,
            is_in_use=partial(node.ownership.is_in_use, self.face),
        )

    def _care(self) -> Care[ListedDevice]:
        return Care(self._name, self._clean if self.cleans else None, key=CLEAN_UP)

    @property
    def seconds(self) -> float:
        """How long `before_giving` may take."""
        return ANSWER_SECONDS + (self._plugin.clean_up_timeout_seconds if self.cleans else 0)

    @property
    def cleans(self) -> bool:
        """Whether the plugin has a `clean_up`."""
        return offers(self._plugin, CLEAN_UP)

    def replace(self, plugin: DevicePlugin) -> None:
        """Follow another plugin of the resource from now on."""
        self._plugin = plugin
        self.held.set_care(self._care())

    async def run(self, inventory: Inventory) -> None:
        """Clean up devices that are released, and have the list made again when it changes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.held.run())
            group.create_task(self._follow(self.held.changed, inventory))
            group.create_task(self._follow(self._changed, inventory))

    async def _follow(self, changed: Event, inventory: Inventory) -> None:
        while True:
            await changed.wait()
            changed.clear()
            await inventory.refresh()

    # ── what is listed ──

    def offered(self, listed: Sequence[Device]) -> list[Device]:
        """Return the devices to advertise of those that the plugin lists.

        Hardware that a container has keeps the ID that the container knows it by, and is offered once.
        """
        # A path may lead to another device number now, so only a list without nodes is as before.
        if listed is not self._author_list or any(one.keys for one in self._found):
            self._author_list = listed
            self._found = [ListedDevice(one.id, one, _keys(one)) for one in listed]
        outcome = self._node.ownership.look(self.face, self._found, on_change=self._changed.set)
        self._listed = {one.name: one for one in outcome.offered}
        held_ids = self.held.held_ids() if self._holders is not None else frozenset()
        gone = held_ids - self._listed.keys()
        self.held.follow(outcome.offered, is_any_gone=bool(gone))
        devices = [one.listed for one in outcome.offered]
        if self.held.is_any_unhealthy:
            devices = [self._with_health(one) for one in outcome.offered]
        left = [(self._last.get(one) or kubelet_device(one)).with_health(GONE) for one in sorted(gone)]
        self._last = {one.id: one for one in (*devices, *left)}
        return [*devices, *left]

    def _with_health(self, one: ListedDevice) -> Device:
        device, health = one.listed, self.held.health_of(one.name)
        is_worse = health.state is HealthState.UNHEALTHY and device.health.state is not HealthState.UNHEALTHY
        return device.with_health(health) if is_worse else device

    def found_of(self, use: Use) -> list[ListedDevice]:
        """Return the devices of the plugin's list that are the hardware of a use."""
        numbers = frozenset(use.numbers if use.boot == self._node.boot else ())
        return [one for one in self._found if not numbers.isdisjoint(one.keys)]

    def of_author(self, devices: Iterable[Device]) -> list[Device]:
        """Return devices as the plugin lists them: it does not know the IDs of before."""
        found = [(one, self._listed.get(one.id)) for one in devices]
        return [one if mine is None or mine.device.id == one.id else mine.device for one, mine in found]

    # ── giving out ──

    def allocating(self) -> AbstractContextManager[None]:
        """Return a block in which an Allocate is answered."""
        return nullcontext() if self._holders is None else self._holders.allocating()

    def check_free(self, devices: Sequence[Device]) -> None:
        """Raise `UnhealthyDeviceError` if a container has the hardware of one of these in another way."""
        names = {one.id for one in devices}
        for one in devices:
            now = self._now(one)
            hold = self._node.ownership.conflict(self.face, now, names, is_shared=False)
            if hold is not None:
                raise UnhealthyDeviceError(f"held as {hold}", one)

    def _now(self, device: Device) -> ListedDevice:
        listed = self._listed.get(device.id) or ListedDevice(device.id, device)
        return replace(listed, keys=_keys(device))

    async def give(self, devices: Sequence[Device]) -> None:
        """Record that a container has these devices. Call it before the kubelet has the answer.

        Raises `UnhealthyDeviceError` if another container has the hardware of one of them.
        """
        async with self._node.holders.alone(self._name):
            self.check_free(devices)
            given = [(self._now(one), self._use(one)) for one in devices]
            self.held.give(devices, {found.name: use for found, use in given})
            self._node.ownership.note_given(self.face, given)

    def _use(self, device: Device) -> Use:
        paths = tuple(_own_paths(device))
        use = Use(device.id, None, _keys(device), paths, self._node.boot, is_dirty=self.cleans)
        return self._node.ownership.own(self.face, use)

    def uses(self, device_ids: Iterable[str]) -> Mapping[str, Use]:
        """Return what containers get of devices, by ID, of those that are there."""
        return {one: self._use(self._listed[one].listed) for one in device_ids if one in self._listed}

    async def doubtful(self, device_ids: AbstractSet[str]) -> frozenset[str]:
        """Return the available IDs that a container may still have."""
        held = device_ids & self.held.held_ids()
        if self._holders is None or not held:
            return frozenset()
        return await self._holders.doubtful(self._name, held)

    async def _clean(self, name: str, found: ListedDevice | None) -> str:
        assert self.clean_up is not None
        return await self.clean_up(kubelet_device(name) if found is None else found.device)

    # ── for people ──

    def described(self, devices: tuple[DeviceStatus, ...]) -> tuple[DeviceStatus, ...]:
        """Return the devices' statuses with the pods that hold them."""
        if (holders := self._holders) is None:
            return devices
        return tuple(
            replace(one, holders=holders.ledger.holders_of(self._name, one.id)) if one.is_held else one
            for one in devices
        )
