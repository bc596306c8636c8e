"""Plugins to try the kubelet with: small, real, on real sockets, and obedient in everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse
from devplug.errors import KubeletError
from devplug.kubelet.changes import Change, ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, TopologySettings
from devplug.wire.deviceplugin import (
    ALLOCATE,
    GET_OPTIONS,
    GET_PREFERRED_ALLOCATION,
    LIST_AND_WATCH,
    PRE_START_CONTAINER,
    REGISTER,
)
from devplug.wire.sockets import Binding, Listener, connected, stream, unary
from devplug.wire.values import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest

RESOURCE = "example.com/a"
OTHER_RESOURCE = "vendor.io/b"

LONG_SECONDS = 50
"""So long no story takes that does not hang."""

Devices = tuple[AdvertisedDevice, ...]
Ids = tuple[str, ...]


NO_OPTIONS = PluginOptions()
MACHINE = NodeHardware()
NO_TOPOLOGY = TopologySettings()


def healthy(*ids: str) -> Devices:
    return tuple(AdvertisedDevice(device_id, HEALTHY) for device_id in ids)


def unhealthy(*ids: str) -> Devices:
    return tuple(AdvertisedDevice(device_id, UNHEALTHY) for device_id in ids)


def pod(uid: str, count: int = 1, resource_name: str = RESOURCE) -> Pod:
    """A pod with one container `c` that wants `count` devices."""
    return Pod(uid, uid, containers=(Container("c", {resource_name: count}),))


SYSTEM = Pod("system", "system", containers=(Container("c"),))
"""A pod without devices, as each node has: without any pod the kubelet's answer shows nothing."""


class Clock:
    """A clock that moves only by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def running(
    folder: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    compat: bool = True,
    dial_timeout_seconds: float = 30,
    pre_start_timeout_seconds: float = 30,
    machine: NodeHardware = MACHINE,
    topology: TopologySettings = NO_TOPOLOGY,
) -> AsyncIterator[Kubelet]:
    """A kubelet that runs, for a time that only a hang outlasts."""
    settings = KubeletSettings(
        clock=clock,
        compat=compat,
        dial_timeout_seconds=dial_timeout_seconds,
        pre_start_timeout_seconds=pre_start_timeout_seconds,
        machine=machine,
        topology=topology,
    )
    kubelet = Kubelet(folder, settings)
    async with asyncio.timeout(LONG_SECONDS), kubelet.running():
        yield kubelet


@asynccontextmanager
async def registered(
    kubelet: Kubelet,
    devices: Devices,
    resource_name: str = RESOURCE,
    name: str = "p",
    options: PluginOptions = NO_OPTIONS,
) -> AsyncIterator[FakePlugin]:
    """A plugin whose first list is in the kubelet's table."""
    plugin = FakePlugin(kubelet.plugin_dir, name, devices, options)
    async with plugin.serving():
        await register(kubelet, plugin, resource_name)
        yield plugin


@asynccontextmanager
async def served(
    folder: Path, devices: Devices, options: PluginOptions = NO_OPTIONS, **settings: Any
) -> AsyncIterator[tuple[Kubelet, FakePlugin]]:
    """A kubelet with these settings that runs, and one plugin of it whose first list it has."""
    async with (
        running(folder, **settings) as kubelet,
        registered(kubelet, devices, options=options) as plugin,
    ):
        yield kubelet, plugin


async def refuse(_: object) -> Any:
    """What a plugin does in a call that it refuses."""
    raise KubeletError("boom")


async def never(_: object) -> Any:
    """What a plugin does in a call that it does not answer."""
    await asyncio.get_running_loop().create_future()


async def register(kubelet: Kubelet, plugin: FakePlugin, resource_name: str = RESOURCE) -> None:
    """Register a plugin and wait for its list."""
    with kubelet.changes() as changes:
        await plugin.register(resource_name)
        async for change in changes:
            if change.kind is ChangeKind.LISTED and change.resource_name == resource_name:
                return


async def happened(changes: AsyncIterator[Change], kind: ChangeKind, times: int = 1) -> Change:
    """Return the change after so many of this kind."""
    async for change in changes:
        times -= change.kind is kind
        if not times:
            return change
    raise AssertionError(kind)


@dataclass(frozen=True)
class Call:
    """One call that a plugin has got."""

    method: str
    device_ids: Ids = ()
    request: PreferenceRequest | None = None


