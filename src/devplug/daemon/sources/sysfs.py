"""The source `sysfs`: devices of a kernel subsystem, a class or a bus in /sys, by name and attributes.

Their IDs, which never change, are made in `identities`. Templates may have `{attr.NAME}` for the attributes
that the selectors name and for `STABLE_ATTRIBUTES`; the value is the device's own or its nearest parent's.
Stable ones are read up to the parent that gives the ID: a camera does not get its controller's vendor.
"""

from __future__ import annotations

import os
from collections import Counter
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.daemon.sources.device import HostDevice, without_parts
from devplug.daemon.sources.device_nodes import (
    DISKS,
    LINK_GLOBS,
    class_nodes_below,
    nodes_with_links,
    rdma_nodes,
    stable_links,
    with_rdma_cm,
)
from devplug.daemon.sources.follower import follow
from devplug.daemon.sources.hardware import SysDevice, devices_of_subsystem
from devplug.daemon.sources.host import MEMORY_NUMBERS, Host, log_once, timed
from devplug.daemon.sources.identities import called_by, groups_of, identity_of, part_numbers, wanted_by
from devplug.errors import quoted
from devplug.holds.names import Names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterable, Mapping

    from devplug.daemon.config.selectors import SysfsSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device import HostDeviceNode
    from devplug.daemon.sources.device_nodes import StableLinks
    from devplug.daemon.sources.identities import Identity

_UNSERVED: Final = "a device matches the configuration but cannot be served"

STABLE_ATTRIBUTES: Final = (
    *("subsystem", "driver", "name", "index", "vendor", "device", "model", "serial", "wwid", "nsid"),
    *("manufacturer", "product", "idVendor", "idProduct", "node_guid", "afu_id"),
)
"""Attributes that say what a device is, not how it is doing: they change with it or with its program."""

_NODES_BELOW: Final = frozenset({"fpga_region", "infiniband", "input", "rc", "sound"})
"""Subsystems whose devices have their nodes in child devices, which appear a moment later."""

_CARRIERS: Final = frozenset(
    {"usb", "pci", "platform", "hid", "nvme", "scsi", "infiniband_verbs", "infiniband_mad"},
)
"""Subsystems of their parents and children, with which attributes, drivers and nodes come and go."""


class _Match(Struct, frozen=True):
    device: SysDevice
    subsystem: str
    """As the selector has it."""
    nodes: tuple[HostDeviceNode, ...]
    is_whole: bool
    """Whether its nodes are those of its child devices, so that these are part of the device."""


