"""The test bed of most cases: a kubelet's end and a plugin of ours on one loop, on real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug import Device, DeviceFeed, DevicePlugin, serve
from devplug.kubelet.kubelet import Kubelet
from torture.catalogue import PATIENCE, BrokenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from devplug import Serving
    from devplug.kubelet.settings import KubeletSettings

RESOURCE: Final = "example.com/a"
TRUTH_SECONDS: Final = 2.0
"""I2: how long the kubelet's view may differ from the truth after a fault's end."""


def devices(*ids: str) -> list[Device]:
    """Return healthy devices with these IDs, each with a device node that nobody looks for."""
    return [Device(id_, device_nodes=[f"/dev/{id_}"]) for id_ in ids]


class Fed(DevicePlugin):
    """A plugin that lists what its feed says."""

    def __init__(self, *ids: str, resource_name: str = RESOURCE) -> None:
        self.resource_name = resource_name
        self.feed = DeviceFeed()
        self.feed.replace(devices(*ids))

    def devices(self) -> DeviceFeed:
        """Return the feed."""
        return self.feed


@dataclass(slots=True)
class Bed:
    """A kubelet that runs, and plugins that are served to it."""

    kubelet: Kubelet
    serving: Serving

    def allocatable(self, resource_name: str = RESOURCE) -> int:
        """Return how many healthy devices the kubelet believes in."""
        return self.kubelet.allocatable().get(resource_name, 0)

    async def until_allocatable(
        self, count: int, seconds: float = TRUTH_SECONDS, resource_name: str = RESOURCE
    ) -> float:
        """Wait until the kubelet believes in `count` healthy devices; return how many seconds it took."""
        return await within(
            seconds,
            self.kubelet.wait(lambda: self.allocatable(resource_name) == count),
            lambda: f"I2: {self.allocatable(resource_name)} of {count} devices after {seconds:g} s",
        )


@asynccontextmanager
async def bed(folder: Path, *plugins: Fed, settings: KubeletSettings | None = None) -> AsyncIterator[Bed]:
    """Run a kubelet in `folder` and serve plugins to it, for a block; entered once all are registered."""
    kubelet = Kubelet(folder, settings)
    async with kubelet.running(), serve(*plugins, plugin_dir=folder, registration="socket") as serving:
        async with asyncio.timeout(10):
            await serving.wait_registered()
        yield Bed(kubelet, serving)


async def within(seconds: float, awaited: Awaitable[object], story: Callable[[], str]) -> float:
    """Await something for `seconds` at most; return how long it took. Raises `BrokenError` with `story()`."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        async with asyncio.timeout(seconds * PATIENCE.get()):
            await awaited
    except TimeoutError:
        raise BrokenError(story()) from None
    return loop.time() - started
