"""A program of somebody else's that registers a resource name: python -m tests.plugin.rival FOLDER NAME ID...

It says so on standard output, and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from devplug.exchange import RegisterRequest
from devplug.wire.methods import DEVICE_PLUGIN_VERSION, REGISTER
from devplug.wire.sockets import connected
from tests.kubelet.fakes import NO_OPTIONS, FakePlugin, healthy


async def main(folder: Path, resource_name: str, ids: list[str]) -> None:
    plugin = FakePlugin(folder, "vendor", healthy(*ids))
    async with plugin.serving():
        async with connected(folder / "kubelet.sock") as kubelet:
            request = RegisterRequest(DEVICE_PLUGIN_VERSION, "vendor.sock", resource_name, NO_OPTIONS)
            await kubelet.call(REGISTER, request, timeout_seconds=40)
        sys.stdout.write("registered\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
