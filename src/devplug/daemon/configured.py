"""One resource of the file as a plugin: its source's looks become devices, its `expose` the response."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug.daemon.cdishelf import CdiShelf
from devplug.daemon.custody import Custody
from devplug.daemon.guard import check_shares, faulty_node
from devplug.daemon.health import combined
from devplug.daemon.machine import Machine
from devplug.daemon.probing import Prober
from devplug.daemon.responses import (
    advertised_devices,
    container_response,
    found_name,
    shares_of,
    with_room_for_replicas,
)
from devplug.daemon.sources.choosing import source_of
from devplug.daemon.unplugged import Known, after_look, next_drop_at
from devplug.devices import Device, Health, HealthState
from devplug.errors import PluginError, UnhealthyDeviceError
from devplug.plugin.contract import DevicePlugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from devplug.daemon.config import Resource
    from devplug.daemon.sources.found import Found
    from devplug.devices import ContainerResponse

__all__ = ["ConfiguredPlugin", "nobody"]

logger = logging.getLogger(__name__)

ALLOCATE_SECONDS: Final = 5.0

LOOKED_AT_AGAIN: Final = frozenset({"usb", "pci", "sysfs", "net"})
"""Kinds whose IDs say what the hardware is, not only where a node lies. Of those a changed node number means
that it was plugged in again; of a plain path it may be anything. NVIDIA's looks may wait for the driver."""


async def nobody(_: Iterable[str]) -> None:
    """Let go of IDs where nobody keeps any."""


