"""The device nodes of hardware that sysfs lists, and the names that udev gives them.

sysfs says which nodes belong to a device; some nodes of drivers are added. udev's links name a node by what
the device is (by-id) or by its port (by-path). The response to Allocate has the link where there is one: the
runtime resolves it at each start of the container, and by then the kernel may have numbered the nodes anew.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.daemon.sources.hardware import devices_of_subsystem
from devplug.daemon.sources.host import NotADeviceNodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from devplug.daemon.sources.device import HostDeviceNode
    from devplug.daemon.sources.hardware import SysDevice
    from devplug.daemon.sources.host import Host

RDMA_CM: Final = "/dev/infiniband/rdma_cm"
"""The connection manager of RDMA: one node for all adapters, and whoever has an adapter needs it."""

DISKS: Final = frozenset({"block", "scsi_generic", "bsg", "nvme-generic"})
"""Subsystems whose nodes read and write whole disks; they need `allow: [rawDisks]`."""

_RDMA_CLASSES: Final = ("infiniband_verbs", "infiniband_mad")

LINK_GLOBS: Final = ("/dev/*/by-id/*", "/dev/*/by-path/*")
"""Where the links appear: after the kernel's event, when udev has handled it."""

DEVICES: Final = "/dev"


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


def class_nodes_below(device: SysDevice, subsystem: str = "") -> Iterator[HostDeviceNode]:
    """Yield the nodes that sysfs has below a device, without its own; nothing looks into /dev.

    A nested device of its own subsystem is another one: what is below that is left out, as behind a PCI
    bridge. Its own node is not, as an input device has them: input3/event5. `subsystem` is the device's.
    """
    subsystem = subsystem or device.subsystem
    for child in device.children():
        if (node := child.node()) is not None:
            yield node
        if child.subsystem != subsystem:
            yield from class_nodes_below(child, subsystem)


def rdma_nodes(adapter: SysDevice) -> Iterator[HostDeviceNode]:
    """Yield the nodes of an RDMA adapter, as in mlx5_0: they hang beside it, and name it in `ibdev`."""
    for name in _RDMA_CLASSES:
        for device in devices_of_subsystem(adapter.host, name):
            if device.attribute("ibdev") == adapter.name and (node := device.node()) is not None:
                yield node


def with_rdma_cm(host: Host, nodes: tuple[HostDeviceNode, ...]) -> tuple[HostDeviceNode, ...]:
    """Return nodes that are there, and the connection manager's too if one of them is an RDMA adapter's."""
    if not any(node.subsystem == "infiniband_verbs" for node in nodes):
        return nodes
    try:
        manager = host.node(RDMA_CM)
    except NotADeviceNodeError:
        return nodes
    return nodes if manager is None else (*nodes, replace(manager, subsystem="misc", is_shared=True))


# ── links ─────────────────────────────────────────────────────────────────────────────────────────


class StableLinks(Struct, frozen=True):
    """The stable links at one moment: the best one of each node, by the kernel's path of the node."""

    by_id: Mapping[str, str]
    """Links made of what a device says of itself. Of two devices with one serial number, the last one has
    it."""
    by_path: Mapping[str, str]
    """Links made of the port where a device is plugged in."""

    def of(self, path: str, *, is_unique: bool) -> str:
        """Return the most stable path of a node; its own if it has no link.

        `is_unique`: no other device says the same of itself, so that the by-id link stays with this one.
        """
        by_id = self.by_id.get(path) if is_unique else None
        return by_id or self.by_path.get(path) or path


def stable_links(host: Host) -> StableLinks:
    """Return the links below /dev that lead to device nodes. Of several for one node the shortest counts."""
    found: dict[str, dict[str, str]] = {"by-id": {}, "by-path": {}}
    for folder in _names(host, DEVICES):
        for kind, best in found.items():
            place = f"{DEVICES}/{folder}/{kind}"
            for name in sorted(_names(host, place), key=lambda name: (len(name), name)):
                target = _target(host, f"{place}/{name}")
                if target and name.isprintable():
                    best[target] = min(best.get(target, f"{place}/{name}"), f"{place}/{name}", key=_rank)
    return StableLinks(MappingProxyType(found["by-id"]), MappingProxyType(found["by-path"]))


def nodes_with_links(
    host: Host,
    nodes: Iterable[HostDeviceNode],
    links: StableLinks,
    *,
    is_unique: bool,
) -> tuple[HostDeviceNode, ...]:
    """Return those of `nodes`, as the kernel names them, that are in /dev now, by their stable paths.

    A node that is not there yet is left out, and one whose path leads to something else: a node of another
    number, or no node at all.
    """
    return tuple(
        node if path == node.host_path else replace(node, host_path=path, real_path=node.host_path)
        for node in nodes
        if _is_there(host, node) and (path := links.of(node.host_path, is_unique=is_unique))
    )


def _rank(path: str) -> tuple[int, str]:
    return len(path), path


def _names(host: Host, folder: str) -> list[str]:
    try:
        return os.listdir(host.inside(folder))  # noqa: PTH208
    except OSError:
        return []


def _target(host: Host, path: str) -> str:
    """Return where a link leads, by its text: udev makes each of them lead to the node itself."""
    try:
        target = os.readlink(host.inside(path))  # noqa: PTH115
    except OSError:
        return ""
    return os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120


def _is_there(host: Host, node: HostDeviceNode) -> bool:
    try:
        seen = host.node(node.host_path)
    except NotADeviceNodeError:
        return False
    return seen is not None and (seen.number, seen.is_block) == (node.number, node.is_block)
