"""Hardware as the kernel describes it: folders below /sys/devices, their attributes, parents and nodes.

Only targeted reads: sysfs is full of links that lead in circles, so nothing here walks through one. Also NUMA
nodes: which there are, how far apart the firmware says they are, and to which one processors belong. A set of
processors is a number: bit n stands for processor n.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.daemon.sources.device import HostDeviceNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devplug.daemon.sources.host import Host

CPU_LIMIT: Final = 65_536
"""No kernel has as many processors (8,192 on x86): beyond it a text is nonsense, and must not cost memory."""

_RANGE: Final = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MASK: Final = r"(?:0x)?([0-9a-fA-F]+(?:,[0-9a-fA-F]+)*)"

PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""The kernel's name of a PCI function. The domain is longer than four digits behind Intel's VMD."""

DEVICES: Final = "/sys/devices"
BUSES: Final = "/sys/bus"
NUMA_NODES: Final = "/sys/devices/system/node"
ATTRIBUTE_LIMIT_BYTES: Final = 4096
"""The kernel gives no attribute more than a page, but for binary ones, which are none of ours."""

_NUMA_NODE: Final = re.compile(r"node(\d+)")
_DIGITS: Final = re.compile(r"(\d+)")


# ── processors ────────────────────────────────────────────────────────────────────────────────────


def cpus_of_list(text: str) -> int | None:
    """Return the processors of a list such as `0-3,8`, as in `local_cpulist`; None if it is no list.

    The empty text is the empty list: so says the kernel of memory without processors.
    """
    cpus = 0
    for part in filter(None, text.split(",")):
        found = _RANGE.fullmatch(part)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last >= CPU_LIMIT:
            return None
        cpus |= ((1 << (last - first + 1)) - 1) << first
    return cpus


def cpus_of_mask(text: str) -> int | None:
    """Return the processors of a mask such as `0000,000000ff`, as in `local_cpus`; None if it is no mask."""
    found = re.fullmatch(_MASK, text)
    digits = found[1].replace(",", "") if found else ""
    return int(digits, 16) if 0 < len(digits) <= CPU_LIMIT // 4 else None


def node_of_cpus(cpus: int, cpus_of_nodes: Mapping[int, int]) -> int | None:
    """Return the NUMA node that has all of these processors, or None.

    None too on a machine where only one node has processors: there, being near to it says nothing. Nodes
    without processors, as of memory alone, are nobody's.
    """
    if not cpus or sum(1 for of_node in cpus_of_nodes.values() if of_node) < 2:
        return None
    return next((node for node, of_node in sorted(cpus_of_nodes.items()) if not cpus & ~of_node), None)


# ── devices ───────────────────────────────────────────────────────────────────────────────────────


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts names as people do: `video2` before `video10`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name))