class SysfsSource(Struct):
    """The devices that the selectors of one resource match; lives as long as the resource is served."""

    resource_name: str
    selectors: tuple[SysfsSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30.0
    known_names: Names = field(default_factory=Names)
    _has_nodes: set[str] = field(default_factory=lambda: set(_NODES_BELOW))
    """Subsystems of which some device has a node, and folders of devices that have had nodes."""
    _ambiguous: set[str] = field(default_factory=set)
    """Preferred IDs that two devices had at the same time: udev's by-id link may move from one to the
    other."""
    _logged_paths: set[str] = field(default_factory=set)

    def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, after each settled change, and every `resync_seconds`."""
        subsystems = {selector.subsystem for selector in self.selectors} | _CARRIERS
        globs = [self.host.inside(glob) for glob in LINK_GLOBS]
        return follow(self.look, subsystems=subsystems, globs=globs, resync_seconds=self.resync_seconds)

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the devices that are there now, sorted by name."""
        reader = _Reader()
        identities: dict[str, Identity] = {}
        kinds: dict[str, str] = {}
        for subsystem in dict.fromkeys(selector.subsystem for selector in self.selectors):
            devices = devices_of_subsystem(self.host, subsystem)
            ranks = self.known_names.ranks.assign(groups_of(devices))
            if subsystem not in self._has_nodes and any(device.node() for device in devices):
                self._has_nodes.add(subsystem)
            for device in devices:
                if any(_does_match(reader, selector, device, subsystem) for selector in self.selectors):
                    identities[device.path] = identity_of(device, ranks)
                    kinds[device.path] = subsystem
        self._ambiguous |= _said_twice(identities.values())
        links = stable_links(self.host)
        matches = {
            path: self._match(path, kinds[path], identity, links) for path, identity in identities.items()
        }
        listed = [
            match for match in matches.values() if self._is_there(match) and not _is_part(match, matches)
        ]
        return self._found(listed, identities, reader)

    def _match(self, path: str, subsystem: str, identity: Identity, links: StableLinks) -> _Match:
        device = SysDevice(self.host, path)
        own = device.node()
        found = [own] if own else [*class_nodes_below(device)]
        if subsystem == "infiniband":
            found += rdma_nodes(device)
        if found:
            self._has_nodes.add(path)
        allowed = [node for node in dict.fromkeys(found) if self._may_give(node)]
        is_unique = identity.preferred not in self._ambiguous | {identity.by_place}
        nodes = nodes_with_links(self.host, allowed, links, is_unique=is_unique)
        return _Match(device, subsystem, with_rdma_cm(self.host, nodes), is_whole=not own)

    def _is_there(self, match: _Match) -> bool:
        """Whether the device is complete: it has nodes, or devices of its subsystem never have any.

        LEDs and sensors never have nodes; others may not have theirs yet, or not any more.
        """
        return bool(match.nodes) or not self._has_nodes & {match.device.path, match.subsystem}

    def _may_give(self, node: HostDeviceNode) -> bool:
        path = node.host_path
        if node.subsystem in DISKS and "rawDisks" not in self.allow:
            self._log_once(path, f"{quoted(path)} reads and writes a whole disk; write allow: [rawDisks]")
            return False
        if node.number in MEMORY_NUMBERS and not node.is_block:
            self._log_once(path, f"{quoted(path)} is the machine's own memory, which is never given out")
            return False
        return True

    def _log_once(self, path: str, reason: str) -> None:
        log_once(self._logged_paths, _UNSERVED, self.resource_name, path, reason)

    def _found(
        self, matches: list[_Match], identities: dict[str, Identity], reader: _Reader
    ) -> tuple[HostDevice, ...]:
        facts = {match.device.path: self._facts(match, reader) for match in matches}
        # While a device goes away its files go one by one, this one before all that it is called by
        # (drivers/base/core.c, device_del).
        matches = [match for match in matches if match.device.attribute("uevent") is not None]
        names = self.known_names.assign(
            wanted_by(self.id_template, path, identities[path], facts[path])
            for path in (match.device.path for match in matches)
        )
        found = [
            HostDevice(
                names[match.device.path],
                match.nodes,
                match.device.numa_node,
                MappingProxyType(facts[match.device.path]),
                match.device.path,
                plugged=self.host.plugged(match.device.path),
                identity=identities[match.device.path].hardware,
                parts=part_numbers(match.device),
            )
            for match in matches
        ]
        return tuple(sorted(without_parts(found), key=lambda one: one.name))

    def _facts(self, match: _Match, reader: _Reader) -> dict[str, str | int]:
        device = match.device
        facts: dict[str, str | int] = {}
        if match.nodes:
            facts |= {"file": match.nodes[0].file_name, "hostPath": match.nodes[0].host_path}
        if (numa_node := device.numa_node) is not None:
            facts["numaNode"] = numa_node
        if (function := device.nearest("pci")) is not None:
            facts["pciAddress"] = function.name
        near, far = called_by(device), (device, *device.parents())
        asked = sorted({name for selector in self.selectors for name in selector.attributes})
        texts = {
            "serial": reader.inherited(near, "serial", "HID_UNIQ"),
            "model": reader.inherited(near, "model", "product", "name"),
            **{f"attr.{name}": reader.inherited(near, name) for name in STABLE_ATTRIBUTES},
            **{f"attr.{name}": reader.inherited(far, name) for name in asked},
        }
        return facts | {name: text for name, text in texts.items() if text}


class _Reader(Struct):
    """A reader of attributes; lives as long as one scan.

    It opens only what is in a folder: a device and all its parents are asked for many attributes, and
    have few of them.
    """

    _listed: dict[str, frozenset[str]] = field(default_factory=dict)

    def attribute(self, device: SysDevice, name: str) -> str | None:
        """Return the device's own attribute, or None if it has none.

        A link counts as one, with the last name of its target (`driver`, `subsystem`), and so does a variable
        of its uevents (`DEVTYPE`).
        """
        first = name.partition("/")[0]
        if first not in self._names(device):
            return device.uevent().get(name) if name.isupper() else None
        target = None if ".." in name.split("/") else device.link(name)
        return device.attribute(name) if target is None else target

    def inherited(self, devices: Iterable[SysDevice], *names: str) -> str | None:
        """Return the first of several attributes that one of a device and its parents, in this order, has."""
        asked = (self.attribute(one, name) for name in names for one in devices)
        return next((text for text in asked if text is not None), None)

    def _names(self, device: SysDevice) -> frozenset[str]:
        if device.path not in self._listed:
            try:
                names = frozenset(os.listdir(device.host.inside(device.path)))  # noqa: PTH208
            except OSError:
                names = frozenset()
            self._listed[device.path] = names
        return self._listed[device.path]


def _does_match(reader: _Reader, selector: SysfsSelector, device: SysDevice, subsystem: str) -> bool:
    if selector.subsystem != subsystem or not fnmatchcase(device.name, selector.name or "*"):
        return False
    if subsystem == "tty" and device.attribute("type") == "0":
        # The driver of serial ports makes the same number of them on every machine; this one has no chip.
        return False
    far = (device, *device.parents())
    texts = ((glob, reader.inherited(far, name)) for name, glob in selector.attributes.items())
    return all(text is not None and fnmatchcase(text, glob) for glob, text in texts)


def _said_twice(identities: Iterable[Identity]) -> set[str]:
    counted = Counter(identity.preferred for identity in identities)
    return {preferred for preferred, number in counted.items() if number > 1}


def _is_part(match: _Match, matches: Mapping[str, _Match]) -> bool:
    """Whether another match has the nodes of all below it, and of this one: a sound card has its streams."""
    above = (matches[parent.path] for parent in match.device.parents() if parent.path in matches)
    return any(one.is_whole and one.nodes for one in above)
