"""The device plugin of one configured resource: it lists what its source finds, and answers by `expose`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.cdi.spec import kind_of
from devplug.daemon.cdi.resource_spec import ResourceCdiSpec, kernel_nodes
from devplug.daemon.config.templates import Missing
from devplug.daemon.container_response import (
    Responses,
    container_response,
    device_ids,
    found_name,
    owner_of,
    share_of,
    use_of,
    with_room_for_replicas,
)
from devplug.daemon.context import DaemonContext
from devplug.daemon.device_list import REMOVED, Answered, DeviceList, ScanResult, combined, next_drop_at
from devplug.daemon.path_check import check_shares, faulty_node, node_fault
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.hardware import numa_distances
from devplug.daemon.sources.kinds import source_of
from devplug.devices import Device, Health, HealthState
from devplug.errors import (
    AllocationError,
    ForbiddenPathError,
    InvalidRequestError,
    PluginError,
    UnhealthyDeviceError,
    one_line,
)
from devplug.holds.decide import BELONGS, Face
from devplug.holds.held_devices import Care, HeldDevices
from devplug.holds.holders import ANSWER_SECONDS
from devplug.linux.notifier import Event, within
from devplug.plugin.contract import DevicePlugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from devplug.cdi.spec import CdiOwner
    from devplug.daemon.commands import CommandResult
    from devplug.daemon.config.types import Resource, TimedCommand
    from devplug.daemon.container_response import ContainerShares, Share
    from devplug.daemon.health import Prober
    from devplug.daemon.preference import Candidate
    from devplug.devices import ContainerResponse
    from devplug.errors import HasId
    from devplug.holds.hardware import Use

logger = logging.getLogger(__name__)

ALLOCATE_SECONDS: Final = 5.0

LOOKED_AT_AGAIN: Final = frozenset({"usb", "pci", "sysfs", "net"})
"""Kinds whose IDs name the hardware: a changed node number means that the same device was plugged in again.
At a plain path it may be any device; and a scan of NVIDIA's may wait for the driver."""

REFUSAL_SECONDS: Final = 0.5
"""How often a refused device is checked again, until a list has it as Unhealthy."""

PATH_REFUSAL_SECONDS: Final = 10.0
"""How often a device is checked again that was refused because of who may change its path."""


class Kept(Struct):
    """What a resource keeps over its edits; lives as long as the resource is served."""

    current: ConfiguredPlugin
    """The plugin that answers."""
    cdi_spec: ResourceCdiSpec | None = None
    """The owner of the resource's CDI file, if it has one."""
    answered: Mapping[str, Answered] = field(default_factory=dict)
    warned_numa_nodes: set[int | None] = field(default_factory=set)


