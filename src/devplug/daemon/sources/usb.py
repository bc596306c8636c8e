"""The source `usb`: every USB device is one device, with all nodes that its drivers make."""

from __future__ import annotations

import logging
import re
from collections import Counter
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.sources.device import HostDevice, wanted_name
from devplug.daemon.sources.device_nodes import LINK_GLOBS, nodes_with_links, stable_links
from devplug.daemon.sources.follower import follow
from devplug.daemon.sources.hardware import devices_of_subsystem
from devplug.daemon.sources.host import Host, timed
from devplug.devices import Health
from devplug.holds.hardware import Hardware
from devplug.holds.names import Names, Wanted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from devplug.daemon.config.selectors import UsbSelector
    from devplug.daemon.config.templates import Template
    from devplug.daemon.sources.device_nodes import StableLinks
    from devplug.daemon.sources.hardware import SysDevice

logger = logging.getLogger(__name__)

ATTRIBUTES: Final = (
    *("idVendor", "idProduct", "bcdDevice", "bDeviceClass", "manufacturer", "product", "serial"),
    *("version", "speed", "busnum", "devnum", "devpath", "removable"),
)
"""The names that `{attr.NAME}` may have for a USB device: files in sysfs that do not change while it is
plugged in. `busnum` and `devnum` are others after each re-plug: never good for an ID."""

SUBSYSTEMS: Final = frozenset(
    {
        *("usb", "usbmisc", "usb-serial", "tty", "video4linux", "media", "dvb", "input", "hidraw", "hid"),
        *(
            "sound",
            "block",
            "scsi",
            "scsi_generic",
            "bsg",
            "printer",
            "net",
            "drm",
            "misc",
            "ptp",
            "rc",
            "cec",
        ),
    },
)
"""Subsystems whose events may concern a USB device: its own, and those of the nodes that drivers make for
it."""

HUB: Final = "09"
_ROOT_HUB: Final = re.compile(r"usb\d+")
_USB_DEVICE: Final = re.compile(r"\d+-([1-9]\d*(?:\.[1-9]\d*)*)")
_USB_3: Final = 3


class _UsbDevice(Struct, frozen=True):
    """A USB device with what selectors compare, as it was read in one scan."""

    device: SysDevice
    vendor: str
    product: str
    serial: str
    is_hub: bool
    interface_classes: frozenset[str] = frozenset()
    """Empty if no selector asks for them."""

    @property
    def ids(self) -> str:
        return f"{self.vendor}:{self.product}"

    @property
    def self_said(self) -> str:
        """What it says of itself that tells it from others of its make; empty if it says nothing."""
        return f"{self.ids}:{self.serial}" if self.serial else ""


class UsbSource(Struct):
    """The USB devices that the selectors of one resource match; lives as long as the resource is served.

    The ID is made of the serial number, as in `0403:6001:A50285BI`, or, if there is none or another device
    has the same, of the port where it is plugged in, as in `0403:6001@0000:00:14.0-2.3`: the controller's
    address and the chain of ports. `usb3-` before the ports is the other half of the controller, which counts
    its ports anew. Bus and device numbers are in no ID: they change with the order in which things are
    plugged in.
    """

    resource_name: str
    selectors: tuple[UsbSelector, ...]
    id_template: Template | None = None
    allow: Collection[str] = ()
    host: Host = field(default_factory=Host)
    resync_seconds: float = 30.0
    known_names: Names = field(default_factory=Names)
    _ambiguous: set[str] = field(default_factory=set)
    """Preferred IDs that two devices had at the same time: udev's by-id link may move from one to the
    other."""

    def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield what is there at once, at each change, and every `resync_seconds`."""
        globs = [self.host.inside(glob) for glob in (*LINK_GLOBS, "/dev/bus/usb/*/*")]
        return follow(self.look, subsystems=SUBSYSTEMS, globs=globs, resync_seconds=self.resync_seconds)

    @timed
    def look(self) -> tuple[HostDevice, ...]:
        """Return the USB devices that are there now, sorted by name."""
        reads_classes = any(selector.interface_class for selector in self.selectors)
        devices = devices_of_subsystem(self.host, "usb")
        usb_devices = [
            usb_device for device in devices if (usb_device := _read(device, reads_classes=reads_classes))
        ]
        self._note_ambiguous(usb_devices)
        links = stable_links(self.host)
        found: dict[str, tuple[Wanted, HostDevice]] = {}
        for usb_device in usb_devices:
            if any(_matches(selector, usb_device) for selector in self.selectors):
                one = self._found(usb_device, links)
                place, anchor = port_of(usb_device.device)
                by_place = f"{usb_device.ids}@{place}"
                preferred = wanted_name(self.id_template, one.facts, usb_device.self_said or by_place)
                anchor = one.hardware if anchor in found else anchor
                # While a USB device goes away its files go one by one, the IDs first (drivers/base/core.c,
                # device_remove_attrs). If they are still there, what was not found above does not exist.
                if usb_device.device.attribute("idVendor"):
                    found[anchor] = Wanted(anchor, preferred, by_place), one
        names = self.known_names.assign(wanted for wanted, _ in found.values())
        named = (replace(one, name=names[anchor]) for anchor, (_, one) in found.items())
        return tuple(sorted(named, key=lambda one: one.name))

    def _note_ambiguous(self, usb_devices: Collection[_UsbDevice]) -> None:
        counted = Counter(usb_device.self_said for usb_device in usb_devices if usb_device.serial)
        for said, number in counted.items():
            if number > 1 and said not in self._ambiguous:
                self._ambiguous.add(said)
                logger.warning(
                    "USB devices have the same serial number; their ports are in their IDs instead",
                    extra={"resource_name": self.resource_name, "reason": f"{number} are {said}"},
                )

    def _found(self, usb_device: _UsbDevice, links: StableLinks) -> HostDevice:
        """Return the USB device as a device that has no name yet."""
        device = usb_device.device
        kernels = device.nodes_below(_is_usb_device)
        if (bus_node := device.node()) is not None:
            kernels.append(bus_node)
        is_unique = bool(usb_device.serial) and usb_device.self_said not in self._ambiguous
        nodes = nodes_with_links(self.host, kernels, links, is_unique=is_unique)
        numa_node = device.numa_node
        facts: dict[str, str | int] = {
            f"attr.{name}": value for name in ATTRIBUTES if (value := device.attribute(name))
        }
        facts["model"] = facts.get("attr.product", usb_device.ids)
        if usb_device.serial:
            facts["serial"] = usb_device.serial
        if nodes:
            facts |= {"file": nodes[0].file_name, "hostPath": nodes[0].host_path}
        if numa_node is not None:
            facts["numaNode"] = numa_node
        health = Health.from_fault(_fault(device))
        plugged = self.host.plugged(device.path)
        by_place = f"{usb_device.ids}@{port_of(device)[0]}"
        # Without a serial number the make identifies it, as long as no other device of the make was seen.
        identity = Hardware(by_place, usb_device.self_said or f"{usb_device.ids}:", is_whole=True)
        return HostDevice(
            "",
            nodes,
            numa_node,
            MappingProxyType(facts),
            device.path,
            health,
            plugged=plugged,
            identity=identity,
        )


def _is_usb_device(name: str) -> bool:
    """Whether a folder below /sys/devices is a USB device: no interface of one, and no controller's bus."""
    return _USB_DEVICE.fullmatch(name) is not None


