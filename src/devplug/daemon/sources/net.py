"""The source `net`: network interfaces and SR-IOV functions, by name, driver or address.

A device is the hardware. Moving its interface into a pod is the work of CNI, or of CDI's netDevices where the
runtime has them; a container gets the device nodes, and the name and the address in its environment. A
function whose interface is in a pod, or that a virtual machine has, stays listed: nothing was unplugged.

The kernel shows interfaces, and sends events of them, only within their network namespace. A daemon
without the machine's network finds functions by driver, address and virtualFunctionOf, but not by interface.

IDs never change: the PCI address of the function, or the identity of the USB device or the device of the
board (`identities`); with a dot and more where a function has several interfaces (`dev_port` from 1 on, `sf`
and the number of a subfunction, the port name of a representor); the interface's name where there is no
hardware.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.device_nodes import StableLinks, class_nodes_below, nodes_with_links, with_rdma_cm
from devplug.daemon.sources.follower import follow
from devplug.daemon.sources.hardware import SysDevice, devices_of_subsystem
from devplug.daemon.sources.host import Host, timed
from devplug.daemon.sources.identities import Identity, anchor_of, identity_of, inner_port, wanted_by
from devplug.daemon.sources.vfio import group_fault, group_nodes, is_for_user_space, members, shared_nodes
from devplug.devices import Health
from devplug.holds.names import Names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterator

    from devplug.daemon.config.selectors import NetSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device import HostDeviceNode
    from devplug.holds.hardware import Hardware

NETWORK_CLASS: Final = "0x02"
"""How the class of every network controller begins (PCI Code and ID Assignment, base class 02h)."""

_NODE_CLASSES: Final = frozenset(
    {"uio", "vfio-dev", "infiniband_verbs", "infiniband_mad", "vhost-vdpa", "macvtap", "ipvtap"},
)
"""Subsystems of the nodes that a container may need of a network device. Its clock (`ptp`) is the machine's,
too."""

_SUBSYSTEMS: Final = _NODE_CLASSES | {"net", "pci", "usb", "vfio", "infiniband", "vdpa"}
_GLOBS: Final = (
    "/dev/vfio/*",
    "/dev/vfio/devices/*",
    "/dev/infiniband/*",
    "/dev/vhost-vdpa-*",
    "/dev/uio*",
    "/dev/tap*",
)
_NO_LINKS: Final = StableLinks({}, {})
"""udev makes no links for these nodes by which a container would look for them."""

_OF_INTERFACE: Final = ("address", "ifindex", "dev_port", "phys_port_name", "phys_switch_id")
_OF_FUNCTION: Final = ("vendor", "device", "subsystem_vendor", "subsystem_device", "class")
"""What `{attr.NAME}` may say, besides `driver` and `pf`, the address of the physical function."""


class _Nic(Struct, frozen=True):
    """One interface, or one function without an interface in this network namespace."""

    interface: SysDevice | None
    device: SysDevice | None
    """The device of the interface: the function or a child of it. None for an interface without one, as a
    bridge."""
    function: SysDevice | None
    """The PCI function that is the network controller."""
    name: str
    """The interface's name, also if it is in a pod now; empty if it was never seen."""

    representor: str = ""
    """The port name of a representor, which only forwards for another function."""
    suffix: str = ""
    """The end of its ID that other interfaces of its hardware do not have; empty for the first."""

    @property
    def top(self) -> SysDevice:
        """The device below which its nodes are."""
        is_subfunction = self.suffix.startswith(".sf")
        below = self.device if self.function is None or is_subfunction else self.function
        top = below or self.interface
        if top is None:
            raise AssertionError("a network device is an interface or a function")
        return top

    @property
    def group(self) -> str:
        """The IOMMU group by which user space has the function; empty if a driver of the kernel has it."""
        is_ours = self.function is not None and not self.suffix and is_for_user_space(self.function)
        return (self.function.link("iommu_group") or "") if self.function and is_ours else ""

    def identity(self) -> Identity:
        """Return its identity."""
        if self.device is None:
            return Identity(self.name, self.name)
        if self.function is not None:
            base = Identity(self.function.name, self.function.name)
        else:
            anchor = anchor_of(self.interface or self.device)
            base = anchor.identity if anchor else Identity(self.device.name, self.device.name)
        whole = base.extended(self.suffix)
        return replace(whole, by_place=f"{whole.by_place}.{self.name}") if self.name else whole

    def hardware(self) -> str:
        """Return the folder of its hardware below /sys/devices, or the interface's if it has none."""
        if self.interface is not None and (self.device is None or self.suffix):
            return self.interface.path
        if self.device is None or self.function is not None:
            of_group = members(self.function.host, self.group) if self.function and self.group else []
            first = next((one for one, member in of_group if not member.is_bridge), self.function)
            return first.path if first else ""
        anchor = anchor_of(self.interface or self.device)
        return anchor.device.path if anchor else self.device.path

    def does_match(self, selector: NetSelector) -> bool:
        """Whether it has all that a selector asks for."""
        drivers = [one.driver for one in (self.device, self.function) if one and one.driver]
        address = self.function.name if self.function else ""
        physical = self.function.link("physfn") if self.function else None
        return (
            self._is_covered(selector.interface)
            and (selector.driver is None or any(fnmatchcase(driver, selector.driver) for driver in drivers))
            and (selector.address is None or fnmatchcase(address, selector.address))
            and selector.virtual_function_of in {None, physical}
        )

    def _is_covered(self, glob: str | None) -> bool:
        if self.device is None or self.representor:
            # Bridges, and the ends of other pods' connections: a mere * does not mean them.
            return bool((glob or "").strip("*?")) and fnmatchcase(self.name, glob or "")
        return glob is None or (bool(self.name) and fnmatchcase(self.name, glob))


