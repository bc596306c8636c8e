"""Plugins, a kubelet's Registration service and a clock to try the SDK with: small, real, on real sockets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from devplug import ContainerResponse, Device, DeviceFeed, DevicePlugin, Health, Serving, serve
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.plugin.inventory import Inventory
from devplug.plugin.service import PluginService
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, Peer, connected, unary
from devplug.wire.values import AdvertisedDevice, RegisterRequest
from tests.waiting import until

RegistrationMode = Literal["socket", "watcher"]

RESOURCE = "example.com/a"
OTHER_RESOURCE = "vendor.io/b"

UNPLUGGED = Health.unhealthy("unplugged")


def devices(*ids: str) -> list[Device]:
    return [Device(id_, device_nodes=[f"/dev/{id_}"]) for id_ in ids]


def our_threads() -> set[str]:
    """The names of this process's threads, without Python's own and gRPC's."""
    return {thread.name for thread in threading.enumerate() if "/" in thread.name}


# ── plugins ──


class Fed(DevicePlugin):
    """A plugin that says what its feed says."""

    def __init__(self, *ids: str, resource_name: str = RESOURCE) -> None:
        self.resource_name = resource_name
        self.feed = DeviceFeed()
        self.feed.replace(devices(*ids))

    def devices(self) -> DeviceFeed:
        return self.feed


class Listed(DevicePlugin):
    """A plugin whose devices never change."""

    resource_name = RESOURCE

    async def devices(self) -> list[Device]:
        return devices("a")


class Steered(Listed):
    """A plugin whose calls do what `on_call` says: it may raise, wait, or give any answer."""

    allocate_timeout_seconds: float = 30

    def __init__(self, on_call: Callable[[Sequence[Device]], Awaitable[Any]] | None = None) -> None:
        self.on_call = on_call
        self.entered = asyncio.Event()
        self.calls: list[tuple[str, ...]] = []

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        self.calls.append(tuple(device.id for device in devices))
        self.entered.set()
        if self.on_call is not None:
            answer = await self.on_call(devices)
            if answer is not None:
                return answer  # type: ignore[no-any-return]  # what an author without a type checker returns
        return ContainerResponse.of(devices)


def raising(error: BaseException) -> Callable[[object], Awaitable[None]]:
    """What a kubelet or a plugin does that answers every call with this error."""

    async def call(_: object) -> None:
        raise error

    return call


def waiting(go: asyncio.Event | None = None) -> Callable[[object], Awaitable[None]]:
    """What a kubelet or a plugin does that answers no call before `go`, or ever."""

    async def call(_: object) -> None:
        await (go or asyncio.Event()).wait()

    return call


# ── a plugin's service on a socket, without a lifecycle ──


@dataclass
class Served:
    """A served plugin, and the connection of somebody who calls it as a kubelet does."""

    peer: Peer
    inventory: Inventory
    service: PluginService
    path: Path

    async def allocate(self, *containers: Sequence[str]) -> Sequence[ContainerResponse]:
        return await self.peer.call(deviceplugin.ALLOCATE, [tuple(ids) for ids in containers])

    async def refusal(self, *containers: Sequence[str]) -> str:
        """The status and text that Allocate is refused with."""
        return await refusal(self.allocate(*containers))

    def lists(self) -> AsyncGenerator[Sequence[AdvertisedDevice], None]:
        return self.peer.stream(deviceplugin.LIST_AND_WATCH, None)


async def refusal(call: Awaitable[object]) -> str:
    """The status and text of a call that is refused."""
    try:
        answer = await call
    except RemoteError as error:
        return f"{error.status} {error.text}"
    raise AssertionError(f"answered with {answer}")


@asynccontextmanager
async def served(
    folder: Path, plugin: DevicePlugin, listed: Iterable[Device] | None = None
) -> AsyncIterator[Served]:
    """Serve a plugin's calls at a socket in `folder`; its inventory is the test's to change."""
    inventory = Inventory(plugin.resource_name)
    service = PluginService(plugin, inventory, lambda: None)
    if listed is not None:
        await inventory.replace(list(listed))
    listener = Listener(folder / "p.sock", service.bindings())
    await listener.bind()
    try:
        async with connected(listener.path) as peer:
            yield Served(peer, inventory, service, listener.path)
    finally:
        await inventory.close()
        await listener.close()
        service.close()


# ── the other end ──


