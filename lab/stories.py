"""The stories of the guest: what happens to each device, and what the daemon makes of it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.hardware import SERIAL_NUMBER, SRIOV_FUNCTION

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["STORIES", "Device", "Story", "config_text", "stories_named"]


@dataclass(frozen=True, slots=True)
class Device:
    """One device that comes and goes."""

    plug: str
    """What is plugged: a name of `hardware.PLUGGABLE`, or of what the guest does for itself."""
    id: str
    """What the daemon has to call it, before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One resource of the daemon's file, and the devices that it finds, in the order of plugging.

    They are plugged one by one, given to a pod all together, unplugged one by one, and plugged again in
    reverse order. Devices with one and the same `plug` come and go together.
    """

    title: str
    name: str
    """The resource name without its domain."""
    rest: str
    """The other keys of the resource, in YAML, in one line."""
    devices: tuple[Device, ...]
    numa_node: int | None
    nodes: tuple[str, ...]
    """Globs of device nodes: a pod that has all devices gets one of each, and nothing besides."""
    env: tuple[tuple[str, str], ...] = ()
    """What else such a pod gets."""

    @property
    def resource_name(self) -> str:
        """What pods ask for."""
        return f"lab.devplug.io/{self.name}"


STORIES: Final = (
    Story(
        title="two USB serial adapters with one serial number",
        name="serial",
        rest='discover: {usb: {vendor: "0403", product: "6001"}}, expose: {deviceNodes: [tty]}',
        devices=(
            # The first one is alone when it is named; the second one finds the name taken.
            Device("adapter-1", f"0403:6001:{SERIAL_NUMBER}"),
            Device("adapter-2", "0403:6001@0000:81:00.0-3"),
        ),
        numa_node=1,
        nodes=("/dev/ttyUSB[0-9]", "/dev/ttyUSB[0-9]"),
    ),
    Story(
        title="USB storage",
        name="storage",
        rest='discover: {usb: {vendor: "46f4", product: "0001"}}, expose: {deviceNodes: [block]}, '
        "allow: [rawDisks]",
        devices=(Device("storage", "46f4:0001:STOR42"),),
        numa_node=1,
        nodes=("/dev/sd[a-z]",),
    ),
    Story(
        title="NVMe controller on a port of NUMA node 1",
        name="nvme",
        rest='discover: {sysfs: {subsystem: nvme, attributes: {serial: "NVMEHOT*"}}}',
        devices=(Device("nvme", "NVMEHOT1"),),
        numa_node=1,
        nodes=("/dev/nvme[0-9]",),
    ),
    Story(
        title="SR-IOV functions, for virtual machines",
        name="vf",
        rest=f'discover: {{pci: {{virtualFunctionOf: "{SRIOV_FUNCTION}", driver: vfio-pci}}}}, '
        'expose: {env: {PCIDEVICE_LAB: "{pciAddresses}"}}',
        devices=(Device("functions", "0000:41:00.1"), Device("functions", "0000:41:00.2")),
        numa_node=0,
        nodes=("/dev/vfio/[0-9]*", "/dev/vfio/[0-9]*", "/dev/vfio/vfio"),
        env=(("PCIDEVICE_LAB", "0000:41:00.1,0000:41:00.2"),),
    ),
    Story(
        title="VFIO group",
        name="card",
        rest='discover: {pci: {vendor: "1234", device: "11e8", driver: vfio-pci}}',
        devices=(Device("card", "0000:83:00.0"),),
        numa_node=1,
        nodes=("/dev/vfio/[0-9]*", "/dev/vfio/vfio"),
    ),
    Story(
        title="TPM",
        name="tpm",
        rest='discover: {sysfs: {subsystem: tpmrm}}, expose: {containerPath: "/dev/tpmrm{index}"}',
        # The kernel counts on, because its integrity measurement keeps the TPM of the start for ever.
        devices=(Device("tpm", "tpmrm0"),),
        numa_node=None,
        nodes=("/dev/tpmrm[0-9]",),
    ),
    Story(
        title="camera",
        name="camera",
        rest='discover: {sysfs: {subsystem: video4linux, attributes: {index: "0"}}}, '
        'expose: {containerPath: "/dev/video{index}"}',
        devices=(Device("camera", "vivid.0.video0"),),
        numa_node=None,
        nodes=("/dev/video[0-9]",),
    ),
)


def stories_named(names: Collection[str]) -> Sequence[Story]:
    """Return the stories with these names, in the order of all of them."""
    return [story for story in STORIES if story.name in names]


def config_text(stories: Sequence[Story]) -> str:
    """Return the daemon's file for these stories."""
    lines = [f"  - {{name: {story.resource_name}, {story.rest}}}" for story in stories]
    return "\n".join(["version: 1", "resources:", *lines, ""])
