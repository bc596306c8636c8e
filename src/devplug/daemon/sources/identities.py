"""The identity of a device of any kernel subsystem: what its device ID is made of.

The rules never change: a pod that holds a device is refused after a reboot if the device has another ID then.

| the device | its ID | as in |
|---|---|---|
| a TPM | its subsystem and its rank: a machine has one | `tpmrm0` |
| an NVMe controller | its `serial` | `S4EWNX0R` |
| an NVMe namespace | its `wwid`; if the kernel made that up: serial and `nsid` | `S4EWNX0R.n1` |
| a SCSI or SATA disk | the `wwid` of its SCSI device | `naa.5000c500a1b2c3d4` |
| a mapped or combined disk | its `dm/uuid` or `md/uuid` | `LVM-x7Qz` |
| a partition | that of its disk, `-part` and the number | `S4EWNX0R.n1-part2` |
| a HID device that is not on USB | its `HID_UNIQ`, if it has one | `a4:53:85:11:22:33` |
| a USB device | as the source `usb` calls it | `0403:6001:A50285BI` |
| a PCI function, a mediated device | its address, its UUID | `0000:3b:00.0` |
| a child of one of these | that one's ID, a dot, its name with a stable number | `0000:03:00.0.renderD0` |
| a child of a device of the board | that one's name and the same | `00:05.ttyS0` |
| anything else, as a device without hardware | the kernel's name | `loop0` |

The first number of a kernel name only counts what came before. It is replaced by the attribute `index`
(`dev_port` of a network interface), or the `port_number` of a serial converter; else by the number of the USB
interface; else by the rank among those with equal names on the same parent. A number that starts again on
each USB interface has the interface before it, unless that is the first: `if02.video0`.

The same rules say which hardware a device is (`Identity.hardware`), for every kind of source: a PCI function,
a USB device, an NVMe controller and a disk are one with all their parts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.daemon.sources.device import wanted_name
from devplug.daemon.sources.hardware import PCI_ADDRESS, SysDevice, devices_of_subsystem, natural
from devplug.daemon.sources.usb import port_of
from devplug.devices import stable_id
from devplug.holds.hardware import Hardware, number_key
from devplug.holds.names import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.daemon.config.templates import Template
    from devplug.holds.hardware import Key

NAMED_BY_BOARD: Final = frozenset({"platform", "acpi", "pnp", "amba", "ccw", "vio", "vmbus", "xen"})
"""Buses on which firmware, a device tree or the hypervisor gives the names."""

TPMS: Final = frozenset({"tpm", "tpmrm"})
"""Their ranks are counted over the whole machine, which has one TPM. The kernel gives the next number to a
TPM that comes back while something keeps the last one open, as IMA does for ever
(security/integrity/ima/ima_init.c)."""

_NOT_OF_BOARD: Final = re.compile(r".*\.auto|serial8250")
"""Names that distinguish nothing: those that the kernel counts, and the driver of all old serial ports. The
ports' own names do: ttyS1 has always been the second port of a PC."""

_RENAMED: Final = {"net": "net", "infiniband": "rdma"}
"""Subsystems whose devices udev renames, each with the word of which a name is made instead."""

_REPRESENTOR: Final = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")
"""Port names of a switch's inner sides (kernel, Documentation/networking/representors.rst)."""

_NUMBER: Final = re.compile(r"((?:i2c|i3c|v4l)?\D*?)(\d+)(.*)", re.DOTALL)
_OF_ITS_OWN: Final = re.compile(rf"{PCI_ADDRESS.pattern}|usb\d+|\d+-[\d.]+")
"""The folders of PCI functions, USB buses and USB devices."""

_CONTAINERS: Final = frozenset({"sound", "input"})
"""Subsystems in which a card, or an input device, is the parent of the devices with its nodes."""

_GENERIC_DISKS: Final = frozenset({"scsi_generic", "bsg", "nvme-generic"})
_LETTERED_DISK: Final = re.compile(r"(sd|vd|xvd|hd|dasd)[a-z]+")
_UNIQUE_ENOUGH: Final = re.compile(r"(?!nvme\.)\S.*", re.DOTALL)
"""A `wwid` that the device itself brings: the kernel makes one that begins with `nvme.` of hex digits of the
serial number, the model and the namespace's number (drivers/nvme/host/sysfs.c, wwid_show)."""


