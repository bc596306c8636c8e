"""A made machine with hardware of any kind: cards, disks and network functions, beside USB sticks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.daemon.hosts import UNUSED_MAJOR, block_node, char_node
from tests.daemon.machines import NO_ATTRIBUTES, Machine
from tests.ownership.machine import Stick, UsbMachine
from tests.ownership.oracle import Numbers

FIRST_MINOR = 2000
"""Sticks have the minors below."""


class MixedMachine(UsbMachine):
    """A machine in which the test names each piece of hardware; lives as long as its folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.pieces: dict[Stick, str] = {}
        """The folder of each piece below /sys/devices: what has a node below it is part of it."""
        self._minor = FIRST_MINOR

    @property
    def made(self) -> Machine:
        """The machine's files."""
        return self._machine

    @property
    def sticks(self) -> frozenset[Stick]:
        """All pieces of hardware that are present."""
        return super().sticks | self.pieces.keys()

    def piece(self, name: str, folder: str) -> Stick:
        """Name the hardware in a folder."""
        piece = Stick(name)
        self.pieces[piece] = folder
        self.seen.add(piece)
        return piece

    def node(
        self,
        folder: str,
        subsystem: str,
        name: str = "",
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
        *,
        is_block: bool = False,
    ) -> str:
        """Make a device with a node, by default of the folder's name; return the folder."""
        name = name or folder.rpartition("/")[2]
        self._minor += 1
        number = f"{UNUSED_MAJOR}:{self._minor}"
        self.made.device(folder, subsystem, attributes)
        self.made.write(f"{folder}/uevent", f"MAJOR={UNUSED_MAJOR}\nMINOR={self._minor}\nDEVNAME={name}\n")
        self.made.write(f"{folder}/dev", f"{number}\n")
        (block_node if is_block else char_node)(self.root / "dev" / name, self._minor)
        self.made.link(f"/sys/dev/{'block' if is_block else 'char'}/{number}", folder)
        self.made.link(f"/sys/class/{subsystem}/{folder.rpartition('/')[2]}", folder)
        return folder

    def lose(self, folder: str, subsystem: str, name: str = "") -> None:
        """Take away a device that `node` has made."""
        number = (self.root / folder.lstrip("/") / "dev").read_text().strip()
        (self.root / "dev" / (name or folder.rpartition("/")[2])).unlink()
        for kind in ("block", "char"):
            if os.path.lexists(self.root / f"sys/dev/{kind}/{number}"):
                self.made.remove(f"/sys/dev/{kind}/{number}")
        self.made.remove(f"/sys/class/{subsystem}/{folder.rpartition('/')[2]}")
        self.made.remove(folder)

    def numbers_of(self, stick: Stick) -> Numbers:
        """Return the device numbers of a piece of hardware that is present."""
        if stick not in self.pieces:
            return super().numbers_of(stick)
        folder = self.root / self.pieces[stick].lstrip("/")
        texts = [file.read_text().strip().split(":") for file in folder.rglob("dev") if file.is_file()]
        return frozenset((int(major), int(minor)) for major, minor in texts)

    def behind(self, numbers: Numbers) -> frozenset[Stick]:
        """Return the hardware that can be opened by these device numbers now."""
        return frozenset(stick for stick in self.sticks if numbers & self.numbers_of(stick))

    # ── hardware of several kinds ──

    def serial_card(self, ports: int) -> list[str]:
        """Make a PCI card with serial ports; return the folders of the ports."""
        card = self.made.pci("0000:03:00.0", **{"class": "0x070002"})
        return [self.node(f"{card}/tty/ttyS{4 + port}", "tty") for port in range(ports)]

    def graphics_card(self, number: int = 0) -> str:
        """Make a graphics card; return its folder. `number` is what the kernel counts."""
        card = self.made.pci("0000:65:00.0", driver="amdgpu", **{"class": "0x030000"})
        self.make_graphics_nodes(card, number)
        return card

    def make_graphics_nodes(self, card: str, number: int) -> None:
        """Make the nodes of a graphics card."""
        self.node(f"{card}/drm/card{number}", "drm", f"dri/card{number}")
        self.node(f"{card}/drm/renderD{128 + number}", "drm", f"dri/renderD{128 + number}")

    def lose_graphics_nodes(self, card: str, number: int) -> None:
        """Take away the nodes of a graphics card, as when its driver is unloaded."""
        self.lose(f"{card}/drm/card{number}", "drm", f"dri/card{number}")
        self.lose(f"{card}/drm/renderD{128 + number}", "drm", f"dri/renderD{128 + number}")

    def sound_card(self) -> str:
        """Make a sound card; return the folder of its PCI function."""
        function = self.made.pci("0000:00:1f.3", driver="snd_hda", **{"class": "0x040300"})
        card = self.made.device(f"{function}/sound/card0", "sound")
        self.made.link("/sys/class/sound/card0", card)
        self.node(f"{card}/pcmC0D0p", "sound", "snd/pcmC0D0p")
        self.node(f"{card}/controlC0", "sound", "snd/controlC0")
        return function

    def virtual_functions(self, count: int, *, has_interfaces: bool = False) -> list[str]:
        """Make a network card with virtual functions, which have no nodes; return their folders."""
        self.made.pci("0000:3b:00.0", driver="ice", **{"class": "0x020000"})
        addresses = [f"0000:3b:10.{number}" for number in range(count)]
        self.made.virtual_functions("0000:3b:00.0", *addresses, driver="iavf")
        folders = [f"/sys/devices/pci0000:3b/{address}" for address in addresses]
        for number, folder in enumerate(folders):
            self.made.write(f"{folder}/class", "0x020000\n")
            if has_interfaces:
                attributes = {"ifindex": f"{7 + number}", "dev_port": "0"}
                self.made.device(f"{folder}/net/ens{number}", "net", attributes)
                self.made.link(f"{folder}/net/ens{number}/device", folder)
                self.made.link(f"/sys/class/net/ens{number}", f"{folder}/net/ens{number}")
        return folders

    def disk(self, partitions: int) -> str:
        """Make an NVMe disk; return the folder of its PCI function."""
        function = self.made.pci("0000:04:00.0", driver="nvme", **{"class": "0x010802"})
        controller = self.node(f"{function}/nvme/nvme0", "nvme", attributes={"serial": "SN1"})
        facts = {"wwid": "eui.1", "nsid": "1"}
        disk = self.node(f"{controller}/nvme0n1", "block", attributes=facts, is_block=True)
        self.node(f"{controller}/ng0n1", "nvme-generic")
        for number in range(1, partitions + 1):
            self.node(f"{disk}/nvme0n1p{number}", "block", "", {"partition": f"{number}"}, is_block=True)
        return function

    def scsi_disk(self) -> str:
        """Make a SATA disk with a partition and its generic nodes; return the folder of the SCSI device."""
        function = self.made.pci("0000:05:00.0", driver="ahci", **{"class": "0x010601"})
        device = self.made.device(f"{function}/ata1/host0/target0:0:0/0:0:0:0", "scsi", {"wwid": "naa.5"})
        self.made.write(f"{device}/uevent", "DEVTYPE=scsi_device\n")
        disk = self.node(f"{device}/block/sda", "block", is_block=True)
        self.node(f"{disk}/sda1", "block", "", {"partition": "1"}, is_block=True)
        self.node(f"{device}/scsi_generic/sg0", "scsi_generic")
        self.node(f"{device}/bsg/0:0:0:0", "bsg", "bsg/0:0:0:0")
        return device

    def keyboard(self) -> list[str]:
        """Make a USB keyboard with two event nodes; return their folders."""
        device = self.made.usb_device(self._bus, "7", "K", number=77, idVendor="046d")
        interface = self.made.interface(device)
        self.made.files(interface, {"bInterfaceNumber": "00\n"})
        hid = self.made.device(f"{interface}/0003:046D:6001.0001", "hid")
        return [
            self.node(f"{hid}/input/input{5 + k}/event{3 + k}", "input", f"input/event{3 + k}")
            for k in range(2)
        ]

    def i2c_adapters(self, count: int) -> list[str]:
        """Make a graphics card with I2C adapters; return their folders."""
        card = self.made.pci("0000:65:00.0", driver="amdgpu", **{"class": "0x030000"})
        return [self.node(f"{card}/i2c-{k}/i2c-dev/i2c-{k}", "i2c-dev") for k in range(count)]