@asynccontextmanager
async def registered(
    folder: Path, *plugins: DevicePlugin, compat: bool = True
) -> AsyncIterator[tuple[Kubelet, Serving]]:
    """A kubelet and the plugins that are registered with it, once it has a list of each."""
    clock = asyncio.get_running_loop().time
    kubelet = Kubelet(folder, KubeletSettings(clock=clock, compat=compat))
    async with kubelet.running(), serve(*plugins, plugin_dir=folder) as serving:
        await serving.wait_registered()
        await kubelet.wait(lambda: all(one.resource_name in kubelet.capacity() for one in plugins))
        yield kubelet, serving


@dataclass(frozen=True)
class Node:
    """The folders of a node, and the way in which plugins register there."""

    root: Path
    mode: RegistrationMode

    @property
    def folder(self) -> Path:
        """Where the sockets of its plugins are."""
        return self.root / ("plugins_registry" if self.mode == "watcher" else "device-plugins")

    @property
    def calls(self) -> int:
        """How often a plugin calls the kubelet to register once."""
        return 0 if self.mode == "watcher" else 1

    def sockets(self) -> list[Path]:
        return plugin_sockets(self.folder)

    def kubelet(self, *, compat: bool = True) -> Kubelet:
        """A kubelet that looks at its folder a hundred times as often as a real one."""
        clock = asyncio.get_running_loop().time
        settings = KubeletSettings(clock=clock, compat=compat, reconcile_period_seconds=0.01)
        return Kubelet.under(self.root, settings)

    def serving(self, *plugins: DevicePlugin) -> AbstractAsyncContextManager[Serving]:
        return serve(*plugins, plugin_dir=self.root / "device-plugins", registration=self.mode)

    @asynccontextmanager
    async def registered(
        self, *plugins: DevicePlugin, compat: bool = True
    ) -> AsyncIterator[tuple[Kubelet, Serving]]:
        """A kubelet and the plugins that are registered with it, once it has a list of each."""
        kubelet = self.kubelet(compat=compat)
        async with kubelet.running(), self.serving(*plugins) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: all(one.resource_name in kubelet.capacity() for one in plugins))
            yield kubelet, serving


def allocatable(kubelet: Kubelet, resource_name: str = RESOURCE) -> int:
    return kubelet.allocatable().get(resource_name, 0)


@dataclass
class Registrar:
    """A kubelet reduced to its Registration service: it answers as it is told, and never opens a stream."""

    folder: Path
    on_register: Callable[[RegisterRequest], Awaitable[None]]
    requests: list[RegisterRequest] = field(default_factory=list)
    most_at_once: int = 0
    _at_once: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Registrar]:
        listener = Listener(self.folder / "kubelet.sock", (unary(deviceplugin.REGISTER, self._register),))
        await listener.bind()
        try:
            yield self
        finally:
            await listener.close(keep_file=True)

    async def _register(self, request: RegisterRequest) -> None:
        self.requests.append(request)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.on_register(request)
        finally:
            self._at_once -= 1


def plugin_sockets(folder: Path) -> list[Path]:
    return sorted(folder.glob("devplug-*.sock"))


# ── time ──


class Time:
    """A clock that stands still, and a sleep that lasts until the test ends it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self._wake = asyncio.Semaphore(0)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self._wake.acquire()
        self.now += seconds

    async def asleep(self, times: int) -> None:
        """Wait until somebody sleeps for the `times`-th time."""
        await until(lambda: len(self.slept) >= times)

    def wake(self) -> None:
        self._wake.release()


# ── other processes ──

PROLOGUE = """
import os, sys, threading, time
from devplug import *
class P(DevicePlugin):
    resource_name = "example.com/a"
    def devices(self): return [Device("a")]
"""


def start(program: str, folder: Path | None = None, *wrapper: str) -> subprocess.Popen[str]:
    """Start a Python program that knows `P`, a plugin with one device, and finds its folder by itself."""
    variables = {name: value for name, value in os.environ.items() if name != "DEVPLUG_PLUGIN_DIR"}
    if folder is not None:
        variables["DEVPLUG_PLUGIN_DIR"] = str(folder)
    return subprocess.Popen(
        [*wrapper, sys.executable, "-c", PROLOGUE + program],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a program's end; return its exit code and what it wrote to standard error."""
    try:
        _, errors = process.communicate(timeout=40)
    finally:
        process.kill()
    return process.returncode, errors


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)
