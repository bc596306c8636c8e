"""A survey of all devices of a machine: each kind of source, with selectors that leave nothing out."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.globs import has_wildcard
from devplug.daemon.config.selectors import (
    NetSelector,
    NvidiaSelector,
    PathSelector,
    PciSelector,
    SysfsSelector,
    UsbSelector,
)
from devplug.daemon.inspection.device_kinds import SHARED_PATHS, Survey
from devplug.daemon.sources.hardware import device_at
from devplug.daemon.sources.net import NetSource
from devplug.daemon.sources.nvidia import NvidiaSource
from devplug.daemon.sources.nvidia_gpu import GpuReading
from devplug.daemon.sources.nvml import read
from devplug.daemon.sources.path import PathSource
from devplug.daemon.sources.pci import PciSource
from devplug.daemon.sources.sysfs import SysfsSource
from devplug.daemon.sources.usb import UsbSource
from devplug.linux.threads import DaemonThreads

if TYPE_CHECKING:
    from devplug.daemon.sources.device import HostDevice
    from devplug.daemon.sources.host import Host

_ALLOW: Final = ("rawDisks",)
"""Disks are shown, too; whether they are proposed is decided elsewhere."""

_WITHOUT_OWN_NODES: Final = ("fpga_region", "infiniband", "sound")
"""Classes whose devices have their nodes in devices below them."""

_ASKED: Final = MappingProxyType({"console": "*"})
_TERMINALS: Final = "/dev/pts/*"
_DRIVER_LIMIT_SECONDS: Final = 10.0

_NODE_FOLDERS: Final = ("/sys/dev/char", "/sys/dev/block")
"""Links to all devices that have a node, by number."""


def survey(host: Host) -> Survey:
    """Return what is on a machine now. It only reads; it blocks for a driver, ten seconds at most."""
    gpus, profiles, fault = _gpus(host)
    sysfs = {subsystem: _sysfs(host, subsystem) for subsystem in sorted(_subsystems(host))}
    usb = UsbSource("", (UsbSelector(),), None, _ALLOW, host).look()
    pci = PciSource("", (PciSelector(),), None, _ALLOW, host).look()
    net = NetSource("", (NetSelector(), NetSelector(interface="?*")), None, _ALLOW, host).look()
    known = {node.number for found in (*usb, *pci) for node in found.nodes}
    known |= {node.number for looked in sysfs.values() for found in looked for node in found.nodes}
    return Survey(
        gpus,
        MappingProxyType(profiles),
        fault,
        net,
        usb,
        pci,
        MappingProxyType({name: looked for name, looked in sysfs.items() if looked}),
        _paths(host, known),
    )


def _gpus(host: Host) -> tuple[tuple[HostDevice, ...], dict[str, str], str]:
    """Return GPUs and MIG instances, the profiles of these by UUID, and why the driver cannot be asked."""
    try:
        reading = DaemonThreads(1, "devplug-nvml").submit(read, host).result(_DRIVER_LIMIT_SECONDS)
    except TimeoutError:
        reading = GpuReading(missing="NVML does not answer")
    if not reading.gpus:
        return (), {}, reading.missing
    profiles = {one.uuid: one.profile for gpu in reading.gpus for one in gpu.instances}
    selectors = (NvidiaSelector(), *(NvidiaSelector(mig=one) for one in sorted(set(profiles.values()))))
    source = NvidiaSource("", selectors, host=host, answer_limit_seconds=_DRIVER_LIMIT_SECONDS)
    return source.look(), profiles, ""


def _subsystems(host: Host) -> set[str]:
    """Return the subsystems of all devices that have a node, but for those that other sources are for."""
    found = set(_WITHOUT_OWN_NODES)
    for folder in _NODE_FOLDERS:
        try:
            names = os.listdir(host.inside(folder))  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            device = device_at(host, f"{folder}/{name}")
            found.add(device.subsystem if device else "")
    return found - {"", "usb"}


def _sysfs(host: Host, subsystem: str) -> tuple[HostDevice, ...]:
    # Facts that selectors ask for are read, too: whether the kernel writes its messages to a serial port.
    selectors = (SysfsSelector(subsystem=subsystem), SysfsSelector(subsystem=subsystem, attributes=_ASKED))
    looked = SysfsSource("", selectors, None, _ALLOW, host).look()
    return tuple(found for found in looked if found.nodes)


def _paths(host: Host, known: set[tuple[int, int]]) -> tuple[HostDevice, ...]:
    """Return the nodes that many may share, and those that sysfs does not know: somebody made them."""
    unknown = [
        path for path in host.nodes_in("/dev") if (node := host.node(path)) and node.number not in known
    ]
    paths = [path for path in unknown if not has_wildcard(path) and not path.startswith(_TERMINALS[:-1])]
    selectors = [PathSelector(glob=path) for path in dict.fromkeys([*SHARED_PATHS, *paths, _TERMINALS])]
    return PathSource("", tuple(selectors), None, _ALLOW, host).look()
