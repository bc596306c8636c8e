"""The IOMMU groups of VFIO: allocated as a whole, and only if no driver of the host has a part.

The rules are the kernel's, Documentation/driver-api/vfio.rst: the devices of a group are not isolated from
each other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.daemon.sources.hardware import device_at, natural
from devplug.daemon.sources.host import NotADeviceNodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.daemon.sources.device import HostDeviceNode
    from devplug.daemon.sources.hardware import SysDevice
    from devplug.daemon.sources.host import Host

GROUPS: Final = "/sys/kernel/iommu_groups"
BRIDGE_CLASSES: Final = ("0x0604", "0x0607")
"""PCI-to-PCI and CardBus bridges, which the kernel ignores in a group: their PCI header has a type of its
own."""

HARMLESS_DRIVERS: Final = frozenset({"pci-stub", "pcieport"})
"""Drivers other than VFIO's that may have a device of a group: they do no DMA by the kernel
(`driver_managed_dma`)."""


class Member(Struct, frozen=True):
    """One device of an IOMMU group."""

    name: str
    driver: str | None = None
    is_bridge: bool = False
    is_for_user_space: bool = False
    """Whether a driver of VFIO has it."""


def is_for_user_space(device: SysDevice) -> bool:
    """Whether a driver of VFIO has the device: vfio-pci, or a maker's own such as mlx5_vfio_pci.

    All of them make a folder `vfio-dev` from kernel 6.1 on; before, they are known by their names.
    """
    driver = (device.driver or "").replace("_", "-")
    return driver.endswith("vfio-pci") or (
        bool(driver) and os.path.isdir(device.host.inside(f"{device.path}/vfio-dev"))  # noqa: PTH112
    )


def members(host: Host, group: str) -> list[tuple[SysDevice, Member]]:
    """Return the devices of an IOMMU group, in natural order."""
    folder = f"{GROUPS}/{group}/devices"
    try:
        names = sorted(os.listdir(host.inside(folder)), key=natural)  # noqa: PTH208
    except OSError:
        return []
    devices = [device for name in names if (device := device_at(host, f"{folder}/{name}"))]
    return [
        (
            device,
            Member(
                device.name,
                device.driver,
                (device.attribute("class") or "").startswith(BRIDGE_CLASSES),
                is_for_user_space(device),
            ),
        )
        for device in devices
    ]


def group_fault(group: str, of_group: Sequence[Member]) -> str | None:
    """Return why a group cannot be allocated, or None: a driver of the host has one of its devices."""
    for member in of_group:
        if not (
            member.driver is None
            or member.is_bridge
            or member.is_for_user_space
            or member.driver in HARMLESS_DRIVERS
        ):
            return (
                f"{member.name} of the same IOMMU group {group} has the driver {member.driver}; "
                "bind it to vfio-pci, or to no driver"
            )
    return None


def group_nodes(host: Host, group: str) -> list[HostDeviceNode]:
    """Return the node of an IOMMU group, or none if it is not there (yet).

    If the kernel was set up to work without an IOMMU, its name is `noiommu-N`.
    """
    names = (f"/dev/vfio/{group}", f"/dev/vfio/noiommu-{group}")
    return [replace(node, subsystem="vfio") for name in names if (node := _node(host, name)) is not None][:1]


def shared_nodes(host: Host, nodes: Sequence[HostDeviceNode]) -> list[HostDeviceNode]:
    """Return the nodes that a container needs beside `nodes`, and that all groups share.

    With group nodes, their container; with VFIO's nodes of devices (from kernel 6.6 on), the IOMMU's node.
    """
    kinds = {node.subsystem for node in nodes}
    wanted = [("vfio", "/dev/vfio/vfio"), ("vfio-dev", "/dev/iommu")]
    return [
        replace(node, subsystem=kind, is_shared=True)
        for kind, path in wanted
        if kind in kinds and (node := _node(host, path)) is not None
    ]


def _node(host: Host, path: str) -> HostDeviceNode | None:
    try:
        return host.node(path)
    except NotADeviceNodeError:
        return None
