"""Devices of kernel classes in a made machine: listed under their class, with or without a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.daemon.machines import Machine

NONE: Mapping[str, str] = {}

CAMERA = "046d:082d:3F0A11DE"
USB = "0000:00:14.0"


def listed(
    machine: Machine,
    folder: str,
    subsystem: str,
    attributes: Mapping[str, str] = NONE,
    *,
    node: str = "",
    uevent: str = "",
) -> str:
    """Make a device and list it under its class; `node` is the name of its node below /dev."""
    machine.device(folder, subsystem, attributes)
    machine.link(f"/sys/class/{subsystem}/{folder.rpartition('/')[2]}", folder)
    if node:
        major, minor = machine.dev(f"/dev/{node}", is_block=subsystem == "block")
        uevent += f"MAJOR={major}\nMINOR={minor}\nDEVNAME={node}\n"
        machine.write(f"{folder}/dev", f"{major}:{minor}\n")
    machine.write(f"{folder}/uevent", uevent)
    return folder


def interface(machine: Machine, usb_device: str, number: int) -> str:
    folder = f"{usb_device}/{usb_device.rpartition('/')[2]}:1.{number}"
    machine.device(folder, "usb") if number else None
    machine.write(f"{folder}/bInterfaceNumber", f"{number:02x}\n")
    return folder


def camera(machine: Machine, bus: str, ports: str = "2", serial: str = "3F0A11DE", first: int = 0) -> str:
    """Plug in a camera with a picture and its metadata, as /dev/video`first` and the next."""
    usb_device = machine.usb_device(
        bus, ports, serial, idVendor="046d", idProduct="082d", number=int(ports), product="Eye"
    )
    face = interface(machine, usb_device, 0)
    for index in (0, 1):
        name = f"video{first + index}"
        attributes = {"index": f"{index}", "name": "Eye: Eye"}
        listed(machine, f"{face}/video4linux/{name}", "video4linux", attributes, node=name)
    return usb_device


def unplug_camera(machine: Machine, usb_device: str, first: int = 0) -> None:
    machine.unplug(usb_device)
    for name in (f"video{first}", f"video{first + 1}"):
        machine.remove(f"/sys/class/video4linux/{name}")
        machine.remove(f"/dev/{name}")


def machine_with_everything(root: Path) -> Machine:
    """Return a machine with one device of each shape that the table of `identities` names."""
    machine = Machine(root)
    bus = machine.usb_bus(machine.pci(USB, **{"class": "0x0c0330", "numa_node": "1"}))
    _usb(machine, bus)
    _cards(machine)
    _disks(machine)
    _board(machine)
    for folder, subsystem in (("block/loop0", "block"), ("vc/vcs1", "vc"), ("misc/kvm", "misc")):
        name = folder.rpartition("/")[2]
        listed(machine, f"/sys/devices/virtual/{folder}", subsystem, node=name)
    uhid = "/sys/devices/virtual/misc/uhid/0005:054C:09CC.0007"
    listed(machine, uhid, "hid", uevent="HID_UNIQ=a4:53:85:11:22:33\n")
    listed(machine, f"{uhid}/hidraw/hidraw1", "hidraw", node="hidraw1")
    listed(machine, f"{uhid}/input/input9", "input", {"name": "Pad"})
    listed(machine, f"{uhid}/input/input9/event9", "input", node="input/event9")
    return machine


def _usb(machine: Machine, bus: str) -> None:
    eye = camera(machine, bus)
    infrared = interface(machine, eye, 2)
    listed(machine, f"{infrared}/video4linux/video2", "video4linux", {"index": "0"}, node="video2")
    card = listed(machine, f"{interface(machine, eye, 3)}/sound/card1", "sound")
    for name in ("controlC1", "pcmC1D0c"):
        listed(machine, f"{card}/{name}", "sound", node=f"snd/{name}")
    converter = machine.usb_device(bus, "3", idProduct="6011", number=3)
    for number in (0, 1):
        port = f"{interface(machine, converter, number)}/ttyUSB{number + 4}"
        listed(machine, port, "usb-serial", {"port_number": "0"})
        listed(machine, f"{port}/tty/ttyUSB{number + 4}", "tty", node=f"ttyUSB{number + 4}")
    modem = machine.usb_device(bus, "4", "M1", idVendor="1199", idProduct="9071", number=4)
    listed(machine, f"{interface(machine, modem, 2)}/tty/ttyACM5", "tty", node="ttyACM5")
    receiver = machine.usb_device(bus, "5", idVendor="046d", idProduct="c52b", number=5)
    hid = listed(
        machine, f"{interface(machine, receiver, 1)}/0003:046D:C52B.0004", "hid", uevent="HID_UNIQ=R5\n"
    )
    listed(machine, f"{hid}/hidraw/hidraw0", "hidraw", node="hidraw0")
    for number in (7, 8):
        keyboard = listed(machine, f"{hid}/input/input{number}", "input", {"name": "Keys"})
        listed(machine, f"{keyboard}/event{number}", "input", node=f"input/event{number}")


def _cards(machine: Machine) -> None:
    for number, address in enumerate(("0000:03:00.0", "0000:04:00.0")):
        card = machine.pci(address, **{"class": "0x030000"})
        listed(machine, f"{card}/drm/card{number}", "drm", node=f"dri/card{number}")
        listed(machine, f"{card}/drm/renderD{128 + number}", "drm", node=f"dri/renderD{128 + number}")
        listed(machine, f"{card}/drm/card{number}/card{number}-HDMI-A-1", "drm")
    region = listed(
        machine, f"{machine.pci('0000:3b:00.0', numa_node='1')}/fpga_region/region0", "fpga_region"
    )
    listed(machine, f"{region}/dfl-fme.2", "platform", node="dfl-fme.2")
    listed(machine, f"{region}/dfl-port.3", "platform", {"afu_id": "d8424dc4a4a3"}, node="dfl-port.3")
    listed(machine, f"{region}/dfl-fme.2/dfl-fme-region.4/fpga_region/region1", "fpga_region")
    adapter = machine.pci("0000:5f:00.0", **{"class": "0x020700"})
    listed(machine, f"{adapter}/infiniband/mlx5_7", "infiniband", {"node_guid": "0c42:a103:0065:aa2e"})
    for subsystem, name in (
        ("infiniband_verbs", "uverbs3"),
        ("infiniband_mad", "umad3"),
        ("infiniband_mad", "issm3"),
    ):
        folder = f"{adapter}/{subsystem}/{name}"
        listed(machine, folder, subsystem, {"ibdev": "mlx5_7"}, node=f"infiniband/{name}")
    machine.dev("/dev/infiniband/rdma_cm")
    smbus = machine.pci("0000:00:1f.4")
    listed(machine, f"{smbus}/i2c-5/i2c-dev/i2c-5", "i2c-dev", node="i2c-5")
    listed(machine, f"{smbus}/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "mdev")


def _disks(machine: Machine) -> None:
    nvme = listed(
        machine,
        f"{machine.pci('0000:5e:00.0')}/nvme/nvme3",
        "nvme",
        {"serial": "S4EWNX0R   ", "model": "Fast SSD"},
        node="nvme3",
    )
    disk = listed(machine, f"{nvme}/nvme3n1", "block", {"wwid": "eui.0025388b710c5a1d"}, node="nvme3n1")
    listed(machine, f"{disk}/nvme3n1p2", "block", {"partition": "2"}, node="nvme3n1p2")
    made_up = {"wwid": "nvme.8086-50484d4238313533", "nsid": "2"}
    listed(machine, f"{nvme}/nvme3n2", "block", made_up, node="nvme3n2")
    listed(machine, f"{nvme}/nvme-generic/ng3n1", "nvme-generic", node="ng3n1")
    listed(machine, f"{nvme}/hwmon6", "hwmon", {"name": "nvme"})
    sata = machine.pci("0000:00:17.0")
    for number, name in enumerate(("sda", "sdb")):
        scsi = f"{sata}/ata{number + 1}/host{number}/target{number}:0:0/{number}:0:0:0"
        machine.device(scsi, "scsi", {} if number else {"wwid": "naa.5000c500a1b2c3d4"})
        disk = listed(machine, f"{scsi}/block/{name}", "block", node=name)
        listed(machine, f"{disk}/{name}1", "block", {"partition": "1"}, node=f"{name}1")
        listed(machine, f"{scsi}/scsi_generic/sg{number}", "scsi_generic", node=f"sg{number}")
    virtio = machine.device(f"{machine.pci('0000:00:02.0')}/virtio1", "virtio")
    listed(machine, f"{virtio}/block/vda", "block", node="vda")
    mapped = listed(machine, "/sys/devices/virtual/block/dm-0", "block", node="dm-0")
    machine.files(f"{mapped}/dm", {"uuid": "LVM-x7Qz\n"})


def _board(machine: Machine) -> None:
    port = machine.device("/sys/devices/pnp0/00:05", "pnp")
    core = machine.device(machine.device(f"{port}/00:05:0", "serial-base") + "/00:05:0.0", "serial-base")
    listed(machine, f"{core}/tty/ttyS0", "tty", {"type": "4"}, node="ttyS0")
    old = machine.device("/sys/devices/platform/serial8250", "platform")
    listed(machine, f"{old}/tty/ttyS1", "tty", {"type": "2"}, node="ttyS1")
    listed(machine, f"{old}/tty/ttyS2", "tty", {"type": "0"}, node="ttyS2")
    security = machine.device("/sys/devices/LNXSYSTM:00/MSFT0101:00", "acpi")
    listed(machine, f"{security}/tpmrm/tpmrm0", "tpmrm", node="tpmrm0")
    listed(machine, f"{machine.device('/sys/devices/platform/gpio-leds', 'platform')}/leds/status", "leds")
    soc = machine.device("/sys/devices/platform/soc", "platform")
    wires = machine.device(f"{soc}/fe804000.i2c", "platform")
    listed(machine, f"{wires}/i2c-1/1-0076/iio:device2", "iio", {"name": "bme280"}, node="iio:device2")
