"""The plugin of the tutorials, for FPGA cards: discovery, health monitor, hot-plug, the variable FPGA_DEVICE.

Run `python examples/fpga_tutorial.py` on a node with cards at /dev/fpga0, /dev/fpga1 and so on. To try it on
any machine, name other folders: `python examples/fpga_tutorial.py DEV STATES`, after
`ln -s /dev/null DEV/fpga0; mkdir STATES/fpga0; echo operating > STATES/fpga0/state`. Then write `write error`
there, or remove the link, and see what the node has.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from devplug import ContainerResponse, Device, DevicePlugin, Health, run, watch_paths


class Fpga(DevicePlugin):
    resource_name = "example.com/fpga"
    monitor_seconds: float = 10

    def __init__(self, dev: str = "/dev", states: str = "/sys/class/fpga_manager") -> None:
        self.nodes = f"{dev}/fpga[0-9]*"
        self.states = Path(states)

    async def devices(self) -> AsyncIterator[list[Device]]:
        # At every change of the nodes, which is hot-plug, and every few seconds, which is the monitor.
        async for nodes in watch_paths(self.nodes, every_seconds=self.monitor_seconds):
            yield await asyncio.to_thread(self.look, nodes)

    def look(self, nodes: Sequence[Path]) -> list[Device]:
        """Return the cards behind these nodes, as well as they are now. It blocks, hence the thread."""
        return [
            Device(node.name.replace("fpga", "fpga-"), device_nodes=[node], health=self.health(node.name))
            for node in nodes
        ]

    def health(self, name: str) -> Health:
        """Judge a card by what its manager says: the kernel's ABI/testing/sysfs-class-fpga-manager."""
        try:
            state = (self.states / name / "state").read_text().strip()
        except OSError as error:
            return Health.unknown(f"its state cannot be read: {error.strerror}")
        if state.endswith("error") or state == "power off":
            return Health.unhealthy(f"its manager says {state!r}")
        if state == "operating":
            return Health.healthy()
        return Health.unknown(f"its manager says {state!r}")  # somebody is programming it

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse.of(devices, envs={"FPGA_DEVICE": ",".join(device.id for device in devices)})


if __name__ == "__main__":
    run(Fpga(*sys.argv[1:3]))