@dataclass
class FakePlugin:
    """A plugin on its own socket that does what its fields say; change them at any time.

    The callables may raise `devplug.errors` or wait.
    """

    folder: Path
    name: str = "p"
    devices: Devices = ()
    options: PluginOptions = NO_OPTIONS
    first: Literal["send", "nothing", "end"] = "send"
    """What a new stream does first: send the devices, wait for `send`, or send them and end."""
    on_options: Callable[[], Awaitable[None]] | None = None
    on_list: Callable[[], None] | None = None
    on_prefer: Callable[[PreferenceRequest], Awaitable[Sequence[Ids]]] | None = None
    on_allocate: Callable[[Ids], Awaitable[Sequence[ContainerResponse]]] | None = None
    on_pre_start: Callable[[Ids], Awaitable[None]] | None = None
    on_streams: Callable[[], None] | None = None
    """Called when a stream was opened or is over."""
    calls: list[Call] = field(default_factory=list)
    socket_name: str | None = None
    _streams: set[asyncio.Queue[Devices | Exception | None]] = field(default_factory=set)
    _listener: Listener | None = None
    _turn: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def socket_path(self) -> Path:
        return self.folder / (self.socket_name or f"{self.name}.sock")

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def called(self, method: str) -> list[Ids]:
        """The device IDs of each call of this method, in order."""
        return [call.device_ids for call in self.calls if call.method == method]

    def bindings(self) -> tuple[Binding, ...]:
        return (
            unary(GET_OPTIONS, self._options),
            stream(LIST_AND_WATCH, self._list_and_watch),
            unary(GET_PREFERRED_ALLOCATION, self._prefer),
            unary(ALLOCATE, self._allocate),
            unary(PRE_START_CONTAINER, self._pre_start),
        )

    # ── its life ──

    async def listen(self) -> None:
        self.socket_path.parent.mkdir(parents=True, exist_ok=True)
        self._listener = Listener(self.socket_path, self.bindings(), send_limit_bytes=16 * 1024 * 1024)
        await self._listener.bind()

    async def die(self, *, keep_file: bool = False) -> None:
        if self._listener is not None:
            await self._listener.close(keep_file=keep_file)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        await self.listen()
        try:
            yield self
        finally:
            await self.die()

    async def register(
        self,
        resource_name: str = RESOURCE,
        *,
        version: str = "v1beta1",
        endpoint: str | None = None,
        options: PluginOptions = NO_OPTIONS,
        timeout_seconds: float | None = None,
    ) -> None:
        """Call the kubelet's Register; raises `RemoteError` with its answer."""
        if endpoint is None:
            endpoint = self.socket_name or f"{self.name}.sock"
        request = RegisterRequest(version, endpoint, resource_name, options)
        async with connected(self.folder / "kubelet.sock") as kubelet:
            await kubelet.call(REGISTER, request, timeout_seconds=timeout_seconds)

    def send(self, devices: Devices) -> int:
        """Send a list on every open stream; return how many those are."""
        self.devices = devices
        return self._tell(devices)

    def end_streams(self, error: Exception | None = None) -> int:
        """End every open stream, with `error` if given; the server stays."""
        return self._tell(error)

    def _tell(self, message: Devices | Exception | None) -> int:
        for queue in self._streams:
            queue.put_nowait(message)
        return len(self._streams)

    async def streams(self, count: int) -> None:
        """Wait until so many streams are open."""
        while len(self._streams) != count:
            await self._turn.wait()

    def _streams_changed(self) -> None:
        self._turn.set()
        self._turn = asyncio.Event()
        if self.on_streams is not None:
            self.on_streams()

    # ── its calls ──

    async def _options(self, _: None) -> PluginOptions:
        self.calls.append(Call("GetDevicePluginOptions"))
        if self.on_options is not None:
            await self.on_options()
        return self.options

    async def _list_and_watch(self, _: None) -> AsyncIterator[Devices]:
        self.calls.append(Call("ListAndWatch"))
        if self.on_list is not None:
            self.on_list()
        queue: asyncio.Queue[Devices | Exception | None] = asyncio.Queue()
        self._streams.add(queue)
        self._streams_changed()
        try:
            if self.first != "nothing":
                yield self.devices
            if self.first == "end":
                return
            while (message := await queue.get()) is not None:
                if isinstance(message, Exception):
                    raise message
                yield message
        finally:
            self._streams.discard(queue)
            self._streams_changed()

    async def _prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        self.calls += [Call("GetPreferredAllocation", request=request) for request in requests]
        if self.on_prefer is None:
            return [tuple(sorted(request.available))[: request.size] for request in requests]
        return await self.on_prefer(requests[0])

    async def _allocate(self, containers: Sequence[Ids]) -> Sequence[ContainerResponse]:
        self.calls += [Call("Allocate", tuple(sorted(ids))) for ids in containers]
        if self.on_allocate is None:
            return [self.response(ids) for ids in containers]
        return await self.on_allocate(containers[0])

    async def _pre_start(self, ids: Ids) -> None:
        self.calls.append(Call("PreStartContainer", tuple(sorted(ids))))
        if self.on_pre_start is not None:
            await self.on_pre_start(ids)

    def response(self, ids: Ids) -> ContainerResponse:
        """What a container gets by default: one variable with the IDs."""
        return ContainerResponse(envs={f"DEVS_{self.name.upper()}": ",".join(sorted(ids))})