class Identity(Struct, frozen=True):
    """The two names of one device, of which its ID is made."""

    preferred: str
    """The name by what it says of itself; another device may have the same."""
    by_place: str
    """The name by its place, which no other device of the machine has."""
    is_whole: bool = False
    """Whether it has all its parts: what has one of them has hardware of this device."""
    of_hardware: Hardware | None = None
    """Its hardware, where that does not follow from the names."""

    @property
    def hardware(self) -> Hardware:
        """The hardware that has this identity."""
        if self.of_hardware is not None:
            return self.of_hardware
        serial = self.preferred if self.preferred != self.by_place else ""
        return Hardware(self.by_place, serial, self.is_whole)

    def extended(self, text: str) -> Identity:
        """Return the identity of a part of the device."""
        return Identity(self.preferred + text, self.by_place + text)


class Anchor(Struct, frozen=True):
    """The nearest parent of a device that can be distinguished from all others."""

    device: SysDevice
    identity: Identity
    interface: int | None = None
    """The number of the USB interface that the device hangs on, if any."""


class Part(Struct, frozen=True):
    """One of several devices of an anchor, as far as that is known without the others."""

    anchor: str
    """The folder of the anchor."""
    prefix: str
    suffix: str | None
    """What the name has before and after its first number; None: it has no number."""
    number: int | None = None
    """The number that an attribute gives."""
    interface: int | None = None

    def text(self, rank: int) -> str:
        """Return its name with a stable number; `rank` is its number among those that are equal to it."""
        if self.number is not None:
            before = f"if{self.interface:02x}." if self.interface else ""
            return f"{before}{self.prefix}{self.number}{self.suffix or ''}"
        if self.interface is None:
            return f"{self.prefix}{rank}{self.suffix}" if self.suffix is not None or rank else self.prefix
        return f"{self.prefix}{self.interface}{self.suffix or ''}" + (f".{rank}" if rank else "")


def shape_of(name: str, subsystem: str = "") -> tuple[str, str | None]:
    """Return what a kernel name has before and after its first number; (name, None) if it has none. Pure.

    The letters of a disk count as its number.
    """
    if subsystem in _RENAMED:
        return _RENAMED[subsystem], ""
    if subsystem == "block" and (disk := _LETTERED_DISK.match(name)):
        return disk[1], name[disk.end() :]
    found = _NUMBER.fullmatch(name)
    return (found[1], found[3]) if found else (name, None)


def wanted_by(
    template: Template | None,
    hardware: str,
    identity: Identity,
    facts: Mapping[str, str | int],
) -> Wanted:
    """Return the IDs that the device in the folder `hardware` may get, by template or identity. Pure."""
    preferred = wanted_name(template, facts, identity.preferred)
    if preferred == stable_id(identity.preferred):
        return Wanted(hardware, identity.preferred, identity.by_place)
    return Wanted(hardware, preferred, f"{preferred}@{identity.by_place}")


def anchor_of(device: SysDevice) -> Anchor | None:
    """Return the nearest parent that can be distinguished from all others; None without parents."""
    interface: int | None = None
    of_board: SysDevice | None = None
    for parent in device.parents():
        subsystem = parent.subsystem
        if subsystem == "usb" and interface is None:
            interface = parent.number("bInterfaceNumber", 16)
        if (identity := _own_identity(parent, subsystem)) is not None:
            return Anchor(parent, identity, interface)
        if of_board is None and subsystem in NAMED_BY_BOARD and not _NOT_OF_BOARD.fullmatch(parent.name):
            of_board = parent
    return None if of_board is None else Anchor(of_board, Identity(of_board.name, of_board.name))


def called_by(device: SysDevice) -> list[SysDevice]:
    """Return a device and its parents, nearest first, up to the one that gives it its identity.

    Beyond that is another thing, such as the hub into which a USB device is plugged.
    """
    if _own_identity(device, device.subsystem) is not None:
        return [device]
    anchor = anchor_of(device)
    length = len(anchor.device.path) if anchor else 0
    return [device, *(parent for parent in device.parents() if len(parent.path) >= length)]


def part_of(device: SysDevice) -> Part | None:
    """Return which of its anchor's devices it is; None if its name does not depend on a parent."""
    anchor = anchor_of(device)
    subsystem = device.subsystem
    if subsystem in TPMS:
        return Part("", subsystem, "")
    if anchor is None or (subsystem in NAMED_BY_BOARD and anchor.device.subsystem in NAMED_BY_BOARD):
        return None
    prefix, suffix = shape_of(device.name, subsystem)
    return Part(anchor.device.path, prefix, suffix, _number_of(device), anchor.interface)


