"""Machines made of files: PCI functions, USB devices, IOMMU groups and udev's links, as in /sys and /dev."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devplug.daemon.sources.host import Host
from devplug.daemon.sources.pci import PciSource
from devplug.daemon.sources.usb import UsbSource
from tests.daemon.hosts import NULL, UNUSED_MAJOR, resource, tree

NO_ATTRIBUTES: Mapping[str, str] = {}


@dataclass
class Machine:
    """A machine below a folder. Folders are named as on the host: `/sys/devices/pci0000:00/0000:00:14.0`."""

    root: Path
    _minors: int = 0
    _pci: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        return Host(self.root)

    def usb_source(self, rest: str) -> UsbSource:
        one = resource(rest)
        return UsbSource(one.name, one.discover.usb, one.id, one.allow, self.host)

    def pci_source(self, rest: str) -> PciSource:
        one = resource(rest)
        return PciSource(one.name, one.discover.pci, one.id, one.allow, self.host)

    def files(self, folder: str, content: Mapping[str, str]) -> None:
        tree(self.root / folder.lstrip("/"), content)

    def write(self, path: str, text: str) -> None:
        Path(self.host.inside(path)).write_text(text)

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder with all that is below it."""
        place = Path(self.host.inside(path))
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()

    def link(self, path: str, target: str) -> None:
        """Make a link as the kernel and udev do: a relative one."""
        place = Path(self.host.inside(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(target, path.rpartition("/")[0]))

    def relink(self, path: str, target: str) -> None:
        self.remove(path)
        self.link(path, target)

    # ── what every device has ─────────────────────────────────────────────────────────────────────

    def device(self, folder: str, subsystem: str, attributes: Mapping[str, str] = NO_ATTRIBUTES) -> str:
        self.files(folder, {"uevent": "", **{name: f"{text}\n" for name, text in attributes.items()}})
        if subsystem:
            self.link(f"{folder}/subsystem", f"/sys/class/{subsystem}")
        return folder

    def node(self, parent: str, subsystem: str, name: str, path: str = "", *, is_made: bool = True) -> str:
        """Make a device that has a node; return the node's path. Who may make no nodes gets a link."""
        devname = path or name
        folder = self.device(f"{parent}/{subsystem}/{name}", subsystem)
        number = (UNUSED_MAJOR, 999)
        if is_made:
            number = self.dev(f"/dev/{devname}", is_block=subsystem == "block")
        self.write(f"{folder}/uevent", f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME={devname}\n")
        self.write(f"{folder}/dev", f"{number[0]}:{number[1]}\n")
        return f"/dev/{devname}"

    def dev(self, path: str, *, is_block: bool = False) -> tuple[int, int]:
        self._minors += 1
        place = Path(self.host.inside(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(place, 0o60600 if is_block else 0o20600, os.makedev(UNUSED_MAJOR, self._minors))
        except OSError:
            place.symlink_to("/dev/null")
            return NULL
        return UNUSED_MAJOR, self._minors

    # ── PCI ───────────────────────────────────────────────────────────────────────────────────────

    def pci(
        self,
        address: str,
        behind: str = "",
        driver: str = "",
        group: str = "",
        *,
        subsystem: str = "pci",
        **attributes: str,
    ) -> str:
        """Make a function, behind a bridge or on its domain's first bus; return its folder."""
        parent = self._pci[behind] if behind else f"/sys/devices/pci{address.rpartition(':')[0]}"
        folder = f"{parent}/{address}"
        usual = {"vendor": "0x1234", "device": "0x0001", "class": "0x120000", "numa_node": "-1"}
        self.device(folder, subsystem, usual | attributes)
        self.link(f"/sys/bus/pci/devices/{address}", folder)
        self._pci[address] = folder
        if driver:
            self.bind(address, driver)
        if group:
            self.link(f"{folder}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
            self.link(f"/sys/kernel/iommu_groups/{group}/devices/{address}", folder)
        return folder

    def bind(self, address: str, driver: str) -> None:
        place = f"{self._pci[address]}/driver"
        if os.path.lexists(self.host.inside(place)):
            self.remove(place)
        if driver:
            self.link(place, f"/sys/bus/pci/drivers/{driver}")

    def virtual_functions(self, physical: str, *addresses: str, driver: str = "") -> None:
        for number, address in enumerate(addresses):
            folder = self.pci(address, driver=driver)
            self.link(f"{folder}/physfn", self._pci[physical])
            self.link(f"{self._pci[physical]}/virtfn{number}", folder)

    def numa(self, **cpulists: str) -> None:
        """Give the machine its NUMA nodes: `node0="0-7"`."""
        for name, cpulist in cpulists.items():
            self.files(f"/sys/devices/system/node/{name}", {"cpulist": f"{cpulist}\n"})

    # ── USB ───────────────────────────────────────────────────────────────────────────────────────

    def usb_bus(self, controller: str, bus: int = 1, version: str = " 2.00") -> str:
        """Make a controller's bus; return its folder."""
        folder = self.device(f"{controller}/usb{bus}", "usb")
        self.files(folder, {"version": version, "idVendor": "1d6b", "idProduct": "0002"})
        self.write(f"{folder}/bDeviceClass", "09")
        self.link(f"/sys/bus/usb/devices/usb{bus}", folder)
        return folder

    def usb_device(
        self,
        bus: str,
        ports: str,
        serial: str = "",
        *,
        number: int = 1,
        interface_class: str = "ff",
        **attributes: str,
    ) -> str:
        """Plug a USB device in, behind hubs whose folders need not be there; return its folder."""
        bus_number = int(bus.rpartition("usb")[2])
        folder = bus
        for end in range(1, ports.count(".") + 2):
            folder = f"{folder}/{bus_number}-{'.'.join(ports.split('.')[:end])}"
        usual = {"idVendor": "0403", "idProduct": "6001", "bDeviceClass": "00", "devpath": ports}
        usual |= {
            "busnum": f"{bus_number}",
            "devnum": f"{number}",
            "authorized": "1",
            "bConfigurationValue": "1",
        }
        self.device(folder, "usb", usual | attributes)
        if serial:
            self.write(f"{folder}/serial", f"{serial}\n")
        devname = f"bus/usb/{bus_number:03}/{number:03}"
        major, minor = self.dev(f"/dev/{devname}")
        self.write(f"{folder}/uevent", f"MAJOR={major}\nMINOR={minor}\nDEVNAME={devname}\n")
        self.write(f"{folder}/dev", f"{major}:{minor}\n")
        self.device(self.interface(folder), "usb", {"bInterfaceClass": interface_class})
        self.link(f"/sys/bus/usb/devices/{folder.rpartition('/')[2]}", folder)
        return folder

    def unplug(self, usb_device: str) -> None:
        uevent = Path(self.host.inside(f"{usb_device}/uevent")).read_text()
        self.remove(f"/dev/{uevent.partition('DEVNAME=')[2].partition(chr(10))[0]}")
        self.remove(usb_device)
        self.remove(f"/sys/bus/usb/devices/{usb_device.rpartition('/')[2]}")

    def interface(self, usb_device: str) -> str:
        """Return the folder of a USB device's only interface."""
        return f"{usb_device}/{usb_device.rpartition('/')[2]}:1.0"


def machine_with_usb(root: Path) -> tuple[Machine, str]:
    """Return a machine with one controller, and that one's bus."""
    machine = Machine(root)
    return machine, machine.usb_bus(machine.pci("0000:00:14.0", **{"class": "0x0c0330"}))
