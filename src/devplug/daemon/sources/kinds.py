"""The kinds of discovery: one row for each, with the source that finds what a resource asks for.

A source is imported when a resource needs it: a machine uses one or two, and each costs memory and time.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from devplug.daemon.sources.device import HostDevice
from devplug.holds.names import Names
from devplug.linux.notifier import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from devplug.daemon.config.selectors import StaticSelector
    from devplug.daemon.config.types import Resource
    from devplug.daemon.sources.device import Source
    from devplug.daemon.sources.host import Host

RESYNC_SECONDS = 30.0
"""The time between two scans of a source without an event."""


def source_of(resource: Resource, host: Host, names: Names | None = None) -> Source:
    """Return a new source for a resource; `names` has the IDs that its devices had before."""
    discover = resource.discover
    rest = (resource.id, resource.allow, host, RESYNC_SECONDS)
    named = (*rest, names or Names())
    match discover.kind:
        case "path":
            from devplug.daemon.sources.path import PathSource

            return PathSource(resource.name, discover.path, *named)
        case "bundle":
            from devplug.daemon.sources.bundle import BundleSource

            return BundleSource(resource.name, discover.bundle, *named)
        case "usb":
            from devplug.daemon.sources.usb import UsbSource

            return UsbSource(resource.name, discover.usb, *named)
        case "pci":
            from devplug.daemon.sources.pci import PciSource

            return PciSource(resource.name, discover.pci, *named)
        case "sysfs":
            from devplug.daemon.sources.sysfs import SysfsSource

            return SysfsSource(resource.name, discover.sysfs, *named)
        case "net":
            from devplug.daemon.sources.net import NetSource

            return NetSource(resource.name, discover.net, *named)
        case "nvidia":
            from devplug.daemon.sources.nvidia import NvidiaSource

            return NvidiaSource(resource.name, discover.nvidia, *rest, known_names=named[-1])
        case "static" | "":
            return StaticSource(discover.static)


class StaticSource(Struct, frozen=True):
    """The source `static`: devices without hardware, by the IDs in the file; they are always present."""

    selectors: tuple[StaticSelector, ...]

    async def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield the one list there is, then nothing for ever."""
        yield self.look()
        await Event().wait()

    def look(self) -> tuple[HostDevice, ...]:
        """Return the devices, sorted by name."""
        numa_nodes: dict[str, int] = {}
        for selector in self.selectors:
            numa_nodes.update({id_: selector.numa_nodes.get(id_, -1) for id_ in selector.ids})
        return tuple(
            HostDevice(id_, (), numa_node, MappingProxyType({"numaNode": numa_node}))
            if numa_node >= 0
            else HostDevice(id_)
            for id_, numa_node in sorted(numa_nodes.items())
        )
