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
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.daemon.sources.device import wanted_name
from devplug.daemon.sources.hardware import SysDevice, natural
from devplug.daemon.sources.usb import port_of
from devplug.devices import stable_id
from devplug.holds.hardware import Hardware
from devplug.holds.names import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.daemon.config.templates import Template

__all__ = [
    "Anchor",
    "Identity",
    "Part",
    "Ranks",
    "anchor_of",
    "called_by",
    "identity_of",
    "part_of",
    "parts_of",
    "shape_of",
    "wanted_by",
]

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

_NUMBER: Final = re.compile(r"((?:i2c|i3c|v4l)?\D*?)(\d+)(.*)", re.DOTALL)
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

    @property
    def hardware(self) -> Hardware:
        """The hardware that has this identity."""
        return Hardware(self.by_place, self.preferred if self.preferred != self.by_place else "")

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


class Ranks(Struct):
    """The ranks of one source's devices; lives as long as the source.

    A present device keeps its rank, whatever comes beside it.
    """

    _known: Mapping[str, tuple[Part, int]] = field(default_factory=dict)

    def assign(self, parts: Mapping[str, Part]) -> dict[str, int]:
        """Return the rank of each present device, by its folder: the lowest free one, in natural order."""
        kept = {path: known for path, known in self._known.items() if parts.get(path) == known[0]}
        taken = set(kept.values())
        for path in sorted(parts.keys() - kept.keys(), key=natural):
            rank = 0
            while (parts[path], rank) in taken:
                rank += 1
            kept[path] = (parts[path], rank)
            taken.add(kept[path])
        self._known = kept
        return {path: rank for path, (_, rank) in kept.items()}


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


def parts_of(devices: Iterable[SysDevice]) -> dict[str, Part]:
    """Return the parts of those of a subsystem's devices that have one, by their folders."""
    parts = {device.path: part_of(device) for device in devices if device.attribute("partition") is None}
    return {path: part for path, part in parts.items() if part is not None}


def identity_of(device: SysDevice, ranks: Mapping[str, int]) -> Identity:
    """Return the identity of a device; `ranks` are those of all devices of its subsystem that have a part."""
    subsystem = device.subsystem
    if subsystem in TPMS:
        name = f"{subsystem}{ranks.get(device.path, 0)}"
        return Identity(name, name)
    if subsystem == "block" and (number := device.attribute("partition")):
        disk = SysDevice(device.host, device.path.rpartition("/")[0])
        return identity_of(disk, ranks).extended(f"-part{number}")
    if (own := _own_identity(device, subsystem)) is not None:
        return own
    place = _by_place(device, ranks)
    if subsystem == "block" and (disk_id := _disk_id(device)):
        return Identity(disk_id, place.by_place)
    if subsystem == "hidraw" and (anchor := anchor_of(device)) and anchor.device.subsystem == "hid":
        return Identity(anchor.identity.preferred, place.by_place)
    return place


def _by_place(device: SysDevice, ranks: Mapping[str, int]) -> Identity:
    part = part_of(device)
    anchor = anchor_of(device)
    if part is None or anchor is None:
        return Identity(device.name, device.name)
    return anchor.identity.extended(f".{part.text(ranks.get(device.path, 0))}")


def _own_identity(device: SysDevice, subsystem: str) -> Identity | None:
    """Return the name of a parent device, or None if it cannot be distinguished from all others."""
    match subsystem:
        case "pci" | "mdev":
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
    return Identity(preferred, f"{anchor.identity.by_place}.{device.name}" if anchor else device.name)


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
    return Identity(f"{make}:{serial}" if serial else by_place, by_place)
