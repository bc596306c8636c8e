"""The guest's machine as QEMU's arguments, and what can be plugged into it. Pure.

Two NUMA nodes with one processor each. Node 1 has a host bridge of its own with a USB controller and two
hot-plug ports, node 0 has one with an NVMe controller that has virtual functions. What is on the board has no
node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PLUGGABLE", "SRIOV_FUNCTION", "Sockets", "arguments"]

SERIAL_NUMBER: Final = "SER0001"
"""What both USB adapters say of themselves, as cheap ones do."""

SRIOV_FUNCTION: Final = "0000:41:00.0"
"""Where the NVMe controller with virtual functions is: on the first bus behind the bridge of node 0."""

_PORT: Final = {"adapter-1": "1", "storage": "2", "adapter-2": "3"}

PLUGGABLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "adapter-1": {
        "driver": "usb-serial",
        "bus": "xhci.0",
        "port": _PORT["adapter-1"],
        "chardev": "line1",
        "serial": SERIAL_NUMBER,
        # Else it is only there while somebody is connected to the other end of the line.
        "always-plugged": True,
    },
    "adapter-2": {
        "driver": "usb-serial",
        "bus": "xhci.0",
        "port": _PORT["adapter-2"],
        "chardev": "line2",
        "serial": SERIAL_NUMBER,
        "always-plugged": True,
    },
    "storage": {
        "driver": "usb-storage",
        "bus": "xhci.0",
        "port": _PORT["storage"],
        "drive": "disk1",
        "serial": "STOR42",
    },
    "nvme": {"driver": "nvme", "bus": "port-nvme", "drive": "disk2", "serial": "NVMEHOT1"},
    "card": {"driver": "edu", "bus": "port-card"},
}
"""What QEMU's `device_add` takes, by the lab's name for it; the identifier is added by whoever plugs."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where the guest's ends outside are: Unix sockets, which others listen on before QEMU starts."""

    qmp: Path
    talk: Path
    """The second serial port, on which guest and host speak."""
    tpm: Path


def arguments(*, kernel: Path, initrd: Path, console: Path, sockets: Sockets) -> list[str]:
    """Return QEMU's arguments. The first serial port, the console, is written to the file `console`."""
    return [
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"),
        *("-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot", "-nodefaults"),
        *("-kernel", str(kernel), "-initrd", str(initrd)),
        *("-append", "console=ttyS0 loglevel=6 panic=-1 rdinit=/init intel_iommu=on"),
        *("-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=talk,path={sockets.talk}", "-serial", "chardev:talk"),
        *("-chardev", f"socket,id=qmp,path={sockets.qmp}", "-mon", "chardev=qmp,mode=control"),
        *_numa(0),
        *_numa(1),
        *_device("intel-iommu"),
        # Reads nothing but what this user may read, and writes nothing.
        *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
        *_device("virtio-9p-pci", fsdev="root", mount_tag="host", bus="pcie.0"),
        *("-chardev", f"socket,id=tpm,path={sockets.tpm}", "-tpmdev", "emulator,id=tpm,chardev=tpm"),
        *_device("tpm-tis", tpmdev="tpm"),
        *_device("pxb-pcie", id="node0", bus_nr=0x40, numa_node=0, bus="pcie.0"),
        *_device("pxb-pcie", id="node1", bus_nr=0x80, numa_node=1, bus="pcie.0"),
        *_device("pcie-root-port", id="port-sriov", bus="node0", chassis=1, slot=1),
        *_device("pcie-root-port", id="port-usb", bus="node1", chassis=2, slot=2),
        *_device("pcie-root-port", id="port-nvme", bus="node1", chassis=3, slot=3),
        *_device("pcie-root-port", id="port-card", bus="node1", chassis=4, slot=4),
        *_device("qemu-xhci", id="xhci", bus="port-usb"),
        *_device("nvme-subsys", id="subsystem"),
        *_device(
            "nvme",
            serial="SRIOV1",
            bus="port-sriov",
            subsys="subsystem",
            sriov_max_vfs=2,
            max_ioqpairs=8,
            msix_qsize=9,
            sriov_vq_flexible=4,
            sriov_vi_flexible=2,
        ),
        *("-blockdev", "null-co,node-name=disk1,size=16777216"),
        *("-blockdev", "null-co,node-name=disk2,size=16777216"),
        *("-chardev", "null,id=line1", "-chardev", "null,id=line2"),
    ]


def _numa(node: int) -> list[str]:
    return [
        *("-object", f"memory-backend-ram,id=memory{node},size=512M"),
        *("-numa", f"node,nodeid={node},memdev=memory{node},cpus={node}"),
    ]


def _device(driver: str, **properties: str | int) -> list[str]:
    return ["-device", ",".join([driver, *(f"{name}={value}" for name, value in properties.items())])]
