"""The smallest plugin on our wire layer, which shows what the transport alone costs.

`python -m bench -- python -m bench.baseline {dir} {devices}` puts it beside the daemon. It polls.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, connected, socket_identity, stream, unary
from devplug.wire.values import AdvertisedDevice, PluginOptions, RegisterRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

TICK_SECONDS = 0.01


async def options(_: None) -> PluginOptions:
    return PluginOptions()


async def allocate(containers: Sequence[tuple[str, ...]]) -> Sequence[ContainerResponse]:
    return [ContainerResponse(device_nodes=["/dev/null"]) for _ in containers]


async def serve(folder: Path, devices: Path) -> None:
    """Register whenever there is a new kubelet.sock; it polls, as simple plugins do."""

    async def list_and_watch(_: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        sent = None
        while True:
            found = sorted(file.name for file in devices.iterdir())
            if found != sent:
                yield [AdvertisedDevice(name, "Healthy") for name in found]
            sent = found
            await asyncio.sleep(TICK_SECONDS)

    listener = Listener(
        folder / "plugin.sock",
        (
            unary(deviceplugin.GET_OPTIONS, options),
            unary(deviceplugin.ALLOCATE, allocate),
            stream(deviceplugin.LIST_AND_WATCH, list_and_watch),
        ),
    )
    known = None
    try:
        while True:
            identity = socket_identity(folder / "kubelet.sock")
            if identity != known and identity is not None:
                try:
                    await listener.bind()
                    async with connected(folder / "kubelet.sock") as kubelet:
                        request = RegisterRequest("v1beta1", "plugin.sock", "example.com/node")
                        await kubelet.call(deviceplugin.REGISTER, request, timeout_seconds=15)
                    known = identity
                except RemoteError as error:
                    sys.stderr.write(f"{error}\n")
            await asyncio.sleep(TICK_SECONDS)
    finally:
        await listener.close()


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    (Path(sys.argv[1]) / "left-behind").touch()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(Path(sys.argv[1]), Path(sys.argv[2])))
        await stop.wait()
        serving.cancel()
    sys.exit(7)


if __name__ == "__main__":
    asyncio.run(main())
