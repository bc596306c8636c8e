"""Resources of the file, served on real sockets with a kubelet at the other end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devplug import serve
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import ContainerOptions, PodPhase
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from tests.daemon.hosts import link, resource
from tests.kubelet.fakes import RESOURCE, pod


@asynccontextmanager
async def serving(folder: Path, *plugins: ConfiguredPlugin) -> AsyncIterator[Kubelet]:
    """A kubelet with which the plugins are registered."""
    plugin_dir = folder / "plugins"
    plugin_dir.mkdir()
    kubelet = Kubelet(plugin_dir)
    async with kubelet.running(), serve(*plugins, plugin_dir=plugin_dir) as served:
        await served.wait_registered()
        await kubelet.wait(lambda: all(plugin.resource_name in kubelet.capacity() for plugin in plugins))
        yield kubelet


def plugin(folder: Path, rest: str = "", clock: Callable[[], float] | None = None) -> ConfiguredPlugin:
    """A plugin for the nodes below `by-id` in `folder`."""
    one = resource(f'discover: {{path: "{folder}/by-id/*"}}, {rest}')
    return ConfiguredPlugin(one, DaemonContext(clock=clock) if clock else DaemonContext())


def table(kubelet: Kubelet) -> dict[str, str]:
    return {device.id: device.health for device in kubelet.devices(RESOURCE)}


def allocatable(kubelet: Kubelet) -> int:
    return kubelet.allocatable().get(RESOURCE, 0)


async def refusal(folder: Path, *device_ids: str) -> str:
    """The answer to an Allocate that comes although the kubelet's table says better."""
    (socket,) = (folder / "plugins").glob("devplug-*.sock")
    async with connected(socket) as peer:
        with pytest.raises(RemoteError) as refused:
            await peer.call(ALLOCATE, [device_ids])
    return f"{refused.value.status} {refused.value.text}"


async def container(kubelet: Kubelet, count: int = 1) -> ContainerOptions:
    status = await kubelet.run_pod(pod("p", count))
    assert status.phase is PodPhase.RUNNING, status.message
    options = status.containers[0].options
    assert options is not None
    return options


def behind_a_link(folder: Path, target: str = "/dev/null") -> Path:
    """Make a device whose link leads on through another one, which nobody watches; return that one.

    What becomes of it is only seen at the next look, which an Allocate may precede.
    """
    middle = folder / "elsewhere" / "middle"
    link(middle, target)
    link(folder / "by-id" / "x0", middle)
    return middle


def look_again(folder: Path) -> None:
    """Make the daemon look, although no device changes."""
    (folder / "by-id" / "no-device").touch()
