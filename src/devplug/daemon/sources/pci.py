"""The source `pci`: every function is one device with its driver's nodes; so is an IOMMU group under VFIO."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.sources.device import HostDevice, wanted_name
from devplug.daemon.sources.device_nodes import (
    DISKS,
    LINK_GLOBS,
    nodes_with_links,
    stable_links,
    with_rdma_cm,
)
from devplug.daemon.sources.follower import follow
from devplug.daemon.sources.hardware import PCI_ADDRESS, devices_of_subsystem
from devplug.daemon.sources.host import Host, timed
from devplug.daemon.sources.identities import part_numbers
from devplug.daemon.sources.vfio import group_fault, group_nodes, is_for_user_space, members, shared_nodes
from devplug.devices import Health
from devplug.holds.hardware import Hardware
from devplug.holds.names import Names, Wanted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

    from devplug.daemon.config.selectors import PciSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device_nodes import StableLinks
    from devplug.daemon.sources.hardware import SysDevice

ATTRIBUTES: Final = (
    *("vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision"),
    *("label", "sriov_totalvfs"),
)
"""The names that `{attr.NAME}` may have for a function: files in sysfs that never change; values as in sysfs
(`0x8086`).

Also `{attr.driver}`, `{attr.physfn}` (the physical function's address) and `{attr.iommu_group}` (a number,
which a reboot may change): links in sysfs. And `{attr.vf}`, the number of a virtual function.
"""

LINKS: Final = ("driver", "physfn", "iommu_group")

SERIALS: Final = ("serial_number", "unique_id")
"""Where the kernel (serial_number) and some drivers (unique_id of amdgpu) show a serial number."""

SUBSYSTEMS: Final = frozenset(
    {
        *("pci", "vfio", "vfio-dev", "iommu", "misc", "nvme", "nvme-generic", "block", "drm", "accel", "net"),
        *("infiniband", "infiniband_verbs", "infiniband_mad", "vdpa", "vhost-vdpa", "virtio", "platform"),
        *(
            "fpga_region",
            "fpga_manager",
            "dfl",
            "uio",
            "tpm",
            "tpmrm",
            "tty",
            "video4linux",
            "media",
            "sound",
        ),
        *("ptp", "i2c-dev", "scsi_generic", "bsg", "dma", "dsa", "qat", "habanalabs", "mic", "char", "hwmon"),
    },
)
"""Subsystems whose events may concern a function: its own, and those of the nodes that drivers make for
it."""

NOTHING: Final = "0xffff"
"""What a read over PCI gives if no device answers it (PCI Local Bus Specification 3.0, 6.1)."""

_USB_BUS: Final = re.compile(r"usb\d+")
_VIRTUAL_FUNCTION: Final = re.compile(r"virtfn(\d+)")


class PciSource(Struct):
    """The functions that the selectors of one resource match; lives as long as the resource is served.

    The ID of a function is its address. Several that match and are in one IOMMU group under VFIO are one
    device, because they can only be allocated together; its ID is the first one's address.
    """

    resource_name: str
    selectors: tuple[PciSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30.0
    known_names: Names = field(default_factory=Names)

    def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, at each change, and every `resync_seconds`."""
        globs = [self.host.inside(glob) for glob in (*LINK_GLOBS, "/dev/vfio/*", "/dev/vfio/devices/*")]
        return follow(self.look, subsystems=SUBSYSTEMS, globs=globs, resync_seconds=self.resync_seconds)

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the functions that are there now, sorted by name."""
        matched = [
            function
            for function in sorted(devices_of_subsystem(self.host, "pci"), key=lambda one: _order(one.name))
            if _is_meant(self.selectors, cache(partial(_value, function)))
        ]
        links = stable_links(self.host)
        numbers = cache(_numbers_of_virtual_functions)
        found: dict[str, tuple[Wanted, HostDevice]] = {}
        for group, unit in _units(matched):
            first = unit[0]
            one = self._found(unit, group, links, numbers)
            preferred = wanted_name(self.id_template, one.facts, first.name)
            # While a function goes away its files go one by one, then its folder (drivers/base/core.c).
            if first.attribute("class") is not None:
                found[first.path] = Wanted(first.path, preferred, first.name), one
        names = self.known_names.assign(wanted for wanted, _ in found.values())
        named = (replace(one, name=names[path]) for path, (_, one) in found.items())
        return tuple(sorted(named, key=lambda one: one.name))

    def _found(
        self,
        unit: Sequence[SysDevice],
        group: str,
        links: StableLinks,
        numbers: Callable[[SysDevice], Mapping[str, int]],
    ) -> HostDevice:
        """Return a function, or several of one IOMMU group, as a device that has no name yet."""
        first = unit[0]
        kernels = [
            node
            for function in unit
            for node in function.nodes_below(_is_other)
            if "rawDisks" in self.allow or node.subsystem not in DISKS
        ]
        nodes = with_rdma_cm(self.host, nodes_with_links(self.host, kernels, links, is_unique=True))
        hardware, fault = first.path, None
        if group:
            of_group = members(self.host, group)
            own = group_nodes(self.host, group)
            nodes = (*own, *nodes, *shared_nodes(self.host, [*own, *nodes]))
            fault = group_fault(group, [member for _, member in of_group]) or (
                None if own else f"its IOMMU group {group} has no node in /dev/vfio"
            )
            # One group is one piece of hardware, whichever of its members a resource asks for.
            hardware = next((one.path for one, member in of_group if not member.is_bridge), hardware)
        if any(function.attribute("vendor") == NOTHING for function in unit):
            fault = "it does not answer: its vendor reads 0xffff"
        numa_node = first.numa_node
        facts = _facts(first, numbers)
        if numa_node is not None:
            facts["numaNode"] = numa_node
        if nodes:
            facts |= {"file": nodes[0].file_name, "hostPath": nodes[0].host_path}
        health, plugged = Health.from_fault(fault), self.host.plugged(hardware)
        parts = [number for function in unit for number in part_numbers(function)]
        return HostDevice(
            "",
            nodes,
            numa_node,
            MappingProxyType(facts),
            hardware,
            health,
            plugged=plugged,
            identity=Hardware(hardware.rpartition("/")[2], is_whole=True),
            parts=tuple(parts),
        )


def _value(function: SysDevice, name: str) -> str:
    """Return an attribute or link of a function as selectors write it: `8086`, `120000`, `vfio-pci`."""
    if name == "address":
        return function.name
    if name in LINKS:
        return function.link(name) or ""
    return (function.attribute(name) or "").lower().removeprefix("0x")


def _is_meant(selectors: Collection[PciSelector], value: Callable[[str], str]) -> bool:
    """Whether one of the selectors matches a function with these values."""
    return any(_matches(selector, value) for selector in selectors)


def _matches(selector: PciSelector, value: Callable[[str], str]) -> bool:
    # What is known without a file comes first: there may be hundreds of functions.
    address = selector.address is None or fnmatchcase(value("address"), selector.address)
    exact = (
        ("vendor", selector.vendor),
        ("device", selector.device),
        ("subsystem_vendor", selector.subsystem_vendor),
        ("subsystem_device", selector.subsystem_device),
    )
    return (
        address
        and all(wanted is None or value(name) == wanted.lower() for name, wanted in exact)
        and (selector.class_ is None or value("class").startswith(selector.class_.lower()))
        and (
            selector.driver is None
            or (value("driver") != "" and fnmatchcase(value("driver"), selector.driver))
        )
        and selector.virtual_function_of in {None, value("physfn")}
    )


def _units(matched: Sequence[SysDevice]) -> list[tuple[str, list[SysDevice]]]:
    """Return the devices: a function with "", or the functions of an IOMMU group with its number."""
    groups = {one.path: one.link("iommu_group") or "" for one in matched}
    claimed = {groups[one.path] for one in matched if groups[one.path] and is_for_user_space(one)}
    units: dict[str, tuple[str, list[SysDevice]]] = {}
    for one in matched:
        group = groups[one.path] if groups[one.path] in claimed else ""
        units.setdefault(group or one.path, (group, []))[1].append(one)
    return list(units.values())


def _order(address: str) -> tuple[int, ...]:
    """Return what sorts addresses as the bus does."""
    return (
        tuple(int(part, 16) for part in re.split(r"[:.]", address)) if PCI_ADDRESS.fullmatch(address) else ()
    )


def _is_other(name: str) -> bool:
    """Whether a folder below a function is a device of its own: a function behind a bridge, or a USB bus."""
    return bool(PCI_ADDRESS.fullmatch(name) or _USB_BUS.fullmatch(name))


def _facts(function: SysDevice, numbers: Callable[[SysDevice], Mapping[str, int]]) -> dict[str, str | int]:
    """Return the values of template variables for a function, without its nodes and its NUMA node."""
    facts: dict[str, str | int] = {
        **{f"attr.{name}": value for name in ATTRIBUTES if (value := function.attribute(name))},
        **{f"attr.{name}": value for name in LINKS if (value := function.link(name))},
        "pciAddress": function.name,
    }
    if "attr.vendor" in facts:
        facts["model"] = f"{_value(function, 'vendor')}:{_value(function, 'device')}"
    if (physical := function.linked("physfn")) and (
        number := numbers(physical).get(function.name)
    ) is not None:
        facts["attr.vf"] = number
    if serial := _serial(function):
        facts["serial"] = serial
    return facts


def _serial(function: SysDevice) -> str:
    own = (value for name in SERIALS if (value := function.attribute(name)))
    nvme = (
        value
        for child in function.children()
        if child.subsystem == "nvme" and (value := child.attribute("serial"))
    )
    return next(chain(own, nvme), "")


def _numbers_of_virtual_functions(physical: SysDevice) -> dict[str, int]:
    """Return which number each virtual function of a physical one has, by address: its links `virtfnN`."""
    try:
        names = os.listdir(physical.host.inside(physical.path))  # noqa: PTH208
    except OSError:
        return {}
    links = ((name, _VIRTUAL_FUNCTION.fullmatch(name)) for name in names)
    return {physical.link(name) or "": int(found[1]) for name, found in links if found}
