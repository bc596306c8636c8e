"""A plugin whose resources go wrong in all the ways that pods are told of; files in FOLDER switch them.

Run as `python troubles.py PLUGIN_DIR FOLDER`; tests start it.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from devplug import ContainerResponse, Device, DevicePlugin, Health, run, watch_paths
from devplug.errors import AllocationError

PLUGIN_DIR, FOLDER = map(Path, sys.argv[1:3])


class Fpga(DevicePlugin):
    """Two devices on two NUMA nodes."""

    resource_name = "example.com/fpga"

    def devices(self) -> list[Device]:
        return [Device(f"fpga-{number}", numa_nodes=[number]) for number in range(2)]


class Picky(DevicePlugin):
    """Refuses whoever asks."""

    resource_name = "example.com/picky"

    def devices(self) -> list[Device]:
        return [Device("picky-0")]

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        raise AllocationError("the licence has run out; renew it")


class Dsp(DevicePlugin):
    """Refuses the start of containers until `FOLDER/reset` is there."""

    resource_name = "example.com/dsp"

    def devices(self) -> list[Device]:
        return [Device("dsp-0")]

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        if not (FOLDER / "reset").exists():
            raise AllocationError("it could not be reset")


class Laser(DevicePlugin):
    """Its one device is broken while `FOLDER/broken` is there."""

    resource_name = "example.com/laser"

    async def devices(self) -> AsyncIterator[list[Device]]:
        async for found in watch_paths(str(FOLDER / "broken")):
            yield [Device("laser-0", health=Health.from_fault("overheated" if found else ""))]


if __name__ == "__main__":
    run(Fpga(), Picky(), Dsp(), Laser(), plugin_dir=PLUGIN_DIR)
