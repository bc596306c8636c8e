"""A kubelet that monitors can ask, and the asking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware
from devplug.wire.deviceplugin import Method
from devplug.wire.podresources import GET, GET_ALLOCATABLE_RESOURCES, LIST, V1ALPHA1_LIST
from devplug.wire.sockets import connected
from devplug.wire.values import AllocatableResources, ContainerResources, PodName, PodResources
from tests.kubelet.fakes import LONG_SECONDS

Request = TypeVar("Request")
Response = TypeVar("Response")

MACHINE = NodeHardware()


@asynccontextmanager
async def monitored(
    root: Path,
    *,
    clock: Callable[[], float] | None = None,
    compat: bool = True,
    machine: NodeHardware = MACHINE,
    without: frozenset[Literal["get", "allocatable"]] = frozenset(),
) -> AsyncIterator[Kubelet]:
    """A kubelet with a socket for monitors, for a time that only a hang outlasts."""
    settings = KubeletSettings(
        clock=clock or asyncio.get_running_loop().time,
        compat=compat,
        machine=machine,
        pod_resources_socket=socket_below(root),
        pod_resources_without=without,
    )
    kubelet = Kubelet(root / "device-plugins", settings)
    async with asyncio.timeout(LONG_SECONDS), kubelet.running():
        yield kubelet


def socket_below(root: Path) -> Path:
    return root / "pod-resources" / "kubelet.sock"


async def ask(kubelet: Kubelet, method: Method[Request, Response], request: Request) -> Response:
    """Call a method over a connection of its own."""
    assert kubelet.settings.pod_resources_socket is not None
    async with connected(kubelet.settings.pod_resources_socket) as peer:
        return await peer.call(method, request)


async def listed(kubelet: Kubelet) -> Sequence[PodResources]:
    return await ask(kubelet, LIST, None)


async def listed_v1alpha1(kubelet: Kubelet) -> Sequence[PodResources]:
    return await ask(kubelet, V1ALPHA1_LIST, None)


async def got(kubelet: Kubelet, name: str, namespace: str = "default") -> PodResources:
    return await ask(kubelet, GET, PodName(name, namespace))


async def allocatable(kubelet: Kubelet) -> AllocatableResources:
    return await ask(kubelet, GET_ALLOCATABLE_RESOURCES, None)


def ids(container: ContainerResources | AllocatableResources) -> list[str]:
    """The device IDs of a container or of a node, one for each entry."""
    return [device_id for entry in container.devices for device_id in entry.device_ids]


def held(pods: Sequence[PodResources]) -> dict[str, list[tuple[str, list[str]]]]:
    """The device IDs by pod and container, in the order of the answer."""
    return {pod.name: [(container.name, ids(container)) for container in pod.containers] for pod in pods}