class SysDevice(Struct, frozen=True):
    """A device of the kernel, by its real folder below /sys/devices. Every call reads anew."""

    host: Host
    path: str
    """On the host, without links: `/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2`."""

    @property
    def name(self) -> str:
        """The kernel's name of it, as in `1-2` or `ttyUSB0`."""
        return self.path.rpartition("/")[2]

    @property
    def is_present(self) -> bool:
        """Whether its folder is still there."""
        return os.path.isdir(self.host.inside(self.path))  # noqa: PTH112

    def attribute(self, name: str) -> str | None:
        """Return an attribute as text without the white space at its ends, or None if it cannot be read.

        `name` may lead into a folder of the device (`power/control`), never out of it.
        """
        if ".." in name.split("/"):
            return None
        try:
            with open(self.host.inside(f"{self.path}/{name}"), "rb") as file:  # noqa: PTH123
                content = file.read(ATTRIBUTE_LIMIT_BYTES)
        except (OSError, ValueError):
            return None
        return content.decode("utf-8", "replace").strip("\0 \t\r\n")

    def number(self, name: str, base: int = 10) -> int | None:
        """Return an attribute as a number, or None if there is none."""
        try:
            return int(self.attribute(name) or "", base)
        except ValueError:
            return None

    def link(self, name: str) -> str | None:
        """Return the last name of where a link of the device leads, or None: its driver, its subsystem."""
        try:
            return os.readlink(self.host.inside(f"{self.path}/{name}")).rstrip("/").rpartition("/")[2]  # noqa: PTH115
        except OSError:
            return None

    def linked(self, name: str) -> SysDevice | None:
        """Return the device that a link leads to, or None."""
        return device_at(self.host, f"{self.path}/{name}")

    @property
    def subsystem(self) -> str:
        """The kind of it, as in `usb`, `pci` or `tty`; empty for a folder that is no device.

        Without a link, as in a tree that was copied in part, a PCI function is known by its name.
        """
        return self.link("subsystem") or ("pci" if PCI_ADDRESS.fullmatch(self.name) else "")

    @property
    def driver(self) -> str | None:
        """The name of the driver that is bound to it, or None."""
        return self.link("driver")

    def parents(self) -> Iterator[SysDevice]:
        """Yield its parent devices, nearest first."""
        path = self.path.rpartition("/")[0]
        while path.startswith(f"{DEVICES}/"):
            yield SysDevice(self.host, path)
            path = path.rpartition("/")[0]

    def nearest(self, subsystem: str) -> SysDevice | None:
        """Return itself or its nearest parent of a subsystem, or None."""
        return next((one for one in (self, *self.parents()) if one.subsystem == subsystem), None)

    def children(self) -> list[SysDevice]:
        """Return its child devices, in natural order: folders that have a `uevent`.

        Class folders such as `tty` or `video4linux`, which have none, are passed through.
        """
        found = []
        for name in self._folders():
            child = SysDevice(self.host, f"{self.path}/{name}")
            if os.path.exists(self.host.inside(f"{child.path}/uevent")):  # noqa: PTH110
                found.append(child)
            elif name != "power":
                found += [
                    SysDevice(self.host, f"{child.path}/{inner}")
                    for inner in child._folders()
                    if os.path.exists(self.host.inside(f"{child.path}/{inner}/uevent"))  # noqa: PTH110
                ]
        return found

    def nodes_below(self, is_other: Callable[[str], bool]) -> list[HostDeviceNode]:
        """Return the device nodes of all devices below it, by the kernel's names, without its own.

        Parents before children, siblings in natural order: the first interface's nodes come first. A folder
        whose name `is_other` is a device of its own, and passed over with all below it.
        """
        found = []
        for name in self._folders():
            if name == "power" or is_other(name):
                continue
            child = SysDevice(self.host, f"{self.path}/{name}")
            # The kernel makes this file for each device that has a number, and for no other.
            if os.path.exists(self.host.inside(f"{child.path}/dev")) and (node := child.node()):  # noqa: PTH110
                found.append(node)
            found += child.nodes_below(is_other)
        return found

    def _folders(self) -> list[str]:
        try:
            with os.scandir(self.host.inside(self.path)) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return sorted(names, key=natural)

    def uevent(self) -> Mapping[str, str]:
        """Return the variables of its uevents by name: DEVNAME, DEVTYPE, MAJOR, MINOR and others."""
        lines = (self.attribute("uevent") or "").splitlines()
        return {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}

    def node(self) -> HostDeviceNode | None:
        """Return its own device node as the kernel names it, or None. Does not look into /dev."""
        facts = self.uevent()
        name, number = facts.get("DEVNAME", ""), (facts.get("MAJOR", ""), facts.get("MINOR", ""))
        subsystem = self.subsystem
        if not facts and not subsystem:
            # Of what has neither bus nor class, as vhost-vdpa-0, no event tells (drivers/base/core.c,
            # dev_uevent_filter); it has a node all the same, called as it is.
            major, _, minor = (self.attribute("dev") or "").partition(":")
            name, number, subsystem = self.name, (major, minor), self.name.rstrip("0123456789").rstrip("-")
        if not (name and all(map(str.isdecimal, number))):
            return None
        path = f"/dev/{name.removeprefix('/dev/').replace('!', '/')}"
        return HostDeviceNode(path, (int(number[0]), int(number[1])), subsystem == "block", subsystem)

    @property
    def numa_node(self) -> int | None:
        """The NUMA node it is on: its own or its nearest parent's, None where nobody knows.

        Firmware without that knowledge may name node 0, although no processor is local to it: then the parent
        is asked (as Intel's plugins do, pkg/topology/topology.go). Where the number says nothing, the local
        processors may: if they are all of one node, and other nodes have processors too.
        """
        for one in (self, *self.parents()):
            number = one.number("numa_node")
            if number is not None and number >= 0 and one.local_cpus() != 0:
                return number
            if number is not None and number < 0:
                break
        cpus_of_nodes = _cpus_of_nodes(self.host)
        if len(cpus_of_nodes) < 2:
            return None
        nearest = next((cpus for one in (self, *self.parents()) if (cpus := one.local_cpus())), 0)
        return node_of_cpus(nearest, cpus_of_nodes)

    def local_cpus(self) -> int | None:
        """Return the processors that are near to it as a set of bits, or None if sysfs has none."""
        if (listed := self.attribute("local_cpulist")) is not None:
            return cpus_of_list(listed)
        return None if (mask := self.attribute("local_cpus")) is None else cpus_of_mask(mask)


def _cpus_of_nodes(host: Host) -> dict[int, int]:
    """Return the processors of each NUMA node of the machine."""
    try:
        names = os.listdir(host.inside(NUMA_NODES))  # noqa: PTH208
    except OSError:
        return {}
    nodes = SysDevice(host, NUMA_NODES)
    found = filter(None, map(_NUMA_NODE.fullmatch, names))
    return {int(node[1]): cpus_of_list(nodes.attribute(f"{node[0]}/cpulist") or "") or 0 for node in found}