def groups_of(devices: Iterable[SysDevice]) -> dict[str, list[str]]:
    """Return the groups of equal devices that need a rank, each with the folders of its devices.

    `devices` are all devices of the subsystem.
    """
    groups: dict[str, list[str]] = {}
    for device in sorted(devices, key=lambda one: natural(one.path)):
        part = None if device.attribute("partition") else part_of(device)
        if part is not None and part.number is None:
            groups.setdefault(_group(device, part), []).append(device.path)
    return groups


def groups_beside(device: SysDevice) -> dict[str, list[str]]:
    """Return the group of one device in the form of `groups_of`; empty if the device needs no rank."""
    device = _disk_of(device)
    if (container := _container_of(device, device.subsystem)) is not None:
        return groups_beside(container) | _groups_beside(device)
    return _groups_beside(device)


def _groups_beside(device: SysDevice) -> dict[str, list[str]]:
    part = part_of(device)
    if part is None or part.number is not None:
        return {}
    beside = [
        one
        for one in devices_of_subsystem(device.host, device.subsystem)
        if one.path.startswith(f"{part.anchor}/") and one.path != device.path
    ]
    group = _group(device, part)
    return {group: groups_of([device, *beside])[group]}


def _group(device: SysDevice, part: Part) -> str:
    return "\n".join(map(str, (device.subsystem, part.anchor, part.prefix, part.suffix, part.interface)))


def _disk_of(device: SysDevice) -> SysDevice:
    """Return the disk of a partition; any other device is its own."""
    if device.subsystem == "block" and device.attribute("partition"):
        return SysDevice(device.host, device.path.rpartition("/")[0])
    return device


def identity_of(device: SysDevice, ranks: Mapping[str, int]) -> Identity:
    """Return the identity of a device.

    `ranks` are those that its subsystem's devices have, by folder; a device that has none yet counts those
    beside it.
    """
    subsystem = device.subsystem
    if subsystem in TPMS:
        name = f"{subsystem}{_rank(device, ranks)}"
        return Identity(name, name)
    if (disk := _disk_of(device)) is not device:
        number = device.attribute("partition")
        whole = identity_of(disk, ranks)
        return replace(whole.extended(f"-part{number}"), of_hardware=_part(whole.hardware, f".part{number}"))
    if (own := _own_identity(device, subsystem)) is not None:
        return own
    place = _by_place(device, ranks)
    if subsystem == "block":
        return Identity(_disk_id(device) or place.preferred, place.by_place, is_whole=True)
    if _is_container(device, subsystem):
        return replace(place, is_whole=True)
    if (container := _container_of(device, subsystem)) and (part := part_of(device)):
        whole = identity_of(container, ranks)
        return replace(place, of_hardware=_part(whole.hardware, f".{part.text(0)}"))
    if (block := _block_beside(device, subsystem)) is not None:
        return replace(place, of_hardware=identity_of(block, {}).hardware)
    if subsystem == "hidraw" and (anchor := anchor_of(device)) and anchor.device.subsystem == "hid":
        return Identity(anchor.identity.preferred, place.by_place)
    if (port := inner_port(device, subsystem)) and (anchor := anchor_of(device)):
        return replace(place, of_hardware=anchor.identity.extended(f".{port}").hardware)
    return place


def _part(whole: Hardware, name: str) -> Hardware:
    return Hardware(whole.place + name, whole.serial and whole.serial + name)


def _is_container(device: SysDevice, subsystem: str) -> bool:
    """Whether a device has its nodes below it: one that the board names, a sound card, an input device."""
    return subsystem in NAMED_BY_BOARD or (subsystem in _CONTAINERS and device.attribute("dev") is None)


def _container_of(device: SysDevice, subsystem: str) -> SysDevice | None:
    """Return the card of a sound node, or the input device of an event node; None for any other device."""
    if subsystem not in _CONTAINERS:
        return None
    near = next((parent for parent in device.parents() if parent.subsystem), device)
    return near if near.subsystem == subsystem else None


def _block_beside(device: SysDevice, subsystem: str) -> SysDevice | None:
    """Return the disk that a generic node opens, as sda for sg0; None for any other node."""
    if subsystem not in _GENERIC_DISKS:
        return None
    near = next((parent for parent in device.parents() if parent.subsystem), device)
    blocks = [child for child in near.children() if child.subsystem == "block"]
    wanted = device.name.replace("ng", "nvme", 1) if subsystem == "nvme-generic" else None
    return next((block for block in blocks if wanted in {None, block.name}), None)