class NetSource(Struct):
    """The network devices that one resource's selectors match; lives as long as the resource is served."""

    resource_name: str
    selectors: tuple[NetSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30.0
    known_names: Names = field(default_factory=Names)
    _interfaces: dict[str, str] = field(default_factory=dict)
    """The name of the first interface of each present function, by its folder: also while a pod has it."""

    def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, after each settled change, and every `resync_seconds`."""
        globs = [self.host.inside(glob) for glob in _GLOBS]
        return follow(self.look, subsystems=_SUBSYSTEMS, globs=globs, resync_seconds=self.resync_seconds)

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the devices that are there now, sorted by name."""
        nics: dict[str, _Nic] = {}
        for nic in self._nics():
            if any(nic.does_match(selector) for selector in self.selectors):
                hardware = nic.hardware()
                if hardware in nics and nic.interface is not None:
                    # The second interface of a function that does not number its ports.
                    hardware = nic.interface.path
                nics.setdefault(hardware, nic)
        facts = {hardware: _facts(nic) for hardware, nic in nics.items()}
        names = self.known_names.assign(
            wanted_by(self.id_template, hardware, nic.identity(), facts[hardware])
            for hardware, nic in nics.items()
        )
        found = (
            self._found(names[hardware], nic, facts[hardware], hardware) for hardware, nic in nics.items()
        )
        return tuple(sorted(found, key=lambda one: one.name))

    def _nics(self) -> Iterator[_Nic]:
        """Yield all interfaces, oldest first, then the functions without one."""
        functions = {
            device.path: device for device in devices_of_subsystem(self.host, "pci") if _is_network(device)
        }
        seen: dict[str, str] = {}
        interfaces = devices_of_subsystem(self.host, "net")
        for interface in sorted(interfaces, key=lambda one: (one.number("ifindex") or 0, one.name)):
            if interface.name == "lo":
                continue
            device = interface.linked("device")
            function = _function_of(device) if device else None
            nic = _nic(interface, device, function)
            yield nic
            if function is not None and not nic.suffix:
                seen.setdefault(function.path, interface.name)
        known = {path: name for path, name in self._interfaces.items() if path in functions}
        self._interfaces = known | seen
        for path, function in functions.items():
            if path not in seen:
                yield _Nic(None, function, function, self._interfaces.get(path, ""))

    def _found(self, name: str, nic: _Nic, facts: dict[str, str | int], hardware: str) -> HostDevice:
        nodes, fault = self._nodes_below(nic), None
        if nic.group:
            own = group_nodes(self.host, nic.group)
            nodes = (*own, *nodes, *shared_nodes(self.host, [*own, *nodes]))
            fault = group_fault(nic.group, [member for _, member in members(self.host, nic.group)])
            fault = fault or (None if own else f"its IOMMU group {nic.group} has no node in /dev/vfio")
        numa_node = nic.top.numa_node
        if numa_node is not None:
            facts = {**facts, "numaNode": numa_node}
        health, plugged = Health.from_fault(fault), self.host.plugged(hardware)
        return HostDevice(
            name,
            nodes,
            numa_node,
            MappingProxyType(facts),
            hardware,
            health,
            plugged=plugged,
            identity=self._identity(nic, hardware),
        )

    def _identity(self, nic: _Nic, hardware: str) -> Hardware:
        """Return the hardware: a port of the function, or all of it where its interface is not in sight."""
        if nic.interface is None:
            return identity_of(SysDevice(self.host, hardware), {}).hardware
        port = identity_of(nic.interface, {}).hardware
        if nic.suffix or nic.device is None or hardware != nic.interface.path:
            return port
        return replace(port, place=f"{port.place}.{nic.name}")

    def _nodes_below(self, nic: _Nic) -> tuple[HostDeviceNode, ...]:
        if nic.representor:
            return ()
        below = [node for node in class_nodes_below(nic.top) if node.subsystem in _NODE_CLASSES]
        nodes = nodes_with_links(self.host, below, _NO_LINKS, is_unique=False)
        if nic.suffix and nic.top == nic.function:
            # They are the first port's; a second one comes with them and does not own them.
            nodes = tuple(replace(node, is_shared=True) for node in nodes)
        return with_rdma_cm(self.host, nodes)


def _nic(interface: SysDevice, device: SysDevice | None, function: SysDevice | None) -> _Nic:
    port = inner_port(interface)
    number = interface.number("dev_port")
    representor = "" if port.startswith("sf") else port
    suffix = f".{port}" if port else f".{number}" if device and number else ""
    return _Nic(interface, device, function, interface.name, representor, suffix)


def _is_network(device: SysDevice) -> bool:
    return (device.attribute("class") or "").startswith(NETWORK_CLASS)


def _function_of(device: SysDevice) -> SysDevice | None:
    """Return the PCI function of a network device; None for a USB device: its controller is another one."""
    for one in (device, *device.parents()):
        if one.subsystem in {"pci", "usb"}:
            return one if one.subsystem == "pci" else None
    return None


def _facts(nic: _Nic) -> dict[str, str | int]:
    """Return the values of template variables for a device, without its NUMA node: what never changes."""
    interface, device, function = nic.interface, nic.device, nic.function
    texts = {
        "interface": nic.name,
        "pciAddress": function.name if function else None,
        "attr.driver": (device.driver if device else None) or (function.driver if function else None),
        **{f"attr.{name}": interface.attribute(name) for name in _OF_INTERFACE if interface},
        **{f"attr.{name}": function.attribute(name) for name in _OF_FUNCTION if function},
        "attr.pf": function.link("physfn") if function else None,
    }
    return {name: text for name, text in texts.items() if text}
