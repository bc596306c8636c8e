"""A `DevicePlugin` that is served by claims, as a program: the judge's subject for `devplug.serve(dra=…)`.

`serve` writes CDI files where runtimes read them; here they go where the judge looks.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from devplug.devices import Device, Health
from devplug.plugin.contract import DevicePlugin
from devplug.plugin.serving import served


class Coded(DevicePlugin):
    """Four devices, and one that is broken."""

    resource_name = "example.com/coded"

    def devices(self) -> list[Device]:
        right = [
            Device(name, device_nodes=["/dev/null"], attributes={"number": number})
            for number, name in enumerate("abcd")
        ]
        return [*right, Device("broken", health=Health.unhealthy("it does not answer"))]


async def main() -> None:
    """Serve until SIGTERM, by the variables that the judge sets."""
    folder = Path(os.environ["KUBELET_ROOT"]) / "device-plugins"
    folder.mkdir(exist_ok=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with served(
        Coded(), plugin_dir=folder, dra="coded.example.com", cdi_folder=Path(os.environ["CDI_ROOT"])
    ):
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