class ConfiguredPlugin(DevicePlugin):
    """A device plugin that does what one resource of the file says; lives as long as that is served."""

    def __init__(
        self,
        resource: Resource,
        machine: Machine | None = None,
        rank: int = 0,
        on_release: Callable[[Iterable[str]], Awaitable[object]] = nobody,
    ) -> None:
        self.resource = resource
        self.resource_name = resource.name
        self._rank = rank
        self.machine = machine or Machine()
        self._host = self.machine.host
        self._source = source_of(resource, self._host)
        self._prober = Prober(resource.health, self._host, resource_name=resource.name)
        self.custody = Custody(resource, self.machine.holders, on_release=on_release)
        self._shelf = (
            CdiShelf(resource, self.machine.cdi, self._host)
            if resource.expose.strategy == "cdi" and self.machine.cdi is not None
            else None
        )
        if resource.on_release is not None:
            self.allocate_timeout_seconds = ALLOCATE_SECONDS + resource.on_release.exec.timeout_seconds
        self._changed = asyncio.Event()
        self._looked: tuple[Found, ...] | None = None
        self._to_vouch_for = asyncio.Event()
        self._vouched: frozenset[Found] = frozenset()
        self.known: dict[str, Known] = {}
        self._told: set[str] = set()
        self._failure: Exception | None = None
        self._has_refused = False

    # ── what is there ─────────────────────────────────────────────────────────────────────────────

    async def devices(self) -> AsyncGenerator[Sequence[Device], None]:
        """Yield the devices whenever they are other ones, or in another state, than before."""
        works = (
            self._follow_source,
            self._vouch,
            self._prober.run,
            self.custody.run,
            self._pass_on_changes,
        )
        self._looked = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work(work)) for work in works]
            self.machine.overlaps.enter(
                self.resource_name,
                self._rank,
                is_shared=self.resource.overlap == "shared",
                on_change=self._changed.set,
            )
            try:
                async for listed in self._lists():
                    yield listed
            except GeneratorExit:
                # A task group would make an error of it.
                self._failure = None
            finally:
                self.machine.overlaps.leave(self.resource_name)
                for task in tasks:
                    task.cancel()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what lasts as long as `devices`; what it raises is raised there, not in a group of errors."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- raised again in `devices`
            self._failure = error
            self._changed.set()

    async def _lists(self) -> AsyncIterator[Sequence[Device]]:
        last: Sequence[Device] | None = None
        while self._failure is None:
            self._changed.clear()
            listed = self._listed()
            # A refusal marked its device until the next list, which an equal one is, too.
            if listed is not None and (listed != last or self._has_refused):
                if listed or last is not None or self.resource.when_none == "empty":
                    last, self._has_refused = listed, False
                    yield listed
                elif self.resource.when_none == "fail":
                    text = f"{self.resource_name}: no device was found, and whenNone says fail"
                    self._failure = PluginError(text)
                    return
            if self._shelf is not None and listed is not None:
                await self._shelf.refresh(self._present(), self._held())
            await self._next_change()

    def _listed(self) -> Sequence[Device] | None:
        """Return what is to be advertised now, or None before the first look and the first checks."""
        if self._looked is None:
            return None
        mine = self._mine(self._looked)
        present = {found.name for found in mine}
        if self.resource.health:
            vouched = {(found.name, found.hardware, found.nodes) for found in self._vouched}
            checked = [found for found in mine if (found.name, found.hardware, found.nodes) in vouched]
            if not self.known and len(checked) < len(mine):
                return None
            mine = checked
        before = self.known
        # What nobody knows anything of is as it was before; that must not be an "unplugged" that is over.
        mine = [
            replace(found, health=Health.healthy())
            if found.health.state is HealthState.UNKNOWN and not _is_present(before.get(found.name))
            else found
            for found in mine
        ]
        self.known = after_look(
            before,
            mine,
            now=self.machine.clock(),
            keep_seconds=self.resource.when_unplugged.keep_unhealthy_for_seconds,
            held=self.custody.held_names(),
        )
        self.custody.follow(mine, is_any_gone=len(self.known) > len(mine))
        for name, one in before.items():
            if one.is_present and name not in present:
                self.custody.lose(one.found)
        return tuple(
            advertised_devices(
                (self.known[name] for name in sorted(self.known)), self.resource, self._health_of
            )
        )

    def _mine(self, looked: Iterable[Found]) -> list[Found]:
        """Return what was found, without what belongs to other resources."""
        named = [with_room_for_replicas(found, self.resource.share.replicas) for found in looked]
        refused = self.machine.overlaps.claim(self.resource_name, named)
        for name, owner in refused.items():
            if name not in self._told:
                self._told.add(name)
                logger.warning(
                    "a device belongs to another resource, which stands before this one in the file; "
                    "to share it, write overlap: shared in both",
                    extra={"resource_name": self.resource_name, "device_id": name, "owner": owner},
                )
        return [found for found in named if found.name not in refused]

    def _health_of(self, name: str) -> Health:
        return combined((self.custody.health_of(name), self._prober.health_of(name)))

    def _present(self) -> dict[str, Found]:
        return {name: one.found for name, one in self.known.items() if one.is_present}

    def _held(self) -> frozenset[str] | None:
        holders = self.machine.holders
        return self.custody.held_names() if holders is not None and holders.is_known else None

    async def _next_change(self) -> None:
        keep_seconds = self.resource.when_unplugged.keep_unhealthy_for_seconds
        due = next_drop_at(self.known, keep_seconds, self.custody.held_names())
        wait_seconds = None if due is None else max(0.0, due - self.machine.clock())
        try:
            async with asyncio.timeout(wait_seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    # ── who announces changes ─────────────────────────────────────────────────────────────────────

    async def _follow_source(self) -> None:
        async with aclosing(self._source.looks()) as looks:
            async for looked in looks:
                self._looked = looked
                self._to_vouch_for.set()
                self._changed.set()

    async def _vouch(self) -> None:
        """Have the rules check what is new before anybody is told of it."""
        while True:
            await self._to_vouch_for.wait()
            self._to_vouch_for.clear()
            found = self._mine(self._looked or ())
            await self._prober.first_check(found)
            self._prober.follow(found)
            self._vouched = frozenset(found)
            self._changed.set()

    async def _pass_on_changes(self) -> None:
        async with asyncio.TaskGroup() as group:
            for changed in (self._prober.changed, self.custody.changed):
                group.create_task(self._pass_on(changed))

    async def _pass_on(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            self._changed.set()

    # ── giving out ────────────────────────────────────────────────────────────────────────────────

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Return what the file says a container gets, after a last look at each device node."""
        try:
            found = {name: self._checked(name) for name in self._names(devices)}
            await self.custody.before_giving(devices)
            shares = shares_of(devices, found, self.resource)
            check_shares(self._host, shares, self.resource)
            cdi_devices = None if self._shelf is None else await self._shelf.publish(shares)
            response = container_response(shares, self.resource, cdi_devices=cdi_devices)
        except UnhealthyDeviceError:
            self._has_refused = True
            raise
        self.custody.give(devices)
        return response

    def _names(self, devices: Iterable[Device]) -> list[str]:
        return sorted({found_name(device.id, self.resource.share.replicas) for device in devices})

    def _checked(self, name: str) -> Found:
        """Return a device as it is now; raises `UnhealthyDeviceError` if a container cannot have it.

        One that was plugged in again a moment ago may have other nodes than the last look saw: then there is
        one more look, because the pod that is refused now has failed for good.
        """
        found = self.known[name].found
        if (fault := faulty_node(self._host, found)) and self.resource.discover.kind in LOOKED_AT_AGAIN:
            looked = [
                with_room_for_replicas(one, self.resource.share.replicas) for one in self._source.look()
            ]
            found = next((one for one in looked if one.name == name), found)
            fault = faulty_node(self._host, found)
        if fault:
            raise UnhealthyDeviceError(fault, Device(name))
        return found


def _is_present(known: Known | None) -> bool:
    return known is not None and known.is_present
