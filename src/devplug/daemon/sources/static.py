"""The source `static`: devices without hardware, by the IDs in the file. For tests and first steps."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from devplug.daemon.sources.device import HostDevice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from devplug.daemon.config.selectors import StaticSelector

__all__ = ["StaticSource"]


class StaticSource(Struct, frozen=True):
    """The IDs of one resource's selectors; they are always present."""

    selectors: tuple[StaticSelector, ...]

    async def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield the one list there is, then nothing for ever."""
        yield self.look()
        await asyncio.Event().wait()

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
