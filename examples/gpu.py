"""NVIDIA GPUs by their UUIDs, as NVML knows them: a library that blocks, NUMA nodes, health.

Run `pip install "devplug[nvidia]"` and `python examples/gpu.py`. A node without a driver has 0 GPUs until
there is one. Shared GPUs, MIG and Xid errors need no code: see gpus.yaml.
"""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pynvml as nvml  # type: ignore[import-untyped]

from devplug import ContainerResponse, Device, DevicePlugin, Health, run

FOR_ALL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")  # needed with any GPU

logger = logging.getLogger("gpu")


class Gpu(DevicePlugin):
    resource_name = "example.com/gpu"
    poll_seconds: float = 5

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)

    def devices(self) -> Iterator[list[Device]]:  # without `async`, so it may block
        trouble = ""
        while True:
            before, trouble, gpus = trouble, "", []
            try:
                gpus = self.look()
            except nvml.NVMLError as error:
                trouble = str(error)
            if trouble and trouble != before:
                logger.warning("there are no GPUs: %s", trouble)
            yield gpus
            time.sleep(self.poll_seconds)

    def look(self) -> list[Device]:
        """Return the GPUs that answer. One that does not is left out; devplug keeps it while a pod has it."""
        gpus = []
        with opened():
            for index in range(nvml.nvmlDeviceGetCount()):
                with suppress(nvml.NVMLError):
                    gpus.append(self.gpu(nvml.nvmlDeviceGetHandleByIndex(index)))
        return gpus

    def gpu(self, handle: object) -> Device:
        # NVML gives eight digits to the PCI domain, sysfs four.
        address = nvml.nvmlDeviceGetPciInfo(handle).busId[4:].lower()
        numa_node = self.root / "sys/bus/pci/devices" / address / "numa_node"
        return Device(
            nvml.nvmlDeviceGetUUID(handle),
            numa_nodes=[int(numa_node.read_text())],
            device_nodes=[self.root / f"dev/nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}"],
            health=health(handle),
        )

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        nodes = [self.root / "dev" / name for name in FOR_ALL]
        return ContainerResponse.of(
            devices,
            device_nodes=[node for node in nodes if node.exists()],
            envs={"NVIDIA_VISIBLE_DEVICES": ",".join(device.id for device in devices)},
        )


def health(handle: object) -> Health:
    """Judge a GPU by its memory: a row that could not be replaced is for ever."""
    try:
        *_, has_failed = nvml.nvmlDeviceGetRemappedRows(handle)
    except nvml.NVMLError_NotSupported:  # older than Ampere
        return Health.healthy()
    return Health.from_fault("a row of its memory could not be remapped" if has_failed else None)


@contextmanager
def opened() -> Iterator[None]:
    """Have NVML open for the block: what comes back later is only seen by who opens it anew."""
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


if __name__ == "__main__":
    run(Gpu(*sys.argv[1:2]))
