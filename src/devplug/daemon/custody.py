"""Between two holders of a device: who has it, and what is done before the next one may have it.

The kubelet never says that a pod is over. So a device is cleaned when nobody is shown to hold it any more,
and, where the kubelet was faster and gives it out again, within that Allocate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from devplug.daemon.commands import CommandResult, command_arguments, command_environment, run_command
from devplug.daemon.responses import found_name
from devplug.daemon.sources.found import Found
from devplug.daemon.templates import Missing
from devplug.devices import Device, Health
from devplug.errors import UnhealthyDeviceError, one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from devplug.daemon.config import Resource, TimedCommand
    from devplug.holders.holders import Holders

__all__ = ["Custody"]

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 30.0
LAST_RETRY_SECONDS: Final = 600.0
"""How soon, and how late at most, a cleaning that failed is tried again."""


class Custody:
    """The devices of one resource that were given out; lives as long as that is served.

    Without `holders` nothing is known: what was given out counts as held for ever. `on_release` is called
    with the IDs of a device that came free, once it is clean.
    """

    def __init__(
        self,
        resource: Resource,
        holders: Holders | None,
        *,
        on_release: Callable[[Iterable[str]], Awaitable[object]],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.changed = asyncio.Event()
        """Set when `health_of` or `held_names` have changed. Whoever waits for it clears it."""
        self._resource = resource
        self._holders = holders
        self._on_release = on_release
        self._sleep = sleep
        self._given = set(self._told_held())
        self._found: dict[str, Found] = {}
        self._dirty = set(self.held_names())
        self._faults: dict[str, str] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._is_needed = asyncio.Event()
        self._failed = asyncio.Event()
        self._lost: asyncio.Queue[Found] = asyncio.Queue()
        if resource.on_release is not None:
            self._is_needed.set()

    # ── who has what ──

    def held_ids(self) -> frozenset[str]:
        """Return the device IDs that a container may hold, as far as anybody has told."""
        return self._told_held() if self._holders else frozenset(self._given)

    def _told_held(self) -> frozenset[str]:
        return self._holders.held_ids(self._resource.name) if self._holders else frozenset()

    def held_names(self) -> frozenset[str]:
        """Return the found devices behind `held_ids`."""
        return frozenset(
            found_name(device_id, self._resource.share.replicas) for device_id in self.held_ids()
        )

    def health_of(self, name: str) -> Health:
        """Return what cleaning a device has come to."""
        return Health.from_fault(self._faults.get(name))

    def follow(self, present: Iterable[Found], *, is_any_gone: bool) -> None:
        """Take note of the devices that are there. While one is gone, it matters who holds it."""
        self._found.update((one.name, one) for one in present)
        if is_any_gone:
            self._is_needed.set()

    def lose(self, found: Found) -> None:
        """Take note that a device was pulled out: `onLost` is run if a container may hold it."""
        if self._resource.on_lost is not None and found.name in self.held_names():
            self._lost.put_nowait(found)

    # ── giving out ──

    async def before_giving(self, devices: Iterable[Device]) -> None:
        """Clean what was given out and not cleaned since; raises `UnhealthyDeviceError` if that fails.

        A device that other containers hold another replica of is left alone.
        """
        ids = {device.id for device in devices}
        # The kubelet gives out only what is free; whoever had it is gone.
        self._given.difference_update(ids)
        if self._resource.on_release is None:
            return
        names = {found_name(device_id, self._resource.share.replicas) for device_id in ids}
        for name in sorted(names & self._dirty):
            if not self._others_hold(name, ids) and (fault := await self._clean(name)):
                raise UnhealthyDeviceError(fault, Device(name))

    def _others_hold(self, name: str, ids: Iterable[str]) -> bool:
        others = self.held_ids().difference(ids)
        return any(found_name(one, self._resource.share.replicas) == name for one in others)

    def give(self, devices: Iterable[Device]) -> None:
        """Take note that these devices are given out. Call it before the kubelet has the answer."""
        ids = [device.id for device in devices]
        self._dirty.update(found_name(device_id, self._resource.share.replicas) for device_id in ids)
        self._given.update(ids)
        if self._holders is not None:
            self._holders.note_allocated(self._resource.name, ids)

    # ── coming back ──

    async def run(self) -> None:
        """Act on what comes free, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_losses())
            group.create_task(self._try_again())
            if self._holders is not None:
                group.create_task(self._follow_releases(self._holders))

    async def _follow_releases(self, holders: Holders) -> None:
        await self._is_needed.wait()
        with holders.releases(self._resource.name) as releases:
            # What came free before is not told of again.
            for device_id in sorted(self._given - self.held_ids()):
                await self._released(device_id)
            async for released in releases:
                await self._released(released.device_id)

    async def _released(self, device_id: str) -> None:
        self._given.discard(device_id)
        name = found_name(device_id, self._resource.share.replicas)
        logger.info(
            "a device came free",
            extra={"resource_name": self._resource.name, "device_id": device_id},
        )
        if self._resource.on_release is not None and not self._others_hold(name, [device_id]):
            await self._clean(name)
        self.changed.set()
        await self._on_release([device_id])

    async def _try_again(self) -> None:
        wait_seconds = FIRST_RETRY_SECONDS
        while True:
            if not self._faults:
                wait_seconds = FIRST_RETRY_SECONDS
                self._failed.clear()
                await self._failed.wait()
            await self._sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, LAST_RETRY_SECONDS)
            for name in sorted(self._faults):
                if name in self._dirty and not self._others_hold(name, ()):
                    await self._clean(name)

    async def _clean(self, name: str) -> str:
        """Run `onRelease` for a device that is dirty, once at a time; return what went wrong, or ""."""
        assert self._resource.on_release is not None
        async with self._locks[name]:
            if name not in self._dirty:
                return ""
            found = self._found.get(name, Found(name))
            fault = await self._command(self._resource.on_release.exec, found, "onRelease")
            if fault:
                self._faults[name] = fault
                self._failed.set()
            else:
                self._dirty.discard(name)
                self._faults.pop(name, None)
            self.changed.set()
            return fault

    async def _follow_losses(self) -> None:
        while True:
            found = await self._lost.get()
            assert self._resource.on_lost is not None
            await self._command(self._resource.on_lost.exec, found, "onLost")

    async def _command(self, command: TimedCommand, found: Found, key: str) -> str:
        """Run a command of the file for one device; return why it failed, or ""."""
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
    """Return why a command did not do what it should, or ""."""
    if result.fault:
        return one_line(f"{key}: {result.fault}")
    if result.was_killed:
        return f"{key} took longer than {timeout_seconds:g} s"
    if result.exit_code != 0:
        said = f": {result.first_line}" if result.first_line else ""
        return one_line(f"{key} ended with {result.exit_code}{said}")
    return ""
