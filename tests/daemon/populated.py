"""A machine with many kinds of devices, made of files: what `discover` and `validate` look at in tests."""

from __future__ import annotations

from pathlib import Path

from tests.daemon.machines import Machine, machine_with_usb

BY_ID = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A6008isP-if00-port0"


def populated(root: Path) -> Machine:
    """Make the machine below `root`."""
    machine, bus = machine_with_usb(root)
    machine.numa(node0="0-7", node1="8-15")
    _plug(machine, bus, "1", "A6008isP", 3, [("tty", "ttyUSB0")])
    machine.link(BY_ID, "/dev/ttyUSB0")
    _plug(machine, bus, "2", "A7004kxQ", 4, [("tty", "ttyUSB1")])
    cameras = [("video4linux", "video0"), ("video4linux", "video1")]
    _plug(machine, bus, "3", "3F0A11DE", 5, cameras, idVendor="046d", idProduct="082d")
    keyboard = [("hidraw", "hidraw0"), ("input", "event0")]
    _plug(machine, bus, "4.1", "", 6, keyboard, idVendor="046d", idProduct="c31c")
    _plug(machine, bus, "4.2", "", 7, [], idVendor="0bda", idProduct="2838", product="DVB-T stick")
    _plug(machine, bus, "4.3", "S1", 8, [("block", "sda")], idVendor="0781", idProduct="5567")
    fpga = machine.pci("0000:3b:00.0", driver="dfl-pci", numa_node="1", local_cpulist="8-15")
    machine.node(fpga, "dfl", "dfl-port.0")
    machine.pci("0000:3c:00.0", **{"class": "0x060400"})
    graphics = machine.pci("0000:00:02.0", driver="i915", **{"class": "0x030000", "vendor": "0x8086"})
    machine.node(graphics, "drm", "card0", "dri/card0")
    machine.node(graphics, "drm", "renderD128", "dri/renderD128")
    _network(machine)
    tpm = machine.device("/sys/devices/platform/tpm0", "platform")
    machine.node(tpm, "tpmrm", "tpmrm0")
    virtual = machine.device("/sys/devices/virtual", "")
    for number in range(8):
        machine.node(virtual, "block", f"loop{number}")
    for number in range(3):
        machine.node(virtual, "tty", f"tty{number}")
    board = machine.device("/sys/devices/platform/serial8250", "platform")
    for number, console in enumerate("YN"):
        machine.node(board, "tty", f"ttyS{number}")
        machine.files(f"{board}/tty/ttyS{number}", {"console": console, "type": "4"})
    machine.dev("/dev/dsp0")
    machine.dev("/dev/kvm")
    _list_nodes(machine, root)
    return machine


def _plug(
    machine: Machine,
    bus: str,
    port: str,
    serial: str,
    number: int,
    nodes: list[tuple[str, str]],
    **attributes: str,
) -> None:
    usb_device = machine.usb_device(bus, port, serial, number=number, **attributes)
    for subsystem, name in nodes:
        machine.node(machine.interface(usb_device), subsystem, name)


def _network(machine: Machine) -> None:
    """Make an adapter of the machine's own, and two of its virtual functions for virtual machines."""
    machine.pci("0000:5e:00.0", driver="mlx5_core", **{"class": "0x020000"})
    addresses = ("0000:5e:00.1", "0000:5e:00.2")
    machine.virtual_functions("0000:5e:00.0", *addresses, driver="vfio-pci")
    for group, address in enumerate(addresses, 40):
        folder = f"/sys/devices/pci0000:5e/{address}"
        machine.write(f"{folder}/class", "0x020000")
        machine.link(f"{folder}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
        machine.link(f"/sys/kernel/iommu_groups/{group}/devices/{address}", folder)
        machine.dev(f"/dev/vfio/{group}")


def _list_nodes(machine: Machine, root: Path) -> None:
    """Make the kernel's lists of all devices that have a node: by class, and by number."""
    for number in Path(root, "sys/devices").rglob("dev"):
        folder = number.parent
        subsystem = (folder / "subsystem").readlink().name
        place = f"/{folder.relative_to(root)}"
        kind = "block" if subsystem == "block" else "char"
        machine.link(f"/sys/dev/{kind}/{number.read_text().strip()}", place)
        if subsystem != "usb":
            machine.link(f"/sys/class/{subsystem}/{folder.name}", place)
