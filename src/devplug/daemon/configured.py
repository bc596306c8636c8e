"""One resource of the file as a plugin: its source's looks become devices, its `expose` the response."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.daemon.responses import (
    advertised_devices,
    container_response,
    found_name,
    with_room_for_replicas,
)
from devplug.daemon.sources.host import Host, NotADeviceNodeError
from devplug.daemon.sources.path import PathSource
from devplug.daemon.sources.static import StaticSource
from devplug.daemon.unplugged import Known, after_look
from devplug.errors import PluginError, UnhealthyDeviceError
from devplug.plugin.contract import DevicePlugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from devplug.daemon.config import Resource
    from devplug.daemon.sources.found import Found, Source
    from devplug.devices import ContainerResponse, Device

__all__ = ["ConfiguredPlugin"]

RESYNC_SECONDS: Final = 30.0


class ConfiguredPlugin(DevicePlugin):
    """A device plugin that does what one resource of the file says; lives as long as that is served."""

    def __init__(
        self,
        resource: Resource,
        host: Host | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource_name = resource.name
        self._resource = resource
        self._host = host or Host()
        self._clock = clock
        self._known: dict[str, Known] = {}
        self._has_refused = False

    async def devices(self) -> AsyncIterator[Sequence[Device]]:
        """Yield the devices whenever a look shows other ones, or one was missing for too long."""
        keep_seconds = self._resource.when_unplugged.keep_unhealthy_for_seconds
        replicas = self._resource.share.replicas
        is_first = True
        async for looked in self._source().looks():
            named = (with_room_for_replicas(found, replicas) for found in looked)
            known = after_look(self._known, named, now=self._clock(), keep_seconds=keep_seconds)
            # A refusal marked its device until the next list, which an equal one is, too.
            if known == self._known and not is_first and not self._has_refused:
                continue
            self._known, self._has_refused = known, False
            if not known and is_first and self._resource.when_none != "empty":
                if self._resource.when_none == "fail":
                    raise PluginError(
                        f"{self.resource_name}: no device was found, and whenNone says fail",
                    )
                continue
            is_first = False
            yield tuple(advertised_devices((known[name] for name in sorted(known)), self._resource))

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Return what the file says a container gets, after a last look at each device node."""
        found: dict[str, Found] = {}
        try:
            for device in devices:
                name = found_name(device.id, self._resource.share.replicas)
                found[name] = self._known[name].found
                if fault := self._fault(found[name]):
                    raise UnhealthyDeviceError(fault, device)
            return container_response(devices, found, self._resource)
        except UnhealthyDeviceError:
            self._has_refused = True
            raise

    def _fault(self, found: Found) -> str | None:
        """Return why a container cannot have this device right now: its node went or is another one now."""
        for node in found.nodes:
            try:
                now = self._host.node(node.host_path)
            except NotADeviceNodeError:
                return "its node is no device node any more"
            if now is None:
                return "node missing"
            if (now.number, now.is_block) != (node.number, node.is_block):
                return "its node is another device now"
        return None

    def _source(self) -> Source:
        discover = self._resource.discover
        if discover.static:
            return StaticSource(discover.static)
        keep_seconds = self._resource.when_unplugged.keep_unhealthy_for_seconds
        return PathSource(
            self.resource_name,
            discover.path,
            self._resource.id,
            self._resource.allow,
            self._host,
            # Often enough to drop a device on time, and never faster than once a second.
            min(RESYNC_SECONDS, max(1.0, keep_seconds)) if keep_seconds else RESYNC_SECONDS,
        )
