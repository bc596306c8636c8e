"""Hosts whose IDs are recorded: machines made of files, and what is asked of each. Run it to record anew."""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from devplug.daemon.container_response import device_ids, with_room_for_replicas
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from tests.daemon.hosts import link, resource
from tests.daemon.machines import Machine, machine_with_usb
from tests.daemon.systrees import camera, interface, listed, machine_with_everything

TABLE = Path(__file__).with_name("ids.json")
ARCHIVES = Path(__file__).parents[3] / "shared" / "data" / "hwloc"

CONFIG_VERSION = 1
"""The version of the configuration whose IDs these are."""

PHI = "32em64t-2n8c+dax+nvme+mic+dimms"
LOCALITY = "40intel64-2g2n4c+pcilocality"
CONFLICTS = "40intel64-4n10c+pci-conflicts"
SPARK = "nvidia-dgx-gb10"
MEMORY_NODES = "nvidiagpunumanodes"

_READ = frozenset(
    {
        *("uevent", "dev", "class", "vendor", "device", "type", "index", "ifindex", "dev_port", "address"),
        *("phys_port_name", "serial", "unique_id", "wwid", "nsid", "partition", "idVendor", "idProduct"),
        *("version", "bInterfaceNumber", "port_number", "node_guid"),
    }
)
"""The files of a device by which it is found and called."""


# ── our own ───────────────────────────────────────────────────────────────────────────────────────


def adapters(root: Path) -> Host:
    """Serial adapters with a serial number, without, behind a hub, and two with the same; and a camera."""
    machine, bus = machine_with_usb(root)
    fast = machine.usb_bus("/sys/devices/pci0000:00/0000:00:14.0", 2, " 3.00")
    silicon = {"idVendor": "10c4", "idProduct": "ea60"}
    usb_devices = (
        machine.usb_device(bus, "1", "A50285BI"),
        machine.usb_device(bus, "2.3", number=2, idVendor="1a86", idProduct="7523"),
        machine.usb_device(bus, "4", "0001", number=3, **silicon),
        machine.usb_device(bus, "5", "0001", number=4, **silicon),
        machine.usb_device(fast, "1", number=5, idVendor="1A86", idProduct="55D3"),
    )
    for number, usb_device in enumerate(usb_devices):
        port = listed(machine, f"{interface(machine, usb_device, 0)}/ttyUSB{number}", "usb-serial")
        listed(machine, f"{port}/tty/ttyUSB{number}", "tty", node=f"ttyUSB{number}")
    camera(machine, bus, "6")
    wire = machine.usb_device(bus, "7", "00E04C68", number=7, idVendor="0bda", idProduct="8153")
    nic(machine, interface(machine, wire, 0), "enx00e04c68", 7)
    return machine.host


def functions(root: Path) -> Host:
    """Cards: network with two ports and virtual functions, two functions under VFIO, GPU, FPGA, NVMe."""
    machine = Machine(root)
    twin = machine.pci("0000:17:00.0", **{"class": "0x020000"}, driver="mlx4_core")
    for number in (0, 1):
        nic(machine, twin, f"enp23s0p{number}", number, number)
    physical = machine.pci("0000:3b:00.0", **{"class": "0x020000"}, driver="ixgbe")
    nic(machine, physical, "enp59s0f0", 2)
    nic(machine, physical, "enp59s0f0v1", 3, phys_port_name="pf0vf1")
    part = machine.device(f"{physical}/mlx5_core.sf.4", "auxiliary", {"sfnum": "88"})
    nic(machine, part, "enp59s0f0s88", 4)
    virtual = {"0000:3b:10.0": "71", "0000:3b:10.2": "72"}
    machine.virtual_functions("0000:3b:00.0", *virtual)
    for address, group in virtual.items():
        folder = f"/sys/devices/pci0000:3b/{address}"
        machine.write(f"{folder}/class", "0x020000\n")
        vfio(machine, folder, group)
    for address in ("0000:65:00.0", "0000:65:00.1"):
        vfio(machine, machine.pci(address, **{"class": "0x030000"}), "33")
    machine.dev("/dev/vfio/vfio")
    gpu = machine.pci("0000:af:00.0", **{"class": "0x030200"}, driver="xe")
    listed(machine, f"{gpu}/drm/card1", "drm", node="dri/card1")
    listed(machine, f"{gpu}/drm/renderD129", "drm", node="dri/renderD129")
    fpga = machine.pci("0000:d8:00.0", driver="dfl-pci")
    region = listed(machine, f"{fpga}/fpga_region/region0", "fpga_region")
    listed(machine, f"{region}/dfl-fme.0", "platform", node="dfl-fme.0")
    listed(machine, f"{region}/dfl-port.0", "platform", node="dfl-port.0")
    disk = machine.pci("10000:01:00.0", **{"class": "0x010802"}, driver="nvme")
    drive = listed(machine, f"{disk}/nvme/nvme0", "nvme", {"serial": "PHLJ1"}, node="nvme0")
    listed(machine, f"{drive}/nvme0n1", "block", {"wwid": "eui.01000000"}, node="nvme0n1")
    bridge = machine.device("/sys/devices/virtual/net/br0", "net", {"ifindex": "9"})
    machine.link("/sys/class/net/br0", bridge)
    return machine.host


