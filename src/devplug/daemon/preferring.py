"""Which devices of a resource go together: what `preference` decides, told to the kubelet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.daemon.configured import ConfiguredPlugin, nobody
from devplug.daemon.preference.numa import numa_distances
from devplug.daemon.preference.policies import Candidate, preferred
from devplug.daemon.responses import found_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from devplug.daemon.grammar.config import Resource
    from devplug.daemon.machine import Machine
    from devplug.devices import Device

__all__ = ["PreferringPlugin", "plugin_of"]


def plugin_of(
    resource: Resource,
    machine: Machine,
    rank: int = 0,
    on_release: Callable[[Iterable[str]], Awaitable[object]] = nobody,
    before: ConfiguredPlugin | None = None,
) -> ConfiguredPlugin:
    """Return the plugin of a resource, the `rank`-th of its file.

    `on_release` is told of device IDs that nobody holds any more. Raises `KubeletError` if the resource needs
    a CDI folder that cannot be read.
    """
    may_choose = resource.prefer != "none" and (
        resource.share.replicas > 1 or resource.share.max_per_container != 1
    )
    kind = PreferringPlugin if may_choose else ConfiguredPlugin
    return kind(resource, machine, rank, on_release, before)


class PreferringPlugin(ConfiguredPlugin):
    """One that has a say in which devices go together."""

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Sequence[Device]:
        """Return the devices that go best together, as `prefer` of the file says."""
        by_id = {device.id: device for device in (*must_include, *available)}
        chosen = preferred(
            self.resource.prefer,
            [self._candidate(device.id, device.numa_nodes) for device in by_id.values()],
            [device.id for device in must_include],
            size,
            all_devices=[
                self._candidate(device_id, ())
                for name in self.listing.known
                for device_id in self.listing.ids_of(name)
            ],
            numa_distances=numa_distances(self.machine.host),
        )
        return [by_id[device_id] for device_id in chosen]

    def _candidate(self, device_id: str, numa_nodes: tuple[int, ...]) -> Candidate:
        name = found_name(device_id, self.resource.share.replicas)
        known = self.listing.known.get(name)
        if known is None:
            return Candidate(device_id, name, numa_nodes)
        found = known.found
        nodes = numa_nodes or (() if found.numa_node is None else (found.numa_node,))
        return Candidate(device_id, name, nodes, found.hardware, found.links)
