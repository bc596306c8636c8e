"""Which device nodes belong to what sysfs lists, as the kernel tells of them, and which come along."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug.daemon.sources.host import NotADeviceNodeError
from devplug.daemon.sources.sysdevices import devices_of_subsystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.sources.found import FoundNode
    from devplug.daemon.sources.host import Host
    from devplug.daemon.sources.sysdevices import SysDevice

__all__ = ["DISKS", "RDMA_CM", "class_nodes_below", "rdma_nodes", "with_rdma_cm"]

RDMA_CM: Final = "/dev/infiniband/rdma_cm"
"""The connection manager of RDMA: one node for all adapters, and whoever has an adapter needs it."""

DISKS: Final = frozenset({"block", "scsi_generic", "bsg", "nvme-generic"})
"""Subsystems whose nodes read and write whole disks; they need `allow: [rawDisks]`."""

_RDMA_CLASSES: Final = ("infiniband_verbs", "infiniband_mad")


def class_nodes_below(device: SysDevice, subsystem: str = "") -> Iterator[FoundNode]:
    """Yield the nodes that the kernel tells of below a device, its own left out; nothing looks into /dev.

    A nested device of its own subsystem is another one: what is below that is left out, as behind a PCI
    bridge. Its own node is not, as an input device has them: input3/event5. `subsystem` is the device's.
    """
    subsystem = subsystem or device.subsystem
    for child in device.children():
        if (node := child.node()) is not None:
            yield node
        if child.subsystem != subsystem:
            yield from class_nodes_below(child, subsystem)


def rdma_nodes(adapter: SysDevice) -> Iterator[FoundNode]:
    """Yield the nodes of an RDMA adapter, as in mlx5_0: they hang beside it, and name it in `ibdev`."""
    for name in _RDMA_CLASSES:
        for device in devices_of_subsystem(adapter.host, name):
            if device.attribute("ibdev") == adapter.name and (node := device.node()) is not None:
                yield node


def with_rdma_cm(host: Host, nodes: tuple[FoundNode, ...]) -> tuple[FoundNode, ...]:
    """Return nodes that are there, and the connection manager's too if one of them is an RDMA adapter's."""
    if not any(node.subsystem == "infiniband_verbs" for node in nodes):
        return nodes
    try:
        manager = host.node(RDMA_CM)
    except NotADeviceNodeError:
        return nodes
    return nodes if manager is None else (*nodes, replace(manager, subsystem="misc", is_shared=True))
