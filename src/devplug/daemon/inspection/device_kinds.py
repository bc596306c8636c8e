"""Kinds of device, by the names that people use; a device that no pod would want has none. Pure.

Several sources find the same hardware; the one whose selector says most has it here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.holds.hardware import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from devplug.daemon.sources.device import HostDevice

SHARED_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/dev/kvm": "kvm",
        "/dev/fuse": "fuse",
        "/dev/net/tun": "tun",
        "/dev/vhost-net": "vhost-net",
        "/dev/vhost-vsock": "vhost-vsock",
        "/dev/vsock": "vsock",
    },
)
"""Nodes without hardware, of which each open is an instance of its own: any number may share them."""

DISKS: Final = "disks"
TERMINALS: Final = "terminals"
INTERFACES: Final = "network interfaces"
FUNCTIONS: Final = "PCI functions"
INPUTS: Final = "input devices"
OTHERS: Final = "others"
"""The word for what is hidden, in the line that counts it."""

_VIRTUAL: Final = "/sys/devices/virtual/"

_KINDS_BY_SUBSYSTEM: Final = {
    "tty": "uart",
    "video4linux": "video",
    "drm": "render",
    "sound": "audio",
    "tpmrm": "tpm",
    "i2c-dev": "i2c",
    "spidev": "spi",
    "hidraw": "hid",
    "fpga_region": "fpga",
    "infiniband": "rdma",
    "accel": "accelerator",
}
"""Kernel subsystems whose devices are found by them, and what people call those. Others go by their names."""

_HIDDEN_SUBSYSTEMS: Final = {
    **dict.fromkeys(("block", "bsg", "scsi_generic", "nvme", "nvme-generic", "mtd", "ubi"), DISKS),
    **dict.fromkeys(("vc", "vtconsole"), TERMINALS),
    "input": INPUTS,
    **dict.fromkeys(
        (
            *("mem", "cpuid", "msr", "cpu", "dma_heap", "hpet", "mei", "ptp", "pps", "rtc", "watchdog"),
            *("media", "cec", "vfio", "vfio-dev", "iommu", "virtio-ports", "tpm", "net"),
            *("infiniband_mad", "infiniband_verbs", "nvme-subsystem", "nvme-fabrics", "aux", "ppdev", "lp"),
        ),
        OTHERS,
    ),
}
"""Subsystems whose devices are not proposed, each with a word: a pod could harm the machine, or has no use
for them."""

_USB_KINDS: Final = (
    ("tty", "serial"),
    ("video4linux", "camera"),
    ("block", DISKS),
    ("scsi_generic", DISKS),
    ("net", INTERFACES),
    ("input", INPUTS),
    ("hidraw", "hid"),
    ("usbmisc", "usbmisc"),
    ("sound", "audio"),
    ("drm", "display"),
)
"""The kind of a USB device by the subsystem of a node that it has; the first that fits counts."""

_USB_RADIO: Final = "e0"
"""USB class of wireless controllers, as for Bluetooth, which belong to the machine."""

_BASE_NETWORK, _BASE_ACCELERATOR = "02", "12"
_FPGA_DRIVER: Final = re.compile(r"dfl-pci|intel-fpga.*|xocl|xclmgmt|xdma|qdma.*")
_VFIO: Final = frozenset({"vfio", "vfio-dev"})
_NUMBERS_AT_END: Final = re.compile(r"[\d.:]+$")
_NOT_IN_KIND: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Survey:
    """All devices that the sources find on a machine, by kind of discovery; most are in it several times."""

    nvidia: tuple[HostDevice, ...] = ()
    """Whole GPUs and MIG instances."""
    mig_profiles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The profile of each MIG instance, by its UUID."""
    nvidia_fault: str = ""
    """Why the NVIDIA driver could not be asked."""
    net: tuple[HostDevice, ...] = ()
    usb: tuple[HostDevice, ...] = ()
    pci: tuple[HostDevice, ...] = ()
    sysfs: Mapping[str, tuple[HostDevice, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By subsystem: those with device nodes."""
    paths: tuple[HostDevice, ...] = ()
    """Device nodes in /dev that sysfs does not know, and those that have no hardware behind them."""


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """One device of a machine, by the source that says most of it."""

    discover: str
    """The kind of discovery."""
    subsystem: str
    """The subsystem, with the source `sysfs`."""
    found: HostDevice
    kind: str
    """Its kind, as in `serial`, fit for a resource name; empty if it is hidden."""
    hidden: str = ""
    """The word under which it is counted instead, in the plural."""


def named_devices(survey: Survey) -> tuple[NamedDevice, ...]:
    """Return every device of a machine once, in an order that does not depend on the order of plugging in."""
    taken: set[Hashable] = set()
    devices = []
    for device in _candidates(survey):
        keys = _keys(device.found)
        if keys & taken or (device.subsystem == "drm" and _address(device.found) in taken):
            continue
        taken |= keys
        if device.discover == "nvidia":
            taken.add(_address(device.found))
        devices.append(device)
    return tuple(devices)


def _keys(found: HostDevice) -> set[Hashable]:
    numbers = {(node.is_block, node.number) for node in found.nodes if not node.is_shared}
    return numbers | ({found.hardware} if found.hardware else set())


def _address(found: HostDevice) -> str:
    return f"PCI {found.facts.get('pciAddress', found.name)}"


def _candidates(survey: Survey) -> Iterator[NamedDevice]:
    """Yield what each source finds; sources that say most come first."""
    for found in survey.nvidia:
        profile = survey.mig_profiles.get(str(found.facts.get("uuid", "")), "")
        yield NamedDevice("nvidia", "", found, _plain(f"mig-{profile}") if profile else "gpu")
    kinds: dict[str, str] = {}
    for found in sorted(survey.usb, key=lambda one: _usb_device_kind(one) in {OTHERS, _raw_kind(one)}):
        kinds.setdefault(_ids(found), _usb_device_kind(found))
    for found in survey.usb:
        yield _named_device("usb", "", found, kinds[_ids(found)])
    yield from _functions(survey)
    for found in survey.paths:
        yield _path_device(found)
    for subsystem, looked in survey.sysfs.items():
        for found in looked:
            yield _named_device("sysfs", subsystem, found, _sysfs_kind(subsystem, found))


def _named_device(discover: str, subsystem: str, found: HostDevice, kind: str) -> NamedDevice:
    is_hidden = kind in {DISKS, TERMINALS, INTERFACES, FUNCTIONS, INPUTS, OTHERS, "loop", "ram disks"}
    return NamedDevice(discover, subsystem, found, "" if is_hidden else kind, kind if is_hidden else "")


def _path_device(found: HostDevice) -> NamedDevice:
    (node,) = found.nodes
    if node.host_path in SHARED_PATHS:
        return NamedDevice("path", "", found, SHARED_PATHS[node.host_path])
    if node.host_path.startswith("/dev/pts/") or node.host_path in {"/dev/tty", "/dev/console", "/dev/ptmx"}:
        return NamedDevice("path", "", found, "", TERMINALS)
    if node.is_block:
        return NamedDevice("path", "", found, "", DISKS)
    # The driver's nodes are of no use one by one, and NVML tells which belong together.
    is_other = node.number[0] == MEMORY_MAJOR or node.host_path.startswith("/dev/nvidia")
    return _named_device("path", "", found, OTHERS if is_other else _plain_kind(node.file_name))


def _subsystems(found: HostDevice) -> frozenset[str]:
    """Return the kernel's kinds of a device's own nodes."""
    return frozenset(node.subsystem for node in found.nodes if not node.is_shared)


# ── USB ───────────────────────────────────────────────────────────────────────────────────────────


def _ids(found: HostDevice) -> str:
    return f"{found.facts.get('attr.idVendor', '')}-{found.facts.get('attr.idProduct', '')}".lower()


def _usb_device_kind(found: HostDevice) -> str:
    subsystems = _subsystems(found)
    known = next((kind for subsystem, kind in _USB_KINDS if subsystem in subsystems), "")
    if not known and found.facts.get("attr.bDeviceClass") == _USB_RADIO:
        return OTHERS
    return known or _raw_kind(found)


def _raw_kind(found: HostDevice) -> str:
    return _plain(f"usb-{_ids(found)}")


def subsystem_of_usb_kind(kind: str) -> str:
    """Return the subsystem of the nodes by which a USB device is of this kind; empty if none is."""
    return next((subsystem for subsystem, known in _USB_KINDS if known == kind), "")


# ── PCI and network ───────────────────────────────────────────────────────────────────────────────


def _functions(survey: Survey) -> Iterator[NamedDevice]:
    for found in survey.pci:
        if kind := _function_kind(found):
            yield _named_device("pci", "", found, kind)
    for found in survey.net:
        yield _named_device("net", "", found, _net_kind(found))
    for found in survey.pci:
        if not _subsystems(found):
            yield NamedDevice("pci", "", found, "", FUNCTIONS)


def _function_kind(found: HostDevice) -> str:
    """Return the kind of a PCI function; empty if another source says more, or it has no nodes."""
    subsystems, pci_class = _subsystems(found), str(found.facts.get("attr.class", "")).removeprefix("0x")
    if not subsystems:
        return ""
    is_virtual = "attr.physfn" in found.facts
    if subsystems & _VFIO:
        return "vf" if is_virtual else _plain(f"pci-{_model(found)}")
    if pci_class.startswith(_BASE_NETWORK):
        return ""
    if pci_class.startswith(_BASE_ACCELERATOR):
        driver = str(found.facts.get("attr.driver", ""))
        return "fpga" if _FPGA_DRIVER.fullmatch(driver) else "accelerator"
    better = {*_KINDS_BY_SUBSYSTEM, *_HIDDEN_SUBSYSTEMS}
    return "" if subsystems & better else _plain(f"pci-{_model(found)}")


def _model(found: HostDevice) -> str:
    return str(found.facts.get("model", "")).replace(":", "-")


def _net_kind(found: HostDevice) -> str:
    """Return the kind of a network device: only one with device nodes, or a virtual function, is for pods."""
    if _subsystems(found) - {"macvtap", "ipvtap"}:
        return "rdma" if "infiniband_verbs" in _subsystems(found) else "nic"
    return "vf" if "attr.pf" in found.facts else INTERFACES


# ── everything else ───────────────────────────────────────────────────────────────────────────────


def _sysfs_kind(subsystem: str, found: HostDevice) -> str:
    name = found.hardware.rpartition("/")[2]
    is_virtual = found.hardware.startswith(_VIRTUAL)
    if subsystem == "block" and is_virtual:
        return {"loop": "loop", "ram": "ram disks", "zram": "ram disks"}.get(_stem(name), DISKS)
    if subsystem == "tty" and (is_virtual or found.facts.get("attr.console") == "Y"):
        return TERMINALS
    if subsystem in _HIDDEN_SUBSYSTEMS:
        return _HIDDEN_SUBSYSTEMS[subsystem]
    if is_virtual and subsystem not in {"tpmrm", "fpga_region"}:
        return OTHERS
    is_part = subsystem == "drm" and not name.startswith("renderD")
    is_part |= subsystem == "video4linux" and str(found.facts.get("attr.index", "0")) != "0"
    # The bus to the graphics card's monitors, and to the memory modules.
    is_part |= subsystem == "i2c-dev" and "pciAddress" in found.facts
    if is_part:
        return OTHERS
    return _KINDS_BY_SUBSYSTEM.get(subsystem) or _plain_kind(name if subsystem == "misc" else subsystem)


def _stem(name: str) -> str:
    return _NUMBERS_AT_END.sub("", name)


def _plain_kind(name: str) -> str:
    """Return a name of the kernel as a kind: `dfl-port.0` is `dfl-port`."""
    return _plain(_stem(name))


def _plain(text: str) -> str:
    """Return a text as it may stand in a resource name."""
    return _NOT_IN_KIND.sub("-", text)[:50].strip("-._") or "device"
