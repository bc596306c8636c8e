"""Serial adapters by their stable links: they come and go, and keep their IDs."""

from collections.abc import AsyncIterator, Sequence

from devplug import ContainerResponse, Device, DevicePlugin, run, stable_id, watch_paths


class Serial(DevicePlugin):
    resource_name = "example.com/serial"

    def __init__(self, glob: str = "/dev/serial/by-id/*") -> None:
        self.glob = glob

    async def devices(self) -> AsyncIterator[list[Device]]:
        async for paths in watch_paths(self.glob):
            yield [Device(stable_id(path.name), device_nodes=[path]) for path in paths]

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        return ContainerResponse.of(devices, envs={"SERIALS": ",".join(device.id for device in devices)})


if __name__ == "__main__":
    run(Serial())
