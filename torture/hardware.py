"""The hardware of a machine made of files: device nodes, USB adapters in sysfs, and resources that find them.

USB adapters are plugged in and pulled out, and numbered as the kernel does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.loader import load
from devplug.daemon.sources.host import Host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug.daemon.config.types import Resource
    from devplug.daemon.resource import ConfiguredPlugin
    from torture.catalogue import Trial

MAJOR: Final = 240
"""A major for local use (devices.txt): nothing answers, and nothing opens it here."""

BUS: Final = "/sys/devices/pci0000:00/0000:00:14.0/usb1"


# ── device nodes ──


def may_make_nodes(trial: Trial) -> bool:
    """Whether this process may make device nodes where the case plays; told in its figures if not."""
    with tempfile.TemporaryDirectory(dir=trial.folder) as folder:
        try:
            os.mknod(Path(folder, "node"), 0o600 | stat.S_IFCHR, os.makedev(MAJOR, 0))
        except OSError as error:
            trial.figure("left out", f"no device node can be made here: {error.strerror}")
            return False
    return True


def resource_of(rest: str, name: str = "example.com/a") -> Resource:
    """Return a resource of a configuration with these keys, written between braces."""
    return load(f"version: 1\nresources:\n- {{name: {name}, {rest}}}\n", "case.yaml").resources[0]


@dataclass(frozen=True, slots=True)
class Hardware:
    """The device nodes below a root folder. Paths are those of the host: `/dev/serial/by-id/x`."""

    root: Path

    @property
    def host(self) -> Host:
        """Return the machine as the daemon sees it."""
        return Host(self.root)

    def at(self, path: str) -> Path:
        """Return where a path of the host is for this process."""
        return Path(f"{self.root}{path}")

    def node(self, path: str, minor: int, *, is_block: bool = False) -> None:
        """Make a device node, and the folders on its way."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, 0o600 | (stat.S_IFBLK if is_block else stat.S_IFCHR), os.makedev(MAJOR, minor))

    def link(self, path: str, target: str) -> None:
        """Make a link, and the folders on its way."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def remove(self, *paths: str) -> None:
        """Remove what is at these paths."""
        for path in paths:
            self.at(path).unlink()

    def minor(self, path: str) -> int | None:
        """Return the minor of the character device that a path leads to now; None if it is none."""
        try:
            found = self.at(path).stat()
        except OSError:
            return None
        return os.minor(found.st_rdev) if stat.S_ISCHR(found.st_mode) else None


@asynccontextmanager
async def discovered(plugin: ConfiguredPlugin) -> AsyncIterator[None]:
    """Have a plugin know its devices for a block."""
    ready = asyncio.Event()

    async def follow() -> None:
        async for _ in plugin.devices():
            ready.set()

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await ready.wait()
        yield
        following.cancel()


# ── USB adapters ──


@dataclass(slots=True)
class UsbDevices:
    """The adapters on one bus, each with a serial port; lives as long as a case.

    An adapter that is plugged in gets the lowest free number, so /dev/ttyUSB0 is now this one, now that one.
    Each change is one step for who shares our loop; what the kernel does between two of its own is not tried.
    """

    hardware: Hardware
    has_links: bool = False
    """Whether udev makes a link by serial number for each; else it only handles them."""
    ports: dict[str, int] = field(default_factory=dict)
    """By serial number of what is plugged in: the number of its node."""
    history: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Of each node, since which step it was whose, by serial number; "" for nobody's."""
    steps: int = 0
    _port_of: dict[str, int] = field(default_factory=dict)
    _device_number: int = 1

    def prepare(self) -> None:
        """Make the bus, without anything on it."""
        files = {"uevent": "", "version": " 2.00\n", "idVendor": "1d6b\n", "idProduct": "0002\n"}
        self._files(BUS, files | {"bDeviceClass": "09\n"})
        self.hardware.link(f"{BUS}/subsystem", "../../../../bus/usb")
        self.hardware.link("/sys/bus/usb/devices/usb1", f"../../..{BUS.removeprefix('/sys')}")
        self.hardware.at("/dev/bus/usb/001").mkdir(parents=True)
        self.hardware.at("/dev/serial/by-id").mkdir(parents=True)

    def plug(self, serial: str, port: int) -> str:
        """Plug an adapter into a port of the bus; return its node."""
        number = min({*range(len(self.ports) + 1)} - {*self.ports.values()})
        # As the kernel does: the next one up to 127 that no USB device has.
        self._device_number = self._device_number % 127 + 1
        while self.hardware.at(f"/dev/bus/usb/001/{self._device_number:03}").exists():
            self._device_number = self._device_number % 127 + 1
        folder = f"{BUS}/1-{port}"
        name, bus_name = f"ttyUSB{number}", f"bus/usb/001/{self._device_number:03}"
        self._files(
            folder,
            {
                "idVendor": "0403\n",
                "idProduct": "6001\n",
                "bDeviceClass": "00\n",
                "busnum": "1\n",
                "devpath": f"{port}\n",
                "devnum": f"{self._device_number}\n",
                "authorized": "1\n",
                "bConfigurationValue": "1\n",
                "serial": f"{serial}\n",
                **_numbered(bus_name, 1000 + self._device_number),
            },
        )
        self._files(f"{folder}/1-{port}:1.0", {"uevent": "", "bInterfaceClass": "ff\n"})
        tty = f"{folder}/1-{port}:1.0/{name}/tty/{name}"
        self._files(tty, _numbered(name, number))
        for place, kind in ((folder, "bus/usb"), (f"{folder}/1-{port}:1.0", "bus/usb"), (tty, "class/tty")):
            up = "../" * (place.count("/") - 1)
            self.hardware.link(f"{place}/subsystem", f"{up}{kind}")
        self.hardware.link(f"/sys/bus/usb/devices/1-{port}", f"../../..{folder.removeprefix('/sys')}")
        self.hardware.link(f"/sys/class/tty/{name}", f"../..{tty.removeprefix('/sys')}")
        self.hardware.node(f"/dev/{name}", number)
        self.hardware.node(f"/dev/{bus_name}", 1000 + self._device_number)
        self.ports[serial], self._port_of[serial] = number, port
        if self.has_links:
            self.hardware.link(f"/dev/serial/by-id/{serial}", f"../../{name}")
        self._note(f"/dev/{name}", serial)
        return f"/dev/{name}"

    def unplug(self, serial: str) -> int:
        """Pull an adapter out; return the port that it was in."""
        number, port = self.ports.pop(serial), self._port_of.pop(serial)
        device_number = self.hardware.at(f"{BUS}/1-{port}/devnum").read_text().strip()
        self.hardware.remove(f"/dev/ttyUSB{number}", f"/dev/bus/usb/001/{int(device_number):03}")
        self.hardware.remove(f"/sys/bus/usb/devices/1-{port}", f"/sys/class/tty/ttyUSB{number}")
        if self.has_links:
            self.hardware.remove(f"/dev/serial/by-id/{serial}")
        # Moved away, not removed: sysfs never gives a later folder the inode of an earlier one.
        gone = self.hardware.at(f"/gone/{self.steps}")
        gone.parent.mkdir(exist_ok=True)
        self.hardware.at(f"{BUS}/1-{port}").rename(gone)
        self._note(f"/dev/ttyUSB{number}", "")
        return port

    def forget_gone(self) -> None:
        """Remove what is left of adapters that were pulled out, and what was noted of their nodes."""
        shutil.rmtree(self.hardware.at("/gone"), ignore_errors=True)
        self.history = {path: owners[-1:] for path, owners in self.history.items()}

    def owners_since(self, path: str, step: int) -> set[str]:
        """Return whose node a path has led to since a step, by serial number; "" for nobody's."""
        if path.startswith("/dev/serial/by-id/"):
            return {path.rpartition("/")[2]}  # udev has no other one there
        owners = self.history.get(path, [(0, "")])
        first = max((since for since, _ in owners if since <= step), default=0)
        return {serial for since, serial in owners if since >= first}

    def _note(self, path: str, serial: str) -> None:
        """Note whose a node is now, and have it heard: no event of a kernel's tells of our files."""
        self.steps += 1
        heard = self.hardware.at("/dev/serial/by-id/.heard")
        heard.touch()
        heard.unlink()
        self.history.setdefault(path, [(0, "")]).append((self.steps, serial))

    def _files(self, folder: str, content: dict[str, str]) -> None:
        place = self.hardware.at(folder)
        os.makedirs(place, exist_ok=True)
        for name, text in content.items():
            (place / name).write_text(text)


def _numbered(name: str, minor: int) -> dict[str, str]:
    """Return the files by which the kernel tells of a device node."""
    return {"uevent": f"MAJOR=240\nMINOR={minor}\nDEVNAME={name}\n", "dev": f"240:{minor}\n"}