def device_at(host: Host, path: str) -> SysDevice | None:
    """Return the device that `path` of the host leads to, links followed, or None if it leads to none."""
    top = os.path.realpath(host.inside("/"))
    return _device(host, "/" + os.path.realpath(host.inside(path)).removeprefix(top).lstrip("/"))


def device_of_node(host: Host, node: HostDeviceNode) -> SysDevice | None:
    """Return the device behind a device node, by its number, or None where sysfs does not know it."""
    kind = "block" if node.is_block else "char"
    return _device_by_link(host, f"/sys/dev/{kind}/{node.number[0]}:{node.number[1]}")


def devices_of_subsystem(host: Host, subsystem: str) -> list[SysDevice]:
    """Return all devices that the kernel lists under a subsystem, a class or a bus, in natural order."""
    if "/" in subsystem or subsystem in {"", ".", ".."}:
        return []
    for folder in (f"/sys/class/{subsystem}", f"/sys/bus/{subsystem}/devices"):
        try:
            names = sorted(os.listdir(host.inside(folder)), key=natural)  # noqa: PTH208
        except OSError:
            continue
        found = (_device_by_link(host, f"{folder}/{name}") for name in names)
        return [device for device in found if device is not None]
    return []


def _device_by_link(host: Host, path: str) -> SysDevice | None:
    """Return the device that the link at `path` leads to.

    Below /sys/devices all folders are real, so this one link is all there is to follow. It costs a tenth of
    `device_at`, and there are hundreds of devices at each look.
    """
    try:
        target = os.readlink(host.inside(path))  # noqa: PTH115
    except OSError:
        return _device(host, path)
    return _device(host, os.path.normpath(os.path.join(os.path.dirname(path), target)))  # noqa: PTH118, PTH120


def _device(host: Host, real: str) -> SysDevice | None:
    # In some trees that were copied from a machine, a bus has folders where the kernel makes links.
    if not real.startswith((f"{DEVICES}/", f"{BUSES}/")) or not os.path.isdir(host.inside(real)):  # noqa: PTH112
        return None
    return SysDevice(host, real)


# ── NUMA nodes ────────────────────────────────────────────────────────────────────────────────────


def numa_nodes(host: Host) -> tuple[int, ...]:
    """Return the numbers of the machine's NUMA nodes in order; some may be missing. None if unknown."""
    try:
        names = os.listdir(host.inside(NUMA_NODES))  # noqa: PTH208
    except OSError:
        return ()
    return tuple(sorted(int(found.group(1)) for name in names if (found := _NUMA_NODE.fullmatch(name))))


def numa_distances(host: Host) -> Mapping[tuple[int, int], int]:
    """Return the distance of each pair of NUMA nodes; 10 is the node itself, empty where nothing is known.

    Each line of a node's `distance` goes over the nodes in the order of their numbers
    (Documentation/ABI/stable/sysfs-devices-node).
    """
    numbers = numa_nodes(host)
    distances: dict[tuple[int, int], int] = {}
    for number in numbers:
        try:
            with open(host.inside(f"{NUMA_NODES}/node{number}/distance"), encoding="ascii") as file:  # noqa: PTH123
                row = [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            continue
        distances.update(((number, other), away) for other, away in zip(numbers, row, strict=False))
    return distances


def numa_node_of(host: Host, node: HostDeviceNode) -> int | None:
    """Return the NUMA node of the hardware behind `node`, or None where sysfs knows of none.

    The first `numa_node` on the way from the node's own folder up to /sys/devices, if that is good;
    where it is not, `SysDevice` knows what else there is.
    """
    kind = "block" if node.is_block else "char"
    link = host.inside(f"/sys/dev/{kind}/{node.number[0]}:{node.number[1]}")
    top = host.inside("/sys/devices")
    try:
        # The one link on the way: below /sys/devices all folders are real. Plain text here, because this
        # runs for every node at every look.
        folder = os.path.normpath(f"{os.path.dirname(link)}/{os.readlink(link)}")  # noqa: PTH115, PTH120
    except OSError:
        return None
    while len(folder) > len(top):
        try:
            with open(f"{folder}/numa_node", encoding="ascii") as file:  # noqa: PTH123
                number = int(file.read())
        except (OSError, ValueError):
            folder = folder.rpartition("/")[0]
            continue
        if number >= 0 and _has_processors(folder):
            return number
        device = device_at(host, host.outside(folder))
        return None if device is None else device.numa_node
    return None


def _has_processors(folder: str) -> bool:
    """Whether the hardware has processors near to it; if not, its NUMA node may be wrong in the firmware."""
    try:
        with open(f"{folder}/local_cpulist", encoding="ascii") as file:  # noqa: PTH123
            return bool(file.read().strip())
    except OSError:
        return True
