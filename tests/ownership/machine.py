"""A made machine whose hardware can be told apart: which hardware is behind a device number at each moment.

Below a folder it writes what the kernel and udev would write: sysfs, device nodes, links by ID and by path.
As on a real machine, a serial adapter gets the lowest free number of `ttyUSB`, so numbers are used again.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.daemon.hosts import UNUSED_MAJOR, char_node
from tests.daemon.machines import Machine
from tests.ownership.oracle import Numbers

CONTROLLER = "0000:00:14.0"
BUS_MINORS = 1000
"""Where the minors of the nodes in /dev/bus/usb begin; serial ports have those below."""

HIDDEN = "name-of-test"
"""The file in a stick's folder by which a clean-up command shows which stick it runs on."""

Udev = Literal["none", "by-path", "all"]
"""The links that udev makes on a machine: none, those by port, or those by ID and by port."""


@dataclass(frozen=True)
class Stick:
    """A serial adapter for USB; two with the same vendor, product and serial number are twins."""

    name: str
    """The name by which the test knows it; the machine shows it to nobody."""
    serial: str = ""
    vendor: str = "0403"
    product: str = "6001"


@dataclass(frozen=True)
class _Place:
    port: str
    tty: int
    folder: str


class UsbMachine:
    """A machine with one USB controller; lives as long as its folder."""

    def __init__(self, root: Path, udev: Udev = "by-path") -> None:
        self.root = root
        self._udev = udev
        self._machine = Machine(root)
        self._bus = self._machine.usb_bus(self._machine.pci(CONTROLLER, **{"class": "0x0c0330"}))
        self._places: dict[Stick, _Place] = {}
        self._last_number = 1
        self.seen: set[Stick] = set()
        """All sticks that have ever been plugged in: the daemon lists an unplugged one for a while."""

    @property
    def names(self) -> Path:
        """The folder by which a clean-up command shows which stick has a number, in hexadecimal."""
        return self.root / HIDDEN

    @property
    def ports(self) -> frozenset[str]:
        """The ports that have a stick."""
        return frozenset(place.port for place in self._places.values())

    @property
    def sticks(self) -> frozenset[Stick]:
        """All sticks that are plugged in."""
        return frozenset(self._places)

    # ── hot-plug ──

    def plug(self, stick: Stick, port: str, tty: int | None = None) -> Stick:
        """Plug a stick into a port; `tty` is its number, by default the lowest free one."""
        self.seen.add(stick)
        taken = {place.tty for place in self._places.values()}
        number = next(n for n in range(256) if n not in taken) if tty is None else tty
        self._last_number += 1
        folder = self._machine.usb_device(
            self._bus,
            port,
            stick.serial,
            number=self._last_number,
            idVendor=stick.vendor,
            idProduct=stick.product,
        )
        self._places[stick] = _Place(port, number, folder)
        self._machine.write(f"{folder}/{HIDDEN}", f"{stick.name}\n")
        self.names.mkdir(exist_ok=True)
        (self.names / f"{number:x}").write_text(f"{stick.name}\n")
        self._make_port(stick)
        self._number_bus_node(folder)
        self._lead_by_id(stick)
        return stick

    def unplug(self, stick: Stick) -> None:
        """Pull a stick out."""
        place = self._places.pop(stick)
        (self.root / f"dev/ttyUSB{place.tty}").unlink()
        self._machine.remove(f"/sys/dev/char/{UNUSED_MAJOR}:{place.tty}")
        (self.root / _by_path(place.port)).unlink(missing_ok=True)
        self._lead_by_id(stick)
        number = (self.root / place.folder.lstrip("/") / "dev").read_text().strip()
        self._machine.remove(f"/sys/dev/char/{number}")
        self._machine.unplug(place.folder)

    def move(self, stick: Stick, port: str, tty: int | None = None) -> None:
        """Pull a stick out, and plug it into another port."""
        self.unplug(stick)
        self.plug(stick, port, tty)

    def renumber(self, *sticks: Stick) -> None:
        """Give each of these sticks the number of the next one, as a reboot or a re-plug of all may do."""
        places = [self._places[stick] for stick in sticks]
        for stick in sticks:
            self.unplug(stick)
        for stick, place, other in zip(sticks, places, (*places[1:], places[0]), strict=True):
            self.plug(stick, place.port, other.tty)

    def _make_port(self, stick: Stick) -> None:
        place, name = self._places[stick], f"ttyUSB{self._places[stick].tty}"
        port = self._machine.device(f"{self._machine.interface(place.folder)}/{name}", "usb-serial")
        tty = self._machine.device(f"{port}/tty/{name}", "tty")
        self._machine.write(f"{tty}/dev", f"{UNUSED_MAJOR}:{place.tty}\n")
        self._machine.write(f"{tty}/uevent", f"MAJOR={UNUSED_MAJOR}\nMINOR={place.tty}\nDEVNAME={name}\n")
        char_node(self.root / f"dev/{name}", place.tty)
        self._machine.link(f"/sys/dev/char/{UNUSED_MAJOR}:{place.tty}", tty)
        if self._udev != "none":
            self._machine.link(f"/{_by_path(place.port)}", f"/dev/{name}")

    def _number_bus_node(self, folder: str) -> None:
        """Give the node on the bus, which the daemon sees come, a number that no serial port has."""
        name, minor = f"bus/usb/001/{self._last_number:03}", BUS_MINORS + self._last_number
        (self.root / "dev" / name).unlink()
        char_node(self.root / "dev" / name, minor)
        self._machine.write(f"{folder}/dev", f"{UNUSED_MAJOR}:{minor}\n")
        self._machine.write(f"{folder}/uevent", f"MAJOR={UNUSED_MAJOR}\nMINOR={minor}\nDEVNAME={name}\n")
        self._machine.link(f"/sys/dev/char/{UNUSED_MAJOR}:{minor}", folder)

    def _lead_by_id(self, stick: Stick) -> None:
        """Let the link by ID lead to the last twin that was plugged in, as udev does."""
        if self._udev != "all" or not stick.serial:
            return
        path = f"/dev/serial/by-id/usb-{stick.vendor}_{stick.product}_{stick.serial}-if00-port0"
        if os.path.lexists(self.root / path.lstrip("/")):
            self._machine.remove(path)
        said = (stick.vendor, stick.product, stick.serial)
        twins = [one for one in self._places if (one.vendor, one.product, one.serial) == said]
        if twins:
            self._machine.link(path, f"/dev/ttyUSB{self._places[twins[-1]].tty}")

    def link(self, path: str, stick: Stick) -> None:
        """Let a link below /dev lead to a stick's serial port, as a rule of udev's may say."""
        if os.path.lexists(self.root / path.lstrip("/")):
            self._machine.remove(path)
        self._machine.link(path, f"/dev/ttyUSB{self._places[stick].tty}")

    # ── what is behind a path ──

    def numbers(self, host_path: str) -> Numbers:
        """Return the device number to which a path leads now; none if it leads nowhere."""
        try:
            status = os.stat(self.root / host_path.lstrip("/"))  # noqa: PTH116 -- links are followed
        except OSError:
            return frozenset()
        if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            return frozenset()
        return frozenset({(os.major(status.st_rdev), os.minor(status.st_rdev))})

    def found_at(self, pattern: str) -> frozenset[Stick]:
        """Return the sticks to which the paths of a glob pattern lead now."""
        found = [f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.lstrip("/"))]
        return frozenset(stick for path in found for stick in self.behind(self.numbers(path)))

    def behind(self, numbers: Numbers) -> frozenset[Stick]:
        """Return the sticks that can be opened by these device numbers now."""
        return frozenset(stick for stick in self._places if numbers & self.numbers_of(stick))

    def numbers_of(self, stick: Stick) -> Numbers:
        """Return the device numbers of a stick that is plugged in."""
        place = self._places[stick]
        text = (self.root / place.folder.lstrip("/") / "dev").read_text().strip()
        major, _, minor = text.partition(":")
        return frozenset({(int(major), int(minor)), (UNUSED_MAJOR, place.tty)})


def _by_path(port: str) -> str:
    return f"dev/serial/by-path/pci-{CONTROLLER}-usb-0:{port}:1.0-port0"