def nic(machine: Machine, device: str, name: str, index: int, port: int = 0, **attributes: str) -> None:
    """Give a device a network interface."""
    usual = {"ifindex": f"{index + 2}", "dev_port": f"{port}"}
    folder = listed(machine, f"{device}/net/{name}", "net", usual | attributes)
    machine.link(f"{folder}/device", device)


def vfio(machine: Machine, folder: str, group: str) -> None:
    """Give a function to user space."""
    address = folder.rpartition("/")[2]
    machine.bind(address, "vfio-pci")
    machine.link(f"{folder}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
    machine.link(f"/sys/kernel/iommu_groups/{group}/devices/{address}", folder)
    if not Path(machine.host.inside(f"/dev/vfio/{group}")).exists():
        machine.dev(f"/dev/vfio/{group}")


def paths(root: Path) -> Host:
    """Device nodes and the links that udev makes of them; what they are does not matter here."""
    machine = Machine(root)
    for name in ("ttyUSB0", "ttyUSB1", "bus/usb/001/004", "dsp0", "dsp0-ctl", "dsp/dsp0", "net/tun"):
        machine.dev(f"/dev/{name}")
    by_id = root / "dev" / "serial" / "by-id"
    link(by_id / "usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0", "../../ttyUSB0")
    link(by_id / "usb-ITEAD_SONOFF_Zigbee_3.0_USB_Dongle_Plus_V2_20220818152049-if00", "../../ttyUSB1")
    return machine.host


# ── others' ───────────────────────────────────────────────────────────────────────────────────────


def unpacked(name: str) -> Callable[[Path], Host]:
    """Return what unpacks the devices of a machine and makes the nodes that its kernel tells of."""

    def unpack(root: Path) -> Host:
        with tarfile.open(ARCHIVES / f"{name}.tar.bz2") as archive:
            if hasattr(tarfile, "data_filter"):  # from 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(root, [member for member in archive if _is_needed(member)])
        (top,) = root.iterdir()
        for dev in (top / "sys" / "devices").rglob("dev"):
            uevent = dev.parent / "uevent"
            if dev.is_file() and "block" not in dev.parts and uevent.is_file():
                told = dict(line.split("=", 1) for line in uevent.read_text().splitlines())
                place = top / "dev" / told.get("DEVNAME", dev.parent.name)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.mknod(place, 0o20600, os.makedev(int(told["MAJOR"]), int(told["MINOR"])))
        return Host(top)

    return unpack


def _is_needed(member: tarfile.TarInfo) -> bool:
    """Whether a device is found or called by it. To unpack all of it takes ten times as long."""
    is_of_a_device = any(part in member.name for part in ("/sys/bus/pci/", "/sys/class/", "/sys/devices/pci"))
    return is_of_a_device and (member.issym() or member.name.rpartition("/")[2] in _READ)


# ── the table ─────────────────────────────────────────────────────────────────────────────────────

OURS: Mapping[str, Callable[[Path], Host]] = {
    "adapters": adapters,
    "everything": lambda root: machine_with_everything(root).host,
    "functions": functions,
    "paths": paths,
}
OTHERS: Mapping[str, Callable[[Path], Host]] = {
    name: unpacked(name) for name in (PHI, LOCALITY, CONFLICTS, SPARK, MEMORY_NODES)
}

_CLASSES = ("video4linux", "sound", "tty", "hidraw", "input", "drm", "fpga_region", "infiniband", "i2c-dev")
_DISKS = ("nvme", "block", "nvme-generic", "scsi_generic", "hwmon", "leds", "iio", "tpmrm", "misc", "mdev")
_CARDS = ("pci: {class: '01'}", "pci: {class: '02'}", "pci: {class: '03'}", "net: {interface: '[!l]*'}")
_ALL_FUNCTIONS = "discover: {pci: {address: '*'}}"

ASKED: Mapping[str, tuple[str, ...]] = {
    "adapters": (
        "discover: {usb: [{vendor: '0403'}, {vendor: '1a86'}, {vendor: '10c4'}]}",
        "discover: {usb: {interfaceClass: 'ff'}}, id: '{serial}'",
        "discover: {usb: {vendor: '0403'}}, share: {replicas: 4}",
        "discover: {net: {interface: 'enx*'}}",
        "discover: {sysfs: {subsystem: tty}}",
        "discover: {sysfs: {subsystem: video4linux, attributes: {index: '0'}}}",
        "discover: {sysfs: {subsystem: video4linux}}, id: 'cam-{attr.index}'",
    ),
    "everything": (
        *(f"discover: {{sysfs: {{subsystem: {name}}}}}, allow: [rawDisks]" for name in (*_CLASSES, *_DISKS)),
        "discover: {usb: [{vendor: '046d'}, {vendor: '0403'}, {vendor: '1199'}]}",
        _ALL_FUNCTIONS,
    ),
    "functions": (
        _ALL_FUNCTIONS,
        "discover: {pci: {virtualFunctionOf: '0000:3b:00.0'}}, id: 'vf{attr.vf}'",
        "discover: {net: {interface: 'enp*'}}",
        "discover: {net: {interface: br0}}",
        "discover: {net: {virtualFunctionOf: '0000:3b:00.0'}}",
        "discover: {sysfs: {subsystem: drm}}",
        "discover: {sysfs: {subsystem: fpga_region}}",
        "discover: {sysfs: {subsystem: nvme}}",
        "discover: {sysfs: {subsystem: block}}, allow: [rawDisks]",
    ),
    "paths": (
        "discover: {path: /dev/ttyUSB*}",
        "discover: {path: /dev/serial/by-id/*}",
        "discover: {path: /dev/serial/by-id/*}, share: {replicas: 10}",
        "discover: {path: /dev/bus/usb/*/*}",
        "discover: {path: /dev/ttyUSB*}, id: 'port-{file}'",
        "discover: {path: /dev/net/tun}",
        "discover: {path: /dev/net/tun}, share: {replicas: 100}",
        "discover: {bundle: {paths: [/dev/dsp0, /dev/dsp0-ctl, {path: /dev/dsp0-fan, optional: true}]}}",
        "discover: {bundle: [{paths: [/dev/dsp0]}, {paths: [/dev/net/tun]}]}",
        "discover: {bundle: [{paths: [/dev/dsp0]}, {paths: [/dev/dsp/dsp0]}]}",
        "discover: {static: {ids: [a, b]}}",
        "discover: {static: {ids: [a, b]}}, share: {replicas: 2}",
    ),
    PHI: (
        *(f"discover: {{{one}}}" for one in (*_CARDS, "pci: {class: '0b40'}")),
        *(f"discover: {{sysfs: {{subsystem: {name}}}}}" for name in ("dma", "mic")),
    ),
    LOCALITY: tuple(f"discover: {{{one}}}" for one in _CARDS),
    CONFLICTS: (_ALL_FUNCTIONS,),
    SPARK: (_ALL_FUNCTIONS,),
    MEMORY_NODES: (_ALL_FUNCTIONS,),
}
"""What is asked of each host: the keys of a resource."""


def ids_of(host: Host, asked: str) -> dict[str, str]:
    """Return the ID of each device, or of its first replica, by where it is plugged in."""
    one = resource(asked)
    found = source_of(one, host).look()
    return {_place(each): _device_id(each, asked) for each in found}


def _place(found: HostDevice) -> str:
    return found.hardware or (found.nodes[0].host_path if found.nodes else found.name)


def _device_id(found: HostDevice, asked: str) -> str:
    one = resource(asked)
    named = with_room_for_replicas(found, one.share.replicas)
    return device_ids(named.name, one.share.replicas)[0]


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """Return the table: host, what was asked, where a device is plugged in, its ID."""
    table = json.loads(TABLE.read_text())
    hosts: dict[str, dict[str, dict[str, str]]] = table["hosts"]
    return hosts


def main() -> None:
    """Record the IDs as they are now."""
    hosts = {}
    for name, make in {**OURS, **OTHERS}.items():
        with tempfile.TemporaryDirectory() as folder:
            host = make(Path(folder))
            hosts[name] = {asked: ids_of(host, asked) for asked in ASKED[name]}
    text = json.dumps({"configVersion": CONFIG_VERSION, "hosts": hosts}, indent=1, ensure_ascii=False)
    TABLE.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