def inner_port(interface: SysDevice, subsystem: str = "net") -> str:
    """Return the port name of a representor, or `sf` and the number of a subfunction; else an empty text.

    Such a network interface is below the PCI function, but it is not a port of the function.
    """
    device = interface.linked("device") if subsystem == "net" else None
    if device is None:
        return ""
    port = interface.attribute("phys_port_name") or ""
    if _REPRESENTOR.fullmatch(port):
        return port
    subfunction = device.attribute("sfnum")
    return f"sf{subfunction}" if subfunction else ""


def _by_place(device: SysDevice, ranks: Mapping[str, int]) -> Identity:
    part = part_of(device)
    anchor = anchor_of(device)
    if part is None or anchor is None:
        return Identity(device.name, device.name)
    rank = 0 if part.number is not None else _rank(device, ranks)
    return anchor.identity.extended(f".{part.text(rank)}")


def part_numbers(device: SysDevice) -> tuple[Key, ...]:
    """Return the device numbers of all parts of a device, without its own; empty for a part.

    A USB device behind a hub, and a PCI function behind a bridge, are devices of their own.
    """
    subsystem, beside = device.subsystem, []
    if (disk := _block_beside(device, subsystem)) is not None:
        device = disk
    elif subsystem == "block" and not device.attribute("partition"):
        near = next((parent for parent in device.parents() if parent.subsystem), device)
        generic = (one for one in near.children() if one.subsystem in _GENERIC_DISKS)
        beside = [
            node for one in generic if (node := one.node()) and _block_beside(one, one.subsystem) == device
        ]
    elif subsystem not in {"pci", "nvme"} and not _is_usb_device(device):
        return ()
    below = device.nodes_below(lambda name: bool(_OF_ITS_OWN.fullmatch(name)))
    return tuple([number_key(node.number, is_block=node.is_block) for node in (*beside, *below)])


def _rank(device: SysDevice, ranks: Mapping[str, int]) -> int:
    if device.path in ranks:
        return ranks[device.path]
    return next((folders.index(device.path) for folders in groups_beside(device).values()), 0)


def _own_identity(device: SysDevice, subsystem: str) -> Identity | None:
    """Return the name of a parent device, or None if it cannot be distinguished from all others."""
    match subsystem:
        case "pci":
            return Identity(device.name, device.name, is_whole=True)
        case "mdev":
            return Identity(device.name, device.name)
        case "usb":
            return _usb_device(device)
        case "nvme" | "nvme-subsystem":
            preferred = device.attribute("serial")
        case "scsi":
            preferred = device.attribute("wwid")
        case "hid":
            # On USB it is the USB device's serial number, and several interfaces have it.
            is_on_usb = any(_is_usb_device(parent) for parent in device.parents())
            preferred = None if is_on_usb else device.uevent().get("HID_UNIQ")
        case _:
            preferred = None
    if not preferred:
        return None
    anchor = anchor_of(device)
    by_place = f"{anchor.identity.by_place}.{device.name}" if anchor else device.name
    return Identity(preferred, by_place, is_whole=subsystem == "nvme")


def _disk_id(disk: SysDevice) -> str | None:
    """Return the ID of a whole disk."""
    wwid = disk.attribute("wwid") or ""
    if _UNIQUE_ENOUGH.fullmatch(wwid):
        return wwid
    for parent in disk.parents():
        if parent.subsystem in {"nvme", "nvme-subsystem"} and (serial := parent.attribute("serial")):
            nsid = disk.attribute("nsid")
            return f"{serial}.n{nsid}" if nsid else wwid or None
        if parent.subsystem == "scsi" and (scsi_wwid := parent.attribute("wwid")):
            return scsi_wwid
    return disk.attribute("dm/uuid") or disk.attribute("md/uuid") or wwid or None


def _number_of(device: SysDevice) -> int | None:
    if (number := device.number("dev_port" if device.subsystem == "net" else "index")) is not None:
        return number
    parent = next((one for one in device.parents() if one.subsystem), None)
    return parent.number("port_number") if parent is not None and parent.subsystem == "usb-serial" else None


def _is_usb_device(device: SysDevice) -> bool:
    """Whether it is a USB device: no interface of one, and no root hub."""
    return device.subsystem == "usb" and ":" not in device.name and not device.name.startswith("usb")


def _usb_device(device: SysDevice) -> Identity | None:
    """Return the identity that the source `usb` gives to a USB device, too."""
    if not _is_usb_device(device):
        return None
    make = ":".join((device.attribute(name) or "").lower() for name in ("idVendor", "idProduct"))
    by_place = f"{make}@{port_of(device)[0]}"
    serial = device.attribute("serial")
    return Identity(f"{make}:{serial}" if serial else by_place, by_place, is_whole=True)
