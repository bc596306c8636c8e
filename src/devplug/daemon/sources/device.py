"""A device as a source finds it on the host, the same value for every kind of source, and its ID. Pure.

IDs are made of what the hardware says. No two devices have the same ID, and the ID of a device never changes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from devplug.daemon.config.templates import Missing, render_one
from devplug.devices import Health, stable_id
from devplug.holds.hardware import MEMORY_MAJOR, number_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from devplug.attributes import Partition
    from devplug.daemon.config.templates import Template
    from devplug.holds.hardware import Hardware, Key

_NO_FACTS: Mapping[str, str | int] = MappingProxyType({})
_NO_NUMBERS: Mapping[str, int] = MappingProxyType({})


# ── devices ───────────────────────────────────────────────────────────────────────────────────────


class HostDeviceNode(Struct, frozen=True):
    """One device node of a found device, and what proves at Allocate that it is still the same."""

    host_path: str
    """The path that a container's answer carries: the stable link where there is one."""
    number: tuple[int, int]
    """Major and minor."""
    is_block: bool = False
    subsystem: str = ""
    """What the kernel calls its kind, as in `tty`; empty where a source does not look into sysfs."""
    real_path: str = ""
    """The kernel's own path of the node, as in `/dev/ttyUSB0`; empty if that is `host_path`."""
    name: str = ""
    """What `{containerPath.NAME}` calls it, where the source gives names: the members of a bundle."""
    is_shared: bool = False
    """Whether it belongs to a driver and not to this device: it comes along, and nobody owns it."""

    @property
    def file_name(self) -> str:
        """The kernel's name of the node: what `file` in `expose.deviceNodes` is compared with."""
        return (self.real_path or self.host_path).rpartition("/")[2]


class HostDevice(Struct, frozen=True):
    """A device that is present now. `name` identifies it from one scan to the next, and is a device ID."""

    name: str
    nodes: tuple[HostDeviceNode, ...] = ()
    numa_node: int | None = None
    facts: Mapping[str, str | int] = field(default_factory=lambda: _NO_FACTS)
    """The values of template variables, by variable; `id`, `index` and `containerPath` are added later."""
    hardware: str = ""
    """Its folder below /sys/devices; the same while it is plugged in. Two resources that find the same folder
    find the same hardware. Empty if there is no hardware."""
    health: Health = field(default_factory=Health.healthy)
    """Its health by the source, as from its driver; health rules are applied to it."""
    links: Mapping[str, int] = field(default_factory=lambda: _NO_NUMBERS)
    """The number of its connections to other devices of the resource, by their names; more is better. Only
    those that sysfs does not have, such as NVLinks."""
    capacity: Mapping[str, int] = field(default_factory=lambda: _NO_NUMBERS)
    """Numbers of which claims can ask for at least so many, as bytes of `memory`; without what is unknown."""
    partition: Partition | None = None
    """What it takes of something larger that other devices take of, too; None if of nothing."""
    plugged: int = 0
    """The inode of its folder in sysfs: the kernel makes another folder for whatever is plugged in at the
    same place later, even if its numbers are the same. 0 if unknown."""
    identity: Hardware | None = None
    """The identity of its hardware over re-plugs, restarts and edits; None if the source knows none."""
    parts: tuple[Key, ...] = ()
    """The device numbers of its parts that other resources may list, such as the partitions of a disk."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Its folder and its device numbers; two devices that have one in common are the same hardware.

        Nodes that belong to its driver are none of them, nor /dev/null and its like.
        """
        keys = self.own_numbers
        if self.parts:
            keys = tuple(dict.fromkeys((*keys, *self.parts)))
        return (self.hardware, *keys) if self.hardware else keys

    @property
    def own_numbers(self) -> tuple[Key, ...]:
        """The device numbers of its own nodes, in the form of `keys`."""
        return tuple(
            [
                number_key(node.number, is_block=node.is_block)
                for node in self.nodes
                if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
            ]
        )

    @property
    def has_hardware(self) -> bool:
        """Whether it can be absent: a device without node and folder is there as long as the file has it."""
        return bool(self.nodes or self.hardware)

    def __hash__(self) -> int:
        """Return the hash of what identifies it: mappings have none."""
        return hash(self.name)

    @property
    def plugged_in(self) -> object:
        """A value that changes when the device is unplugged and plugged in again."""
        return self.hardware, self.plugged, self.nodes


class Source(Protocol):
    """A source of one kind of host devices. It reports changes by itself and is not polled."""

    def look(self) -> tuple[HostDevice, ...]:
        """Scan, and return all devices that are present, sorted by name. It only reads.

        It may be called at any time, also while `looks` is followed: in Allocate, and by commands that show
        what is present.
        """

    def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield all devices that are present, sorted by name: at once, after each change, and every 30 s."""


def without_parts(found: Sequence[HostDevice]) -> list[HostDevice]:
    """Return the devices without those that are parts of others: a disk is listed, and not its partitions."""
    parts = {key for one in found for key in one.parts}
    return [one for one in found if not parts.intersection(one.own_numbers)] if parts else [*found]


# ── IDs ───────────────────────────────────────────────────────────────────────────────────────────


def wanted_name(template: Template | None, facts: Mapping[str, str | int], default: str) -> str:
    """Return the ID that a template makes of a device's facts; that of `default` if it lacks one of them."""
    if template is not None:
        text = render_one(template, facts)
        if not isinstance(text, Missing):
            return stable_id(text)
    return stable_id(default)
