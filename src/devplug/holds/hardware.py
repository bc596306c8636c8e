"""The hardware behind a device, and what a hold keeps of it. Pure.

A device ID is a handle: an edit, a restart or a re-plug may give it to other hardware. So a hold keeps which
hardware a container got, and everything by which the container can still reach it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MEMORY_MAJOR: Final = 1
"""Major of /dev/null and its like (the kernel's devices.txt): no hardware is behind them."""

REPLICA_MARK: Final = "::"
"""Between the name of a found device and the number of its replica, as NVIDIA's plugin writes it."""

Key: TypeAlias = str
"""A device number, as `char 188:0`, or a folder below /sys/devices: who shares a key shares hardware."""


def number_key(number: tuple[int, int], *, is_block: bool) -> Key:
    """Return the key of a device number."""
    return f"{'block' if is_block else 'char'} {number[0]}:{number[1]}"


_BEFORE_PART: Final = re.compile(r"\.(?=[A-Za-z]|[0-9a-fA-F]+:)")
"""The dot before the name of a part, as in `0000:3b:00.0.renderD0`. The dots within a PCI address and a chain
of USB ports are followed by digits alone."""


def wholes(text: str) -> Iterator[str]:
    """Yield a place or a serial number, and each shorter one that may be its whole device's."""
    yield text
    yield from (text[: dot.start()] for dot in _BEFORE_PART.finditer(text))


class Hardware(Struct, frozen=True):
    """The identity of one piece of hardware: its place, and what it says of itself."""

    place: str
    """The bus path without the numbers that the kernel counts, as udev's ID_PATH; on USB after the make. That
    of a part begins with its whole device's: `0000:3b:00.0.renderD0`."""
    serial: str = ""
    """What tells it from others of its make; empty if it says nothing. Other hardware may say the same."""
    is_whole: bool = False
    """Whether it is a device with all its parts: a PCI function, a USB device, a disk with its partitions."""

    def is_same(self, other: Hardware, twins: Collection[str]) -> bool:
        """Whether both are the same hardware, or one is a part of the other.

        `twins` are serial numbers of several devices: such a number does not show that hardware has moved.
        """
        if self.place == other.place and (self.serial == other.serial or not (self.serial and other.serial)):
            return True
        is_unique = bool(self.serial) and not any(one in twins for one in wholes(self.serial))
        if is_unique and self.serial == other.serial:
            return True
        return self._has_part(other, twins) or other._has_part(self, twins)

    def _has_part(self, other: Hardware, twins: Collection[str]) -> bool:
        if not self.is_whole:
            return False
        if other.place != self.place and self.place in wholes(other.place):
            # A part that says nothing of itself has the serial number of its whole device before its name.
            part = other.place.removeprefix(self.place)
            return not (self.serial and other.serial.endswith(part)) or other.serial == self.serial + part
        is_moved = self.serial != other.serial and self.serial in wholes(other.serial)
        return bool(self.serial) and is_moved and not other.is_whole and self.serial not in twins


def marks(hardware: Hardware | None) -> set[str]:
    """Return texts of which hardware that may be the same, or a part of it, has one in common."""
    if hardware is None:
        return set()
    return {whole for text in (hardware.place, hardware.serial) if text for whole in wholes(text)}


class Use(Struct, frozen=True):
    """What a container got of one device: by this a hold survives new names, numbers and links."""

    name: str = ""
    """The name of the found device; the replicas of a device have its name."""
    hardware: Hardware | None = None
    """None if the source knows no hardware, as of static devices."""
    numbers: tuple[Key, ...] = ()
    """The device numbers that the container may open: those of its nodes when they were allocated."""
    paths: tuple[str, ...] = ()
    """The host paths of its answer. The kubelet uses an answer again at each start of the container, and the
    runtime resolves the paths each time (reference of the kubelet, 4.9)."""
    boot: str = ""
    """The boot of the machine in which the numbers hold."""
    is_shared: bool = False
    """Whether other resources may have the hardware at the same time: `overlap: shared`."""
    is_dirty: bool = False
    """Whether it has to be cleaned after this use: `onRelease`."""


def after_release(use: Use | None) -> Use | None:
    """Return what identifies the hardware of a use that has ended."""
    return use if use is None or use.hardware is None else replace(use, numbers=(), paths=())


def use_entry(use: Use) -> dict[str, Any]:
    """Return a use as JSON has it, without what is empty."""
    hardware = use.hardware
    entry = {
        "name": use.name,
        "hardware": None if hardware is None else [hardware.place, hardware.serial, hardware.is_whole],
        "numbers": use.numbers,
        "paths": use.paths,
        "boot": use.boot,
        "shared": use.is_shared,
        "dirty": use.is_dirty,
    }
    return {name: value for name, value in entry.items() if value}
