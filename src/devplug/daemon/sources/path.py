"""The source `path`: every device node that a glob matches is one device."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.config.globs import covers, covers_whole_root, has_wildcard
from devplug.daemon.config.host_paths import DISK_NODES
from devplug.daemon.config.loader import DEVICE_ROOTS
from devplug.daemon.config.templates import Missing, render_one
from devplug.daemon.sources.device import HostDevice, without_parts
from devplug.daemon.sources.hardware import device_of_node, numa_node_of
from devplug.daemon.sources.host import Host, NotADeviceNodeError, log_once, timed, unusable_in_containers
from devplug.daemon.sources.identities import groups_beside, identity_of, part_numbers
from devplug.devices import stable_id
from devplug.errors import quoted
from devplug.holds.hardware import MEMORY_MAJOR
from devplug.holds.names import Names, Wanted
from devplug.plugin.discovery import watch_paths

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping

    from devplug.daemon.config.selectors import PathSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device import HostDeviceNode
    from devplug.holds.hardware import Hardware, Key

_LEFT_OUT: Final = "a path that the configuration covers is left out"
_UNUSABLE: Final = "a device is advertised that no container can open"


class PathSource(Struct):
    """The nodes that the selectors of one resource match; lives as long as the resource is served."""

    resource_name: str
    selectors: tuple[PathSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30
    known_names: Names = field(default_factory=Names)
    _logged_paths: set[str] = field(default_factory=set)
    _identities: dict[str, tuple[int, Hardware]] = field(default_factory=dict)
    """By folder below /sys/devices, with the inode of the folder: each is read once."""

    async def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, at each change, and every `resync_seconds`."""
        globs = [self.host.inside(selector.glob) for selector in self.selectors]
        async for _ in watch_paths(*globs, every_seconds=self.resync_seconds):
            yield self.look()

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the devices that are there now, sorted by name."""
        seen: set[str] = set()
        found: dict[str, HostDevice] = {}
        """By path."""
        for selector in self.selectors:
            for path in self._matches(selector):
                node = self._node(path)
                if node is None:
                    continue
                # A device counts once, however many paths lead to its node: a link and the node, two links.
                # Behind /dev/null and its like there is no device, so there every path is one.
                has_hardware = node.is_block or node.number[0] != MEMORY_MAJOR
                real_path = self.host.outside(os.path.realpath(self.host.inside(path)))
                identity = real_path if has_hardware else path
                if identity in seen or (node.is_block and self._is_forbidden_disk(path, real_path, selector)):
                    continue
                seen.add(identity)
                if reason := unusable_in_containers(node):
                    self._log_once(path, reason, _UNUSABLE)
                numa_node = numa_node_of(self.host, node)
                facts = _facts(node, numa_node)
                hardware = self._identity(node)
                found[path] = HostDevice(
                    self._name(selector.glob, node, facts),
                    (node,),
                    numa_node,
                    MappingProxyType(facts),
                    identity=hardware,
                    parts=self._parts(node) if hardware and hardware.is_whole else (),
                )
        return tuple(sorted(without_parts(self._named(found)), key=lambda one: one.name))

    def _named(self, found: Mapping[str, HostDevice]) -> list[HostDevice]:
        """Return the devices under their IDs.

        The first path that had an ID keeps it, also while nothing is there. The register has the paths only
        where different ones can make the same ID.
        """
        names = {one.name for one in found.values()}
        if len(self.selectors) == 1 and self.id_template is None and len(names) == len(found):
            self.known_names.write_ranks()
            return [*found.values()]
        wanted = [Wanted(path, one.name, f"{one.name}@{path}") for path, one in found.items()]
        keys = {one.key for one in wanted}
        reserved = {
            known.name
            for key, known in self.known_names.known.items()
            if key not in keys and self._is_meant(key.partition("\n")[0].partition("@/")[2])
        }
        assigned = self.known_names.assign_in_order(wanted, reserved)
        return [replace(one, name=assigned[path]) for path, one in found.items()]

    def _is_meant(self, path: str) -> bool:
        """Whether a selector matches a path, which is here without its first slash."""
        return any(
            covers(selector.glob, f"/{path}")
            and not any(covers(pattern, f"/{path}") for pattern in selector.exclude)
            for selector in self.selectors
        )

    def _matches(self, selector: PathSelector) -> list[str]:
        """Return the paths of the host that the selector matches, sorted, without those that it excludes."""
        matched = sorted(
            self.host.outside(path)
            for path in glob.iglob(self.host.inside(selector.glob))  # noqa: PTH207
        )
        return [path for path in matched if not any(covers(pattern, path) for pattern in selector.exclude)]

    def _node(self, path: str) -> HostDeviceNode | None:
        try:
            return self.host.node(path)
        except NotADeviceNodeError as error:
            self._log_once(path, str(error))
            return None

    def _identity(self, node: HostDeviceNode) -> Hardware | None:
        """Return the identity of the hardware behind a node; None where sysfs does not know it."""
        if not node.is_block and node.number[0] == MEMORY_MAJOR:
            return None
        if (device := device_of_node(self.host, node)) is None:
            return None
        plugged = self.host.plugged(device.path)
        known = self._identities.get(device.path)
        if known is None or known[0] != plugged:
            ranks = self.known_names.ranks.assign(groups_beside(device))
            known = self._identities[device.path] = plugged, identity_of(device, ranks).hardware
        return known[1]

    def _parts(self, node: HostDeviceNode) -> tuple[Key, ...]:
        """Return the device numbers of all parts of a node's device, such as the partitions of a disk."""
        device = device_of_node(self.host, node)
        return () if device is None else part_numbers(device)

    def _is_forbidden_disk(self, path: str, real_path: str, selector: PathSelector) -> bool:
        """Whether `path` leads to a whole disk that nothing allows, whatever the path is called (by-id)."""
        disks = (f"{root}/{disk}" for root in DEVICE_ROOTS for disk in DISK_NODES)
        if "rawDisks" in self.allow or not any(covers(disk, real_path) for disk in disks):
            return False
        if not covers_whole_root(selector.glob, DEVICE_ROOTS):
            self._log_once(path, f"{quoted(path)} is a whole disk; write allow: [rawDisks]")
        return True

    def _log_once(self, path: str, reason: str, message: str = _LEFT_OUT) -> None:
        log_once(self._logged_paths, message, self.resource_name, path, reason)

    def _name(self, pattern: str, node: HostDeviceNode, facts: Mapping[str, str | int]) -> str:
        """Return the device ID: of the template, else what the wildcards stand for, from their folder on."""
        if self.id_template is not None:
            text = render_one(self.id_template, facts)
            if not isinstance(text, Missing):
                return stable_id(text)
        parts = pattern.split("/")
        wild = next((at for at, part in enumerate(parts) if has_wildcard(part)), len(parts) - 1)
        return stable_id("_".join(node.host_path.split("/")[wild:]))


def _facts(node: HostDeviceNode, numa_node: int | None) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"file": Path(node.host_path).name, "hostPath": node.host_path}
    return facts if numa_node is None else {**facts, "numaNode": numa_node}
