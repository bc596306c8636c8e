"""A machine on which each of the examples finds something: two of a kind at least, where there can be two."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.gpumachines import GpuMachine
from tests.daemon.idhosts import nic, vfio
from tests.daemon.machines import Machine
from tests.daemon.systrees import camera, interface, listed

CONTROLLER = "0000:00:14.0"
ADAPTER = "0000:3b:00.0"

CARDS = {"0000:01:00.0": "0", "0000:81:00.0": "1"}
"""Where there are two of a kind: an address near each NUMA node. The kinds differ in the middle of it."""


@dataclass(frozen=True)
class UsbDevice:
    """What comes and goes with a USB device, below the machine's root."""

    paths: tuple[str, ...]
    """Folders, links and nodes in the order in which they come, and go: the kernel's, then udev's."""

    def commands(self, root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what unplugs it from the machine below `root`, and what plugs it in again."""
        places = [(f"{root}{path}", f"{root}/unplugged/{at}") for at, path in enumerate(self.paths)]
        unplug = " && ".join([f"mkdir {root}/unplugged", *(f"mv {path} {away}" for path, away in places)])
        replug = " && ".join([*(f"mv {away} {path}" for path, away in places), f"rmdir {root}/unplugged"])
        return ("sh", "-c", unplug), ("sh", "-c", replug)


def machine_of_the_examples(root: Path) -> dict[str, UsbDevice]:
    """Make it below `root`; return those USB devices that can be unplugged, by name."""
    machine = Machine(root)
    machine.numa(node0="0-1", node1="2-3")
    (root / "dev").mkdir(parents=True)
    os.mknod(root / "dev" / "null", 0o20666, os.makedev(1, 3))
    for path in ("kvm", "fuse", "net/tun", "dsp0", "dsp0-ctl"):
        machine.dev(f"/dev/{path}")
    bus = machine.usb_bus(machine.pci(CONTROLLER, numa_node="0", **{"class": "0x0c0330"}))
    usb_devices = {"serial": _adapter(machine, bus, 1), "camera": _camera(machine, bus, 4)}
    _adapter(machine, bus, 2)
    _adapter(machine, bus, 3)
    _camera(machine, bus, 5)
    for number in (6, 7):
        machine.usb_device(bus, f"{number}", number=number, idVendor="18d1", idProduct="9302")
        _microscope(machine, bus, number + 2)
    for number, (address, numa_node) in enumerate(CARDS.items()):
        _cards(machine, number, address, numa_node)
    chip = machine.device("/sys/devices/LNXSYSTM:00/MSFT0101:00", "acpi")
    listed(machine, f"{chip}/tpmrm/tpmrm0", "tpmrm", node="tpmrm0")
    _functions(machine)
    return usb_devices


# ── USB ───────────────────────────────────────────────────────────────────────────────────────────


def _adapter(machine: Machine, bus: str, number: int) -> UsbDevice:
    serial, name = f"A{number}", f"ttyUSB{number - 1}"
    usb_device = machine.usb_device(bus, f"{number}", serial, number=number)
    port = listed(machine, f"{interface(machine, usb_device, 0)}/{name}", "usb-serial")
    listed(machine, f"{port}/tty/{name}", "tty", node=name)
    by_id = f"/dev/serial/by-id/usb-FTDI_{serial}-if00-port0"
    machine.link(by_id, f"/dev/{name}")
    return UsbDevice(
        (
            f"/sys/bus/usb/devices/1-{number}",
            f"/sys/class/tty/{name}",
            usb_device,
            f"/dev/bus/usb/001/{number:03}",
            f"/dev/{name}",
            by_id,
        )
    )


def _camera(machine: Machine, bus: str, number: int) -> UsbDevice:
    first, serial = 2 * number, f"E{number}"
    usb_device = camera(machine, bus, f"{number}", serial, first)
    by_id = f"/dev/v4l/by-id/usb-Eye_{serial}-video-index0"
    machine.link(by_id, f"/dev/video{first}")
    return UsbDevice(
        (
            f"/sys/bus/usb/devices/1-{number}",
            *(f"/sys/class/video4linux/video{one}" for one in (first, first + 1)),
            usb_device,
            f"/dev/bus/usb/001/{number:03}",
            *(f"/dev/video{one}" for one in (first, first + 1)),
            by_id,
        )
    )


def _microscope(machine: Machine, bus: str, number: int) -> None:
    usb_device = machine.usb_device(
        bus, f"{number}", f"M{number}", number=number, idVendor="1209", idProduct="0001"
    )
    eye, lamp = f"video{2 * number}", f"ttyACM{number}"
    listed(machine, f"{interface(machine, usb_device, 0)}/video4linux/{eye}", "video4linux", node=eye)
    listed(machine, f"{interface(machine, usb_device, 1)}/tty/{lamp}", "tty", node=lamp)


# ── cards ─────────────────────────────────────────────────────────────────────────────────────────


def _cards(machine: Machine, number: int, address: str, numa_node: str) -> None:
    """Put in one card of each kind."""

    def card(kind: int, driver: str, code: str) -> str:
        place = address.replace(":00.0", f":{kind:02x}.0")
        return machine.pci(place, driver=driver, numa_node=numa_node, **{"class": code})

    sound = listed(machine, f"{card(0, 'snd_hda_intel', '0x040300')}/sound/card{number}", "sound")
    for name in (f"controlC{number}", f"pcmC{number}D0p"):
        listed(machine, f"{sound}/{name}", "sound", node=f"snd/{name}")
    render = f"renderD{128 + number}"
    listed(machine, f"{card(1, 'xe', '0x030000')}/drm/{render}", "drm", node=f"dri/{render}")
    disk = f"nvme{number}"
    facts = {"model": "SAMSUNG MZQL21T9HCJR", "serial": f"S{number}", "state": "live"}
    nvme = listed(machine, f"{card(2, 'nvme', '0x010802')}/nvme/{disk}", "nvme", facts, node=disk)
    listed(machine, f"{nvme}/{disk}n1", "block", {"wwid": f"eui.{number:016x}"}, node=f"{disk}n1")
    for kind in (3, 4):
        unit = 2 * number + kind - 3
        fpga = card(kind, "dfl-pci", "0x120000")
        region = listed(machine, f"{fpga}/fpga_region/region{unit}", "fpga_region")
        for name in (f"dfl-fme.{unit}", f"dfl-port.{unit}"):
            machine.node(region, "dfl", name)


def _functions(machine: Machine) -> None:
    """Make a network adapter and four virtual functions of it for user space, in a group each."""
    physical = machine.pci(ADAPTER, driver="ice", numa_node="0", **{"class": "0x020000"})
    nic(machine, physical, "enp59s0f0", 1)
    machine.dev("/dev/vfio/vfio")
    addresses = [f"0000:3b:10.{number}" for number in range(4)]
    machine.virtual_functions(ADAPTER, *addresses)
    for group, address in enumerate(addresses, 70):
        folder = f"/sys/devices/pci0000:3b/{address}"
        for name, text in (("class", "0x020000"), ("vendor", "0x8086"), ("numa_node", "0")):
            machine.write(f"{folder}/{name}", f"{text}\n")
        vfio(machine, folder, f"{group}")


# ── GPUs ──────────────────────────────────────────────────────────────────────────────────────────


def add_gpus(root: Path, library_folder: Path) -> list[str]:
    """Put GPUs in: two A100, two L4, and an A100 that is two MIG instances; return their UUIDs."""
    machine = GpuMachine(root, library_folder)
    for name in ("nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).symlink_to("/dev/null")
    uuids = [machine.add_gpu(number, numa_node=number) for number in (0, 1)]
    uuids += [machine.add_gpu(number, {"name": "NVIDIA L4"}, numa_node=0) for number in (2, 3)]
    machine.add_gpu(4, {"mig": 1}, numa_node=1)
    for slot in (0, 1):
        machine.add_instance(4, slot, 7 + slot, "1g.10gb", (3 + 10 * slot, 4 + 10 * slot))
    return uuids


def write_nvidia_spec(folder: Path, uuids: list[str]) -> None:
    """Write what `nvidia-ctk cdi generate --device-name-strategy=uuid` does, as far as names go."""
    devices = [{"name": uuid, "containerEdits": {"env": ["GPU=yes"]}} for uuid in uuids]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    folder.mkdir(exist_ok=True)
    (folder / "nvidia.json").write_text(json.dumps(spec))
