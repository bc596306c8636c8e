"""The source `bundle`: several device nodes that the file lists by path are one device."""

from __future__ import annotations

import os
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.config.globs import covers
from devplug.daemon.config.host_paths import DISK_NODES
from devplug.daemon.config.loader import DEVICE_ROOTS
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.hardware import device_of_node, numa_node_of
from devplug.daemon.sources.host import Host, NotADeviceNodeError, log_once, timed, unusable_in_containers
from devplug.daemon.sources.identities import Identity, wanted_by
from devplug.errors import quoted
from devplug.holds.hardware import MEMORY_MAJOR
from devplug.holds.names import Names
from devplug.plugin.discovery import watch_paths

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from devplug.daemon.config.selectors import BundlePath, BundleSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device import HostDeviceNode

_LEFT_OUT: Final = "a path that the configuration names is left out"
_UNUSABLE: Final = "a device is advertised that no container can open"


def bundle_identities(selectors: Sequence[BundleSelector]) -> dict[BundleSelector, Identity]:
    """Return the device ID of each bundle: the file name of its first node that is not optional. Pure.

    If two bundles had the same ID, each gets that node's whole path. Only the file decides, so that no ID
    depends on what is plugged in first.
    """
    paths = {selector: _first(selector).path for selector in selectors}
    counted = Counter(_file_name(path) for path in paths.values())
    return {
        selector: Identity(_file_name(path) if counted[_file_name(path)] == 1 else _whole(path), _whole(path))
        for selector, path in paths.items()
    }


class BundleSource(Struct):
    """The bundles of one resource, each one device; lives as long as the resource is served.

    A bundle is present while all of its nodes are that are not optional.
    """

    resource_name: str
    selectors: tuple[BundleSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30.0
    known_names: Names = field(default_factory=Names)
    _logged_paths: set[str] = field(default_factory=set)

    async def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, at each change, and every `resync_seconds`."""
        paths = [self.host.inside(member.path) for selector in self.selectors for member in selector.paths]
        async for _ in watch_paths(*paths, every_seconds=self.resync_seconds):
            yield self.look()

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the bundles that are there now, sorted by name."""
        identities = bundle_identities(self.selectors)
        found = {selector: one for selector in identities if (one := self._found(selector)) is not None}
        # A bundle is identified by what the file says about it, wherever its nodes are plugged in.
        keys = {selector: "\n".join(member.path for member in selector.paths) for selector in found}
        names = self.known_names.assign(
            wanted_by(self.id_template, keys[selector], identities[selector], one.facts)
            for selector, one in found.items()
        )
        named = {names[keys[selector]]: one for selector, one in found.items()}
        return tuple(replace(named[name], name=name) for name in sorted(named))

    def _found(self, selector: BundleSelector) -> HostDevice | None:
        """Return a bundle as a device that has no name yet; None if a node is missing."""
        nodes = {member.path: self._node(member) for member in selector.paths}
        if any(nodes[member.path] is None and not member.optional for member in selector.paths):
            return None
        present = [node for node in nodes.values() if node is not None]
        first = nodes[_first(selector).path] or present[0]
        numa_nodes = {number for node in present if (number := numa_node_of(self.host, node)) is not None}
        numa_node = numa_nodes.pop() if len(numa_nodes) == 1 else None
        facts: dict[str, str | int] = {"file": _file_name(first.host_path), "hostPath": first.host_path}
        if numa_node is not None:
            facts["numaNode"] = numa_node
        return HostDevice("", tuple(present), numa_node, MappingProxyType(facts), self._hardware(first))

    def _node(self, member: BundlePath) -> HostDeviceNode | None:
        """Return the node of a member, under the path that the file has for it; None if it is not there."""
        path = member.path
        try:
            node = self.host.node(path)
        except NotADeviceNodeError as error:
            self._log_once(path, str(error))
            return None
        if node is None:
            return None
        real_path = self.host.outside(os.path.realpath(self.host.inside(path)))
        if node.is_block and "rawDisks" not in self.allow and _is_disk(real_path):
            self._log_once(path, f"{quoted(path)} is a whole disk; write allow: [rawDisks]")
            return None
        if reason := unusable_in_containers(node):
            self._log_once(path, reason, _UNUSABLE)
        name = member.name or _file_name(path)
        return replace(node, name=name, real_path="" if real_path == path else real_path)

    def _hardware(self, node: HostDeviceNode) -> str:
        if node.number[0] == MEMORY_MAJOR and not node.is_block:
            return ""
        device = device_of_node(self.host, node)
        return device.path if device else node.real_path or node.host_path

    def _log_once(self, path: str, reason: str, message: str = _LEFT_OUT) -> None:
        log_once(self._logged_paths, message, self.resource_name, path, reason)


def _first(selector: BundleSelector) -> BundlePath:
    """Return the first node that must be there; a file without one is refused when it is read."""
    return next((member for member in selector.paths if not member.optional), selector.paths[0])


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _whole(path: str) -> str:
    return path.removeprefix("/").replace("/", "_")


def _is_disk(real_path: str) -> bool:
    return any(covers(f"{root}/{disk}", real_path) for root in DEVICE_ROOTS for disk in DISK_NODES)