class ConfiguredPlugin(DevicePlugin):
    """The device plugin of one resource in one configuration; lives until an edit changes the resource.

    `before` is the plugin of the same resource before an edit. This one takes its place once it has listed
    its devices; until then it changes nothing outside.
    """

    def __init__(
        self,
        resource: Resource,
        context: DaemonContext | None = None,
        before: ConfiguredPlugin | None = None,
        driver: str = "",
    ) -> None:
        self.resource = resource
        self.face = face = Face(resource.name, driver)
        self.resource_name = resource.name
        self.context = context or DaemonContext()
        self.listing = DeviceList(
            resource,
            is_claimed=resource.serve == "dra",
            name_of=lambda one: self.held.name_of(one),  # noqa: PLW0108 -- it is made below
        )
        self.held: HeldDevices[HostDevice] = HeldDevices(
            care_of(resource),
            self.context.holders_of(resource),
            claims=self.context.claims_of(face) if resource.serve == "dra" else None,
            releasing=self.context.releasing.setdefault(face, set()),
            given=self.context.given.setdefault(face, {}),
            clean_elsewhere=self.context.clean_elsewhere,
            is_in_use=partial(self.context.ownership.is_in_use, face),
            dirty_file=self.context.dirty_file(resource.name),
            hardware_of=partial(self.context.ownership.names.hardware_of, resource.name),
            before=before.held if before else None,
        )
        self.kept: Kept = before.kept if before else Kept(self)
        self.is_over = Event()
        """Set when the resource was retired, and nobody holds a device of it any more."""
        self.is_retired = False
        self.looked: tuple[HostDevice, ...] | None = None
        """What the source sees; None before its first look."""
        self.is_waiting = False
        """Whether there was no device yet, so that nothing is advertised: `whenNone: wait`."""
        self._host = self.context.host
        self._source = source_of(
            resource, self.context.host_for(resource.name), self.context.ownership.names.of(resource.name)
        )
        self._prober: Prober | None = None
        if resource.health:
            from devplug.daemon.health import Prober  # here: most resources have no rules

            self._prober = Prober(resource.health, self._host, resource_name=resource.name)
        self._open_cdi_spec()
        self._responses = Responses(resource)
        self.allocate_timeout_seconds = ALLOCATE_SECONDS + ANSWER_SECONDS
        if resource.on_release is not None:
            self.allocate_timeout_seconds += resource.on_release.exec.timeout_seconds
        self._has_begun = Event()
        if before is None:
            self._has_begun.set()
        self._changed = Event()
        self._has_new = Event()
        self._checked_devices: frozenset[HostDevice] = frozenset()
        self.withheld: Mapping[str, str] = before.withheld if before else {}
        """By name: why a device that the source has found is not offered."""
        self._failure: Exception | None = None
        self._refused: dict[str, str] = {}
        """Names that were refused and could not be given out since, with the reason."""
        self._was_refused = Event()
        self._is_refused_anew = Event()
        self._refused_by_path: set[str] = set()
        self._examined: dict[str, HostDevice] = {}
        """The devices as they were when their paths were checked, by name."""
        self._is_list_due = False
        """Whether the next list counts although it may be equal to the last one: it ends what is marked."""
        self._calls = 0
        self._notified_of: tuple[object, ...] = ()

    @property
    def answered(self) -> Mapping[str, Answered]:
        """The answer that each held device's container got, by device ID, since the daemon began; replaced
        with each change.
        """
        return self.kept.answered

    @property
    def _is_current(self) -> bool:
        """Whether this is the plugin that answers, and not one that waits, or was replaced."""
        return self.kept.current is self

    def _open_cdi_spec(self) -> None:
        """Find the owner of the resource's CDI file, if it has one or an earlier daemon has left one."""
        cdi = self.context.cdi
        if (
            cdi is not None
            and self.kept.cdi_spec is None
            and self.resource.serve != "dra"
            and (self.resource.expose.strategy == "cdi" or cdi.has_file(kind_of(self.resource_name)))
        ):
            self.kept.cdi_spec = ResourceCdiSpec(self.resource, cdi, self._host)

    def _begin(self) -> None:
        """Take the place of the plugin before, once."""
        if not self._has_begun.is_set():
            self.kept.current = self
            if self.kept.cdi_spec is not None:
                self.kept.cdi_spec.resource = self.resource
            self._has_begun.set()
            self.look_again()

    def give_way(self) -> None:
        """Leave the resource to a process that waits to serve it, if the file no longer has it."""
        if self.is_retired:
            self.is_over.set()

    def retire(self, *, is_left: bool = False) -> None:
        """Refuse every Allocate from now on, as the file no longer has this resource, until `is_over`.

        `is_left`: an ended process has left it.
        """
        self.is_retired = True
        self.context.ownership.look(self.face, (), on_change=self.look_again)
        self.held.retire(is_left=is_left)
        self._changed.set()

    # ── what is there ─────────────────────────────────────────────────────────────────────────────

    async def devices(self) -> AsyncGenerator[Sequence[Device], None]:
        """Yield the devices at once and whenever one of them changes."""
        works: list[Callable[[], Awaitable[None]]] = [
            self._follow_source,
            self._look_at_refused,
            partial(self._once_begun, self.held.run),
            partial(self._once_begun, partial(self._pass_on, self.held.changed)),
        ]
        if (prober := self._prober) is not None:
            works += [partial(self._check_new, prober), prober.run, partial(self._pass_on, prober.changed)]
        self.looked = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work(work)) for work in works]
            try:
                async for listed in self._lists():
                    yield listed
                    self._begin()  # whoever asks for the next list has taken this one
            except GeneratorExit:
                # A task group would make an error of it.
                self._failure = None
            finally:
                for task in tasks:
                    task.cancel()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task as long as `devices`; its error is raised there, and not in an `ExceptionGroup`."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- raised again in `devices`
            self._failure = error
            self._changed.set()

    async def _lists(self) -> AsyncGenerator[Sequence[Device], None]:
        last: Sequence[Device] | None = None
        while self._failure is None:
            self._changed.clear()
            try:
                listed = self._listed()
            except PluginError as error:
                self._failure = error
                return
            if listed is not None and (listed != last or self._is_list_due):
                is_empty = not listed and last is None and not self.is_retired
                # A device that is not offered yet is one.
                if not is_empty or self.resource.when_none == "empty" or self.withheld:
                    last, self.is_waiting = listed, False
                    self._is_list_due = False
                    yield listed
                elif self.resource.when_none == "fail":
                    text = f"{self.resource_name}: no device was found, and whenNone says fail"
                    self._failure = PluginError(text)
                    return
                else:
                    self.is_waiting = True
            self._notify_change()
            if listed is not None and self._is_current and self.kept.cdi_spec is not None:
                await self.kept.cdi_spec.refresh(self.listing.present(), self.held.certainly_held_names())
            await self._next_change()

    def _notify_change(self) -> None:
        """Call `on_change` if something changed that is in no list: nodes, attributes, `is_waiting`."""
        now = self.listing.revision, self.is_waiting, self.is_retired
        if now != self._notified_of:
            self._notified_of = now
            self.context.on_change()

    def _listed(self) -> Sequence[Device] | None:
        """Return what is to be advertised now, or None before the first look and the first checks."""
        if self.looked is None:
            return None
        self._end_refusals()
        held_ids = self.held.held_ids()
        mine, refused = self._offered(self.looked)
        self._complete_holds(mine)
        self._examine(mine)
        self._warn_of_missing_numa_nodes(mine)
        unchecked = self._unchecked(mine)
        if unchecked and not self.listing.known:
            return None
        seen = {found.name for found in mine}.union(refused)
        lost = [one for name, one in self.listing.present().items() if name not in seen]
        # A retired resource has looked at nothing, as far as others are concerned.
        elsewhere = {} if self.is_retired else self.context.ownership.elsewhere(self.face)
        now = self.context.clock()
        twins = self.context.ownership.names.twins
        scan = ScanResult(mine, now, unchecked, held_ids, refused, elsewhere, twins, self._listed_health_of)
        listed = self.listing.update(scan)
        is_any_gone = self.is_retired or len(self.listing.known) > len(mine) or self.listing.has_former
        self.held.follow(mine, is_any_gone=is_any_gone)
        self.held.lose(lost)
        if not self.is_retired:
            return listed
        if not (held_ids or self._calls or self.held.is_any_pending()):
            self.is_over.set()
        absent = self.context.ownership.absent(self.face)
        return self.listing.retire(held_ids, absent, self.held.health_of)

    def _warn_of_missing_numa_nodes(self, mine: Sequence[HostDevice]) -> None:
        """Log once each NUMA node that devices name and the machine lacks, if its nodes are known."""
        known, logged = self.context.numa_nodes, self.kept.warned_numa_nodes
        missing = {one.numa_node for one in mine} - {None, *known} - logged
        if missing and known:
            logged |= missing
            logger.warning(
                "devices are on a NUMA node that this machine does not have; with topologyManagerPolicy "
                "restricted or single-numa-node its kubelet refuses each pod that asks for them",
                extra={
                    "resource_name": self.resource_name,
                    "device_ids": sorted(one.name for one in mine if one.numa_node in missing),
                    "numa_nodes": known,
                },
            )

    def _named(self, looked: Sequence[HostDevice]) -> Sequence[HostDevice]:
        replicas = self.resource.share.replicas
        return looked if replicas == 1 else [with_room_for_replicas(found, replicas) for found in looked]

    def _offered(self, looked: Sequence[HostDevice]) -> tuple[Sequence[HostDevice], Mapping[str, str]]:
        """Return the devices that this resource offers, and by name why it does not offer others."""
        ownership, is_shared = self.context.ownership, self.resource.overlap == "shared"
        named = self._named(looked)
        if self.is_retired:  # it offers nothing, and its status shows what is there
            return named, {}
        if not self._is_current:
            outcome = ownership.foresee(self.face, named, is_shared=is_shared)
        else:
            outcome = ownership.look(self.face, named, is_shared=is_shared, on_change=self.look_again)
        for name in sorted(outcome.withheld.keys() - self.withheld.keys()):
            logger.warning(
                "a device is not offered; to share hardware, write overlap: shared in each of its resources"
                if outcome.withheld[name].startswith(BELONGS)
                else "a device is not offered until its container has ended",
                extra={
                    "resource_name": self.resource_name,
                    "device_id": name,
                    "reason": outcome.withheld[name],
                },
            )
        self.withheld = outcome.withheld
        return outcome.offered, outcome.withheld

    def _unchecked(self, mine: Iterable[HostDevice]) -> frozenset[str]:
        """Return the names of devices that no health rule has checked since they were plugged in."""
        if self._prober is None:
            return frozenset()
        checked = {(one.name, one.plugged_in) for one in self._checked_devices}
        return frozenset(one.name for one in mine if (one.name, one.plugged_in) not in checked)

    def _health_of(self, name: str) -> Health:
        held = self.held.health_of(name)
        return held if self._prober is None else combined((held, self._prober.health_of(name)))

    def _listed_health_of(self, name: str) -> Health:
        return Health.unhealthy(self._refused[name]) if name in self._refused else self._health_of(name)

    async def _next_change(self) -> None:
        keep_seconds = self.resource.when_unplugged.keep_unhealthy_for_seconds
        due = next_drop_at(self.listing.known, keep_seconds, self.held.held_names())
        wait_seconds = None if due is None else max(0.0, due - self.context.clock())
        await within(wait_seconds, self._changed.wait())

    # ── who announces changes ─────────────────────────────────────────────────────────────────────

    async def _follow_source(self) -> None:
        async with aclosing(self._source.looks()) as looks:
            async for looked in looks:
                is_any_gone = any(not known.is_present for known in self.listing.known.values())
                if looked != self.looked or self._refused or is_any_gone:
                    self.looked = looked
                    self.look_again()

    async def _look_at_refused(self) -> None:
        """Check refused devices again, as no event may come, and list those that could be allocated now."""
        while True:
            await self._was_refused.wait()
            if self._refused and self._refused.keys() <= self._refused_by_path:
                await within(PATH_REFUSAL_SECONDS - REFUSAL_SECONDS, self._is_refused_anew.wait())
            self._is_refused_anew.clear()
            await asyncio.sleep(REFUSAL_SECONDS)
            self._end_refusals()
            if not self._refused:
                self._was_refused.clear()
                # Some list may have come between the last refusal and its mark, and has not ended that.
                self._is_list_due = True
            if self._is_list_due:
                self.look_again()

    def _refuse(self, reasons: Mapping[str, str], *, by_path: bool = False) -> None:
        """List devices as Unhealthy until they could be allocated, with the reason by name."""
        self._refused.update(reasons)
        self._refused_by_path.difference_update(reasons)
        self._refused_by_path.update(reasons if by_path else ())
        self._was_refused.set()
        self._is_refused_anew.set()

    def _end_refusals(self) -> None:
        """Forget the refusals of devices that could be allocated now, or are gone."""
        refused = {name: why for name, why in self._refused.items() if self._would_be_refused(name)}
        for name in self._refused.keys() - refused.keys():
            self._examined.pop(name, None)
        self._is_list_due |= len(refused) < len(self._refused)
        self._refused = refused

    def _would_be_refused(self, name: str) -> bool:
        if (known := self.listing.known.get(name)) is None or not known.is_present:
            return False
        with suppress(OSError, AllocationError):
            return self._refused_path(self._checked(name)) is not None
        return True

    def _examine(self, mine: Sequence[HostDevice]) -> None:
        """Check the paths of new and changed devices as Allocate does, and refuse the devices in advance."""
        safe_folders: set[str] = set()
        examined = {}
        for found in mine:
            last = self._examined.get(found.name)
            if last is not found and last != found and (why := self._refused_path(found, safe_folders)):
                self._refuse({found.name: why}, by_path=True)
            examined[found.name] = found
        self._examined = examined

    def _refused_path(self, found: HostDevice, safe_folders: set[str] | None = None) -> str | None:
        """Return why Allocate would refuse a path of a device now, or None.

        What events report, such as a node that is missing, is left to them. `safe_folders` are those of nodes
        that were checked already: in 10,000 devices there are few.
        """
        safe_folders = set() if safe_folders is None else safe_folders
        try:
            for node in found.nodes:
                folder = node.host_path.rpartition("/")[0]
                is_plain = node.real_path in {"", node.host_path}
                if (not is_plain or folder not in safe_folders) and node_fault(self._host, node) is None:
                    safe_folders.add(folder if is_plain else "")
            if (expose := self.resource.expose).mounts or expose.directories:
                check_shares(self._host, [share_of(found, 0, expose)], self.resource)
        except UnhealthyDeviceError as error:
            return error.reason
        except ForbiddenPathError as error:
            return str(error)
        except (OSError, PluginError):
            return None
        return None

    def look_again(self) -> None:
        """Make the list again, as something that it depends on may have changed."""
        self._has_new.set()
        self._changed.set()

    async def _check_new(self, prober: Prober) -> None:
        """Run the health rules for new devices before these are listed."""
        while True:
            await self._has_new.wait()
            self._has_new.clear()
            found, _ = self._offered(self.looked or ())
            await prober.first_check(found)
            prober.follow(found)
            self._checked_devices = frozenset(found)
            self._changed.set()

    async def _once_begun(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what only the plugin that answers may do, once this is that plugin."""
        await self._has_begun.wait()
        await work()

    async def _pass_on(self, changed: Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            self._changed.set()

    # ── giving out ────────────────────────────────────────────────────────────────────────────────

    async def allocate(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse:
        """Return what a container gets by `expose`, after a check of each device node.

        `first_index` is the `{index}` of the first device.
        """
        self._begin()  # as it is asked, it has been listed
        holders = self.context.holders_of(self.resource)
        with nullcontext() if holders is None else holders.allocating():
            return await self._allocated(devices, first_index)

    async def _allocated(self, devices: Sequence[Device], first_index: int) -> ContainerResponse:
        self._calls += 1
        try:
            if self.is_retired:
                raise UnhealthyDeviceError(REMOVED, *devices)
            # At the begin of the call: its list changes when the device is released.
            if former := [one for one in devices if not self.listing.is_listed(one.id)]:
                raise UnhealthyDeviceError("a container holds it by another number of replicas", *former)
            elsewhere = self.context.ownership.elsewhere(self.face)
            # A reset may have the device appear anew, so its nodes are looked at afterwards.
            await self.held.before_giving(devices)
            names = self._names(devices)
            sick = self._names(one for one in devices if one.health.state is HealthState.UNHEALTHY)
            found = {
                name: self._checked(name, is_tolerated=name in sick, was_listed=elsewhere.get(name) == "")
                for name in names
            }
            given = self._responses.of(devices, found, first_index)
            check_shares(self._host, given.shares, self.resource)
            async with (
                nullcontext()
                if (holders := self.context.holders) is None
                else holders.alone(self.resource_name)
            ):
                self._check_free(found)
                self._give(devices, given)
            if not self._is_current:  # an edit came meanwhile: what is held now matters to its list
                self.kept.current.look_again()
            self._note_answers(devices, found)
            return await self._response(given)
        except UnhealthyDeviceError as error:
            names = self._names(error.devices)
            self._refuse(dict.fromkeys(names, error.reason))
            ids = [Device(id_) for name in names for id_ in self.listing.ids_of(name)]
            raise UnhealthyDeviceError(error.reason, *ids, advice=error.advice) from error
        except ForbiddenPathError:
            present = self.listing.present()
            found_now = [present[name] for name in self._names(devices) if name in present]
            self._refuse(
                {one.name: why for one in found_now if (why := self._refused_path(one))}, by_path=True
            )
            self.look_again()
            raise
        finally:
            self._calls -= 1
            if self.is_retired:
                self._changed.set()

    async def _response(self, given: ContainerShares) -> ContainerResponse:
        if self.kept.cdi_spec is None or self.resource.expose.strategy != "cdi":
            return given.response
        names = await self.kept.cdi_spec.publish(given.shares, self.resource)
        return container_response(given.shares, self.resource, cdi_devices=names, device_nodes=())

    def _note_answers(self, devices: Iterable[Device], found: Mapping[str, HostDevice]) -> None:
        """Keep the answers for allocated devices, and drop those for devices that nobody holds any more."""
        held = self.held.held_ids()
        allocated = {one.id: Answered(self.resource, found[self.held.name_of(one.id)]) for one in devices}
        kept = self.kept
        if any(kept.answered.get(device_id) != one for device_id, one in allocated.items()):
            kept.answered = {**kept.answered, **allocated}
        if len(kept.answered) > len(held):
            kept.answered = {device_id: one for device_id, one in kept.answered.items() if device_id in held}

    def found_of(self, use: Use) -> list[HostDevice]:
        """Return the found devices that are the hardware of a use."""
        numbers = frozenset(use.numbers if use.boot == self.context.ownership.boot else ())
        return [
            one
            for one in self._named(self.looked or ())
            if (
                use.hardware.is_same(one.identity, self.context.ownership.names.twins)
                if use.hardware and one.identity
                else not numbers.isdisjoint(one.keys)
            )
        ]

    def _complete_holds(self, mine: Iterable[HostDevice]) -> None:
        """Record what containers have of devices of which an older version has recorded the IDs alone."""
        if not (ids := self.context.ownership.incomplete.get(self.face)):
            return
        found = {one.name: one for one in mine}
        for device_id in sorted(ids):
            one = found.get(self.held.name_of(device_id))
            if one is not None:
                with suppress(PluginError):
                    share = share_of(one, 0, self.resource.expose)
                    self.held.complete(device_id, self._use(share))

    def _use(self, share: Share) -> Use:
        """Return what a container gets of a device."""
        ownership = self.context.ownership
        return ownership.own(self.face, use_of(share, self.resource, ownership.boot))

    def _check_free(self, found: Mapping[str, HostDevice]) -> None:
        """Raise `UnhealthyDeviceError` if a container has the hardware of one of these in another way."""
        is_shared = self.resource.overlap == "shared"
        for one in found.values():
            hold = self.context.ownership.conflict(self.face, one, found, is_shared=is_shared)
            if hold is not None:
                raise UnhealthyDeviceError(f"held as {hold}", Device(one.name))

    def _give(self, devices: Iterable[Device], given: ContainerShares) -> None:
        """Record that a container has these devices."""
        ownership = self.context.ownership
        by_name = {share.found.name: self._use(share) for share in given.shares}
        self.held.give(devices, {one.id: by_name[self.held.name_of(one.id)] for one in devices})
        found = {share.found.name: share.found for share in given.shares}
        ownership.note_given(self.face, [(found[name], use) for name, use in by_name.items()])

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Sequence[Device]:
        """Return the devices that go best together, as `prefer` of the file says.

        Devices that a container still has come last: the kubelet forgets an allocation in some races, and
        after a loss of its checkpoint (kubernetes/kubernetes PR 137534; reference of the kubelet, L5, L7).
        With no devices in the answer the kubelet takes those that it would have taken unasked (manager.go
        devicesToAllocate). It is asked whatever the file says: that it may ask is part of the registration,
        which outlives every edit.
        """
        share = self.resource.share
        by_id = {device.id: device for device in (*must_include, *available)}
        must = [device.id for device in must_include]
        doubtful = await self._doubtful(by_id.keys() - set(must))
        has_choice = self.resource.prefer != "none" and (share.replicas > 1 or share.max_per_container != 1)
        if not (has_choice or doubtful):
            return ()
        from devplug.daemon.preference import preferred
        from devplug.holds.decide import steered

        allowed, must = steered(by_id, must, size, doubtful)
        chosen = preferred(
            self.resource.prefer,
            [self._candidate(device_id, by_id[device_id].numa_nodes) for device_id in allowed],
            must,
            size,
            all_devices=[
                self._candidate(device_id, ())
                for name in self.listing.known
                for device_id in self.listing.ids_of(name)
            ],
            numa_distances=numa_distances(self.context.host),
        )
        return [by_id[device_id] for device_id in chosen]

    async def _doubtful(self, ids: AbstractSet[str]) -> frozenset[str]:
        """Return those of available IDs that a container may still have."""
        if (holders := self.context.holders_of(self.resource)) is None:
            return frozenset()
        held = ids & self.held.held_ids()
        return await holders.doubtful(self.resource_name, held) if held else frozenset()

    def _candidate(self, device_id: str, numa_nodes: tuple[int, ...]) -> Candidate:
        from devplug.daemon.preference import Candidate

        name = self.held.name_of(device_id)
        known = self.listing.known.get(name)
        if known is None:
            return Candidate(device_id, name, numa_nodes)
        found = known.found
        nodes = numa_nodes or (() if found.numa_node is None else (found.numa_node,))
        return Candidate(device_id, name, nodes, found.hardware, found.links)

    def _names(self, devices: Iterable[HasId]) -> list[str]:
        return sorted(self.listing.names_of(device.id for device in devices))

    def _checked(self, name: str, *, is_tolerated: bool = False, was_listed: bool = False) -> HostDevice:
        """Return a device as it is now; raises `UnhealthyDeviceError` if a container cannot get it.

        One that was plugged in again a moment ago may have other nodes by now, and its old ones may be
        another device's. Then the source scans again: a pod that is refused now has failed for good. For the
        same reason a device is allocated that `was_listed`, because a container had it, although an edit has
        left it out.
        """
        known = self.listing.known.get(name)
        if known is None or not (known.is_present or was_listed):
            is_elsewhere = name in self.context.ownership.elsewhere(self.face)
            raise UnhealthyDeviceError(REMOVED if is_elsewhere else "unplugged", Device(name))
        if not is_tolerated and (health := self._health_of(name)).state is HealthState.UNHEALTHY:
            raise UnhealthyDeviceError(health.reason, Device(name))
        found = known.found
        fault = faulty_node(self._host, found)
        is_other = found.plugged != 0 and self._host.plugged(found.hardware) != found.plugged
        if (fault or is_other) and self.resource.discover.kind in LOOKED_AT_AGAIN:
            offered, _ = self._offered(self._source.look())
            again = next((one for one in offered if one.name == name), None)
            if again is None:
                raise UnhealthyDeviceError(fault or "unplugged", Device(name))
            found = again
            fault = faulty_node(self._host, found)
        if fault:
            raise UnhealthyDeviceError(fault, Device(name))
        return found


# ── the care for the devices of a configured resource after their use ──


def care_of(resource: Resource) -> Care[HostDevice]:
    """Return how the devices of a resource are cleaned up, by its configuration."""
    replicas = resource.share.replicas
    on_release, on_lost = resource.on_release, resource.on_lost

    async def clean(name: str, found: HostDevice | None) -> str:
        assert on_release is not None
        return await _run(resource.name, on_release.exec, found or HostDevice(name), "onRelease")

    async def lose(found: HostDevice) -> str:
        assert on_lost is not None
        return await _run(resource.name, on_lost.exec, found, "onLost")

    return Care(
        resource.name,
        clean if on_release is not None else None,
        lose if on_lost is not None else None,
        replicas=replicas,
        name_of=partial(found_name, replicas=replicas),
        ids_of=partial(device_ids, replicas=replicas),
    )


async def _run(resource_name: str, command: TimedCommand, found: HostDevice, key: str) -> str:
    """Run a command of the file for one device; return why it failed, or ""."""
    from devplug.daemon.commands import command_arguments, command_environment, run_command

    arguments = command_arguments(command.command, found)
    if isinstance(arguments, Missing):
        fault = f"{key}: {arguments.reason}"
    else:
        env = command_environment(resource_name, found)
        result = await run_command(arguments, timeout_seconds=command.timeout_seconds, env=env)
        fault = _fault(result, key, command.timeout_seconds)
    facts = {"resource_name": resource_name, "device_id": found.name}
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


# ── a resource that is served by claims ──


class ClaimedResource(ConfiguredPlugin):
    """The plugin of one resource with `serve: dra`; what containers get is in the CDI files of claims."""

    @property
    def node_owner(self) -> CdiOwner:
        """The owner of the device nodes in containers."""
        return owner_of(self.resource)

    async def allocate(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse:
        """Return what containers get; an unhealthy device is among these only where a claim tolerates it."""
        sick = [one for one in devices if one.health.state is HealthState.UNHEALTHY]
        if lost := [one for one in sick if one.id in self.listing.withheld]:
            raise UnhealthyDeviceError(lost[0].health.reason, *lost)
        return await super().allocate(devices, first_index)

    async def _response(self, given: ContainerShares) -> ContainerResponse:
        return self._with_kernel_nodes(given)

    def _with_kernel_nodes(self, given: ContainerShares) -> ContainerResponse:
        try:
            nodes = [node for one in given.shares for node in kernel_nodes(one, self.resource, self._host)]
            return container_response(given.shares, self.resource, device_nodes=nodes)
        except PluginError as error:
            raise InvalidRequestError(str(error)) from error

    def current(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse | None:
        """Return what containers get of claimed devices now; None if one of them is not there.

        A device that is only unhealthy is there: its node belongs to no other device.
        """
        names, present = self._names(devices), self.listing.present()
        try:
            return self._with_kernel_nodes(
                self._responses.of(devices, {name: present[name] for name in names}, first_index)
            )
        except (KeyError, AllocationError):
            return None

    def uses(self, device_ids: Sequence[str]) -> Mapping[str, Use]:
        """Return what containers get of devices, by ID, of those that are there."""
        present = self.listing.present()
        found = {one: present.get(self.held.name_of(one)) for one in device_ids}
        uses = {}
        for device_id, one in found.items():
            if one is not None:
                with suppress(PluginError):
                    share = share_of(one, 0, self.resource.expose)
                    uses[device_id] = self._use(share)
        return uses

    async def release(self, devices: Sequence[Device], /) -> None:
        """Run `onRelease` for the devices of an ended claim."""
        await self.held.release(device.id for device in devices)
