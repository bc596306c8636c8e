"""A device as a source finds it on the host, the same value for every kind of source, and its ID. Pure.

IDs are made of what the hardware says. No two devices have the same ID, and the ID of a device never changes.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, count
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from devplug.daemon.config.templates import Missing, render_one
from devplug.devices import Health, stable_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from devplug.attributes import Partition
    from devplug.daemon.config.templates import Template

__all__ = ["MEMORY_MAJOR", "HostDevice", "HostDeviceNode", "Names", "Source", "Wanted", "wanted_name"]

MEMORY_MAJOR: Final = 1
"""Major of /dev/null and its like (the kernel's devices.txt): no hardware is behind them."""

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


# ── IDs ───────────────────────────────────────────────────────────────────────────────────────────


class Wanted(Struct, frozen=True):
    """The IDs that one present device may get."""

    hardware: str
    """Where it is plugged in, the same after a re-plug: its folder below /sys/devices, or what stands for it
    where the kernel numbers anew, as with USB buses."""
    preferred: str
    """The ID by what the device says of itself, as a serial number; another device may say the same."""
    by_place: str
    """The ID with the address and the port where it is plugged in, which only one device can have."""

    def choices(self) -> tuple[str, str, str]:
        """The IDs, best first."""
        return (
            stable_id(self.preferred),
            stable_id(self.by_place),
            stable_id(f"{self.by_place}@{self.hardware}"),
        )


def wanted_name(template: Template | None, facts: Mapping[str, str | int], default: str) -> str:
    """Return the ID that a template makes of a device's facts; that of `default` if it lacks one of them."""
    if template is not None:
        text = render_one(template, facts)
        if not isinstance(text, Missing):
            return stable_id(text)
    return stable_id(default)


class Names(Struct):
    """The IDs of one source's devices; lives as long as the source.

    Many devices of one make have the same serial number. Those that are first seen together get the IDs of
    their places. One that was seen before the others keeps its ID, because a pod may hold it, also if it was
    unplugged and came back to its place; unless another device with the same serial number got the ID in
    between.
    """

    _names: dict[str, str] = field(default_factory=dict)
    """By hardware, of absent devices too."""
    _present: frozenset[str] = frozenset()
    _ambiguous: set[str] = field(default_factory=set)

    def assign(self, wanted: Iterable[Wanted]) -> dict[str, str]:
        """Return the ID of each present device, by hardware. Order does not matter."""
        by_hardware = {one.hardware: one for one in wanted}
        counted = Counter(one.preferred for one in by_hardware.values())
        self._ambiguous.update(name for name, number in counted.items() if number > 1)
        owner_of: dict[str, str] = {}
        # Who was here at the last look comes first, then who was here before, then who is new.
        known = sorted(
            by_hardware.keys() & self._names.keys(), key=lambda one: (one not in self._present, one)
        )
        for hardware in known:
            name = self._names[hardware]
            if name not in owner_of and name in by_hardware[hardware].choices():
                owner_of[name] = hardware
        for hardware in sorted(by_hardware.keys() - set(owner_of.values())):
            owner_of[self._new_name(by_hardware[hardware], owner_of)] = hardware
        assigned = {hardware: name for name, hardware in owner_of.items()}
        self._names.update(assigned)
        self._present = frozenset(assigned)
        return assigned

    def _new_name(self, one: Wanted, taken: Mapping[str, str]) -> str:
        choices = one.choices()[1 if one.preferred in self._ambiguous else 0 :]
        # Only USB devices that imitate each other's places get as far as a number.
        numbered = (stable_id(f"{one.by_place}@{one.hardware}#{number}") for number in count(2))
        return next(name for name in chain(choices, numbered) if name not in taken)