def _read(device: SysDevice, *, reads_classes: bool) -> _UsbDevice | None:
    """Read a USB device; None for anything else on the bus, and for one that is going away."""
    if not _is_usb_device(device.name):
        return None
    vendor, product = (device.attribute(name) for name in ("idVendor", "idProduct"))
    if not (vendor and product):
        return None
    return _UsbDevice(
        device,
        vendor.lower(),
        product.lower(),
        device.attribute("serial") or "",
        device.attribute("bDeviceClass") == HUB,
        _interface_classes(device) if reads_classes else frozenset(),
    )


def _interface_classes(device: SysDevice) -> frozenset[str]:
    interfaces = (child for child in device.children() if ":" in child.name)
    return frozenset((one.attribute("bInterfaceClass") or "").lower() for one in interfaces)


def _matches(selector: UsbSelector, usb_device: _UsbDevice) -> bool:
    """Whether a selector matches a USB device. It matches a hub only if it asks for hubs."""
    vendor, product = (selector.vendor or "").lower(), (selector.product or "").lower()
    wanted_class = (selector.interface_class or "").lower()
    if usb_device.is_hub and wanted_class != HUB and not (vendor and product):
        return False
    return (
        vendor in {"", usb_device.vendor}
        and product in {"", usb_device.product}
        and (selector.serial is None or fnmatchcase(usb_device.serial, selector.serial))
        and (not wanted_class or wanted_class in usb_device.interface_classes)
    )


def port_of(device: SysDevice) -> tuple[str, str]:
    """Return the port of a USB device, as its ID has it, and the path that no other port has."""
    found = _USB_DEVICE.fullmatch(device.name)
    ports = found[1] if found else device.name
    root = next((one for one in device.parents() if _ROOT_HUB.fullmatch(one.name)), None)
    if root is None:
        return ports, device.path
    controller = root.path.rpartition("/")[0]
    if controller.endswith(".auto") and "." in controller.rpartition("/")[0].rpartition("/")[2]:
        # `xhci-hcd.1.auto` is counted in the order of starting; what it is a part of has an address.
        controller = controller.rpartition("/")[0]
    half = "usb3-" if _version(root) >= _USB_3 else ""
    return f"{controller.rpartition('/')[2]}-{half}{ports}", f"{controller}/{half}{ports}"


def _version(root: SysDevice) -> int:
    """Return the USB version of a controller's bus, as in 2 of ` 2.00`; 0 where it is missing."""
    whole = (root.attribute("version") or "").partition(".")[0]
    return int(whole) if whole.isdecimal() else 0


def _fault(device: SysDevice) -> str | None:
    """Return why a USB device cannot work, or None."""
    if device.attribute("authorized") == "0":
        return "it is not authorized: authorized is 0 in its sysfs folder"
    if device.attribute("bConfigurationValue") in {"", "0"}:
        return "it has no configuration: bConfigurationValue is empty in its sysfs folder"
    return None
