"""PreStartContainer: signal processors are reset before each start of a container, so nobody meets old data.

Run `python examples/reset.py` on a node with /dev/dsp0 and so on, whose driver has the class `dsp`, or name
other folders: `python examples/reset.py DEV CLASS`. To reset a PCI function is to write 1 to its file `reset`
(the kernel's ABI/testing/sysfs-bus-pci), which takes root.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from devplug import Device, DevicePlugin, UnhealthyDeviceError, run, watch_paths


class Dsp(DevicePlugin):
    resource_name = "example.com/dsp"
    pre_start_timeout_seconds = 10  # the kubelet itself waits 30 s

    def __init__(self, dev: str = "/dev", sysfs_class: str = "/sys/class/dsp") -> None:
        self.nodes = f"{dev}/dsp[0-9]*"
        self.sysfs_class = Path(sysfs_class)

    async def devices(self) -> AsyncIterator[list[Device]]:
        async for nodes in watch_paths(self.nodes):
            yield [Device(node.name, device_nodes=[node]) for node in nodes]

    def pre_start(self, devices: Sequence[Device], /) -> None:  # no `async`: a reset blocks
        stuck = [device for device in devices if not self.reset(device)]
        if stuck:
            # The container waits, the kubelet tries again, and no other pod gets these meanwhile.
            raise UnhealthyDeviceError("it could not be reset", *stuck)

    def reset(self, device: Device) -> bool:
        try:
            (self.sysfs_class / device.id / "device/reset").write_text("1")
        except OSError:
            return False
        return True


if __name__ == "__main__":
    run(Dsp(*sys.argv[1:3]))
