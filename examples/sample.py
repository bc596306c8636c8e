"""The twin of Kubernetes' own sample plugin, kubernetes/test/images/sample-device-plugin, for its manifests.

Run `python examples/sample.py`. Two devices, Dev-1 and Dev-2; for each the container gets a file /tmp/Dev-N.
These variables say how; the manifests set them:

PLUGIN_SOCK_DIR        the plugin folder
REGISTER_CONTROL_FILE  a file that somebody makes; the plugin registers only when it is deleted
CDI_ENABLED            if not empty, there is /var/run/cdi/example.com.json too, and devices go by its names

One thing differs: after a restart of the kubelet this one registers again, without another deletion.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from devplug import ContainerResponse, Device, DevicePlugin, Mount, run, watch_paths

IDS = ("Dev-1", "Dev-2")

logger = logging.getLogger("sample")


class Sample(DevicePlugin):
    resource_name = "example.com/resource"

    def __init__(self, folder: str = "/tmp", cdi_folder: str = "/var/run/cdi") -> None:  # noqa: S108
        self.folder = Path(folder)
        self.cdi_file = Path(cdi_folder, "example.com.json")
        self.control_file = os.environ.get("REGISTER_CONTROL_FILE", "")
        self.has_cdi = bool(os.environ.get("CDI_ENABLED"))

    async def devices(self) -> AsyncIterator[list[Device]]:
        with self.cdi_in_place():
            if self.control_file:
                await deletion(self.control_file)
            yield [Device(id_) for id_ in IDS]
            await asyncio.Event().wait()  # never set: to end here would be to be asked again

    def prepare(self, devices: Sequence[Device], /) -> None:
        for device in devices:
            file = self.folder / device.id
            file.unlink(missing_ok=True)
            with suppress(FileExistsError):  # a plugin that is about to be replaced may still answer
                file.touch(exist_ok=False)

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse(
            mounts=[Mount(self.folder / device.id) for device in devices],
            cdi_devices=[f"{self.resource_name}=CDI-{device.id}" for device in devices if self.has_cdi],
        )

    @contextmanager
    def cdi_in_place(self) -> Iterator[None]:
        """Have the CDI file there for the block, if it is wanted."""
        if self.has_cdi:
            devices = [cdi_device(f"CDI-{id_}", minor) for minor, id_ in enumerate(IDS)]
            spec = {"cdiVersion": "0.3.0", "kind": self.resource_name, "devices": devices}
            self.cdi_file.write_text(json.dumps(spec))
        try:
            yield
        finally:
            if self.has_cdi:
                self.cdi_file.unlink(missing_ok=True)


def cdi_device(name: str, minor: int) -> dict[str, object]:
    """Return a device of the CDI file: a variable, and a block device node that nobody opens."""
    node = {"path": f"/tmp/{name}", "type": "b", "major": 1, "minor": minor}  # noqa: S108
    return {"name": name, "containerEdits": {"env": [f"CDI_DEVICE={name}"], "deviceNodes": [node]}}


async def deletion(path: str) -> None:
    """Return when a file that was there is not any more."""
    was_there = False
    async for found in watch_paths(path):
        if found and not was_there:
            logger.info("registers when this file is deleted: %s", path)
        elif was_there and not found:
            return
        was_there = bool(found)


if __name__ == "__main__":
    run(Sample(), plugin_dir=os.environ.get("PLUGIN_SOCK_DIR"))
