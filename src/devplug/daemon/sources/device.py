"""A device as a source finds it on the host, the same value for every kind of source, and its ID. Pure.

IDs are as the hardware says: never two devices with one ID, and none that changes.
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

    from devplug.daemon.config.templates import Template

__all__ = ["MEMORY_MAJOR", "HostDevice", "HostDeviceNode", "Names", "Source", "Wanted", "wanted_name"]

MEMORY_MAJOR: Final = 1
"""Major of /dev/null and its like (the kernel's devices.txt): no hardware is behind them."""

_NO_FACTS: Mapping[str, str | int] = MappingProxyType({})
_NO_LINKS: Mapping[str, int] = MappingProxyType({})


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
    """A device that is present now. `name` identifies it from one look to the next, and is a device ID."""

    name: str
    nodes: tuple[HostDeviceNode, ...] = ()
    numa_node: int | None = None
    facts: Mapping[str, str | int] = field(default_factory=lambda: _NO_FACTS)
    """What templates may say of it, by their names for it; `id`, `index` and `containerPath` come later."""
    hardware: str = ""
    """What it physically is, for as long as it is plugged in: its folder below /sys/devices where sysfs knows
    it. Two resources that find the same have one device between them. Empty: nothing is behind it."""
    health: Health = field(default_factory=Health.healthy)
    """What the source itself knows of it, as from the driver; health rules come on top."""
    links: Mapping[str, int] = field(default_factory=lambda: _NO_LINKS)
    """How well it is connected to other devices of the resource, by their names; more is better. Only what
    sysfs cannot tell, such as the number of NVLinks."""
    plugged: int = 0
    """Which time of being plugged in this is: the inode of its folder, of which the kernel makes another one
    for whatever comes to the same place with the same numbers. 0: nobody can tell."""

    def __hash__(self) -> int:
        """Return the hash of what identifies it: mappings have none."""
        return hash(self.name)

    @property
    def plugged_in(self) -> object:
        """What is another after it was pulled out and plugged in again."""
        return self.hardware, self.plugged, self.nodes


class Source(Protocol):
    """One kind of host device. It announces changes; nobody polls it."""

    def look(self) -> tuple[HostDevice, ...]:
        """Return all devices that are present, sorted by name: a fresh look, which only reads.

        It may be asked at any time, also while `looks` is followed: in Allocate, and by commands that only
        show what is here.
        """

    def looks(self) -> AsyncGenerator[tuple[HostDevice, ...], None]:
        """Yield all devices that are present, sorted by name: at once, after each change, and every 30 s."""


# ── IDs ───────────────────────────────────────────────────────────────────────────────────────────


class Wanted(Struct, frozen=True):
    """What one present device would like to be called."""

    hardware: str
    """Where it is plugged in, the same after a re-plug: its folder below /sys/devices, or what stands for it
    where the kernel numbers anew, as with USB buses."""
    preferred: str
    """What it says of itself, as with a serial number; another device may say the same."""
    by_place: str
    """What only one device can be called: with the address and the port it is plugged in."""

    def choices(self) -> tuple[str, str, str]:
        """Return the IDs it may have, best first."""
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

    Many gadgets of one make have one serial number. Those that are first seen together are called by their
    places. One that was alone before keeps its name, because a pod may hold it, also after it was unplugged
    and came back to its place; unless another that says the same was given that name in between.
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

    def is_ambiguous(self, preferred: str) -> bool:
        """Whether two present devices have said this of themselves at once, ever."""
        return preferred in self._ambiguous

    def _new_name(self, one: Wanted, taken: Mapping[str, str]) -> str:
        choices = one.choices()[1 if one.preferred in self._ambiguous else 0 :]
        # Only gadgets that imitate each other's places get as far as a number.
        numbered = (stable_id(f"{one.by_place}@{one.hardware}#{number}") for number in count(2))
        return next(name for name in chain(choices, numbered) if name not in taken)
