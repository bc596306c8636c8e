"""The twin of `sample.go` with the SDK: eight devices for good. Run `python -m bench.sample FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from devplug import Device, DevicePlugin, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Sample(DevicePlugin):
    """Gives out /dev/ID for each ID."""

    resource_name = "bench.devplug.io/sample"

    async def devices(self) -> AsyncIterator[list[Device]]:
        """Yield the one list that there is."""
        yield [Device(f"node{number}", device_nodes=[f"/dev/node{number}"]) for number in range(8)]
        await asyncio.Event().wait()  # never set: to end here would be to be asked again


if __name__ == "__main__":
    run(Sample(), plugin_dir=sys.argv[1])
