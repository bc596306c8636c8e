"""The kubelet as the bench plays it: as much of it as a plugin needs to be timed from outside."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.devices import HEALTHY
from devplug.errors import KubeletError, RemoteError
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, Peer, connected, unary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from devplug.wire.values import AdvertisedDevice, RegisterRequest

DIAL_SECONDS = 10
"""How long the kubelet waits for a plugin that registers to be there (client.go)."""

DOWN_SECONDS = 0.5
"""How long it stays away at a restart: long enough for a plugin to notice, far shorter than in life."""


class MissingError(Exception):
    """Something that was to be timed did not happen; the text says what."""


@dataclass(eq=False)
class Endpoint:
    """One registration: the plugin behind it, and the lists that came since."""

    resource_name: str
    registered_at: float
    peer: Peer | None = None
    devices: Sequence[AdvertisedDevice] = ()
    listed_at: list[float] = field(default_factory=list)
    """When each list came."""
    failure: RemoteError | None = None

    def healthy(self) -> list[str]:
        """Return the IDs that a pod could get."""
        return [device.id for device in self.devices if device.health == HEALTHY]


class Kubelet:
    """The kubelet's end of one plugin folder; lives as long as its `playing` block."""

    def __init__(self, folder: Path, backstage: Path, group: asyncio.TaskGroup) -> None:
        self.folder = folder
        self.endpoint: Endpoint | None = None
        self._backstage = backstage
        self._group = group
        self._changed = asyncio.Condition()
        self._listener: Listener | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._starts = 0
        self._exit_code: int | None = None
        self._resource_name: str | None = None

    def watch(self, child: asyncio.subprocess.Process) -> None:
        """Wait no longer for a plugin whose process ended."""

        async def end() -> None:
            self._exit_code = await child.wait()
            await self._notify()

        self._group.create_task(end())

    async def start(self) -> float:
        """Listen as a kubelet that comes up does; return when kubelet.sock was there."""
        self._starts += 1
        self._listener = Listener(
            self._backstage / f"{self._starts}.sock",
            (unary(deviceplugin.REGISTER, self._register),),
        )
        await self._listener.bind()
        for file in self.folder.iterdir():
            if file.is_socket():
                file.unlink()
        now = time.monotonic()
        # Made elsewhere and linked here, so that no time of our own server's start counts.
        os.link(self._listener.path, self.folder / "kubelet.sock")
        return now

    async def stop(self) -> None:
        """Drop every connection and refuse new ones; kubelet.sock stays, as after the end of the real one."""
        self.endpoint = None
        connections, self._connections = self._connections, set()
        for connection in connections:
            connection.cancel()
        if connections:
            await asyncio.wait(connections)
        if self._listener is not None:
            await self._listener.close()

    async def restart(self) -> float:
        """Go away, come back; return when kubelet.sock was there again."""
        await self.stop()
        await asyncio.sleep(DOWN_SECONDS)
        return await self.start()

    async def wait_registered(self, seconds: float) -> Endpoint:
        """Wait for a registration since the last start, and for the plugin behind it to answer."""
        await self._wait(
            lambda: self.endpoint is not None and self.endpoint.peer is not None, seconds, "Register"
        )
        assert self.endpoint is not None
        return self.endpoint

    async def wait_listed(self, claim: Callable[[Endpoint], bool], seconds: float, what: str) -> float:
        """Wait for a list that makes `claim` true; return when it came."""
        await self._wait(
            lambda: self.endpoint is not None and bool(self.endpoint.listed_at) and claim(self.endpoint),
            seconds,
            what,
        )
        assert self.endpoint is not None
        return self.endpoint.listed_at[-1]

    async def _wait(self, claim: Callable[[], bool], seconds: float, what: str) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: claim() or self._exit_code is not None)
        except TimeoutError:
            failure = self.endpoint.failure if self.endpoint else None
            reason = f" ({failure})" if failure else ""
            raise MissingError(f"no {what} within {seconds:g} s{reason}") from None
        if not claim():
            raise MissingError(f"it ended with code {self._exit_code} before {what}")

    async def _register(self, request: RegisterRequest) -> None:
        endpoint = Endpoint(request.resource_name, time.monotonic())
        self._resource_name = self._resource_name or endpoint.resource_name
        if endpoint.resource_name != self._resource_name:
            return  # one resource is timed, the first; the others are only let be
        self.endpoint = endpoint
        answered = asyncio.Event()
        self._connections.add(
            self._group.create_task(self._follow(endpoint, self.folder / request.endpoint, answered)),
        )
        await answered.wait()
        if endpoint.peer is None:
            raise KubeletError(f"failed to dial device plugin: {endpoint.failure}")

    async def _follow(self, endpoint: Endpoint, path: Path, answered: asyncio.Event) -> None:
        """Connect to the plugin, ask for its options, then take its lists for as long as they come."""
        try:
            async with connected(path, ready_within_seconds=DIAL_SECONDS) as peer:
                await peer.call(deviceplugin.GET_OPTIONS, None, timeout_seconds=DIAL_SECONDS)
                endpoint.peer = peer
                answered.set()
                await self._notify()
                async for devices in peer.stream(deviceplugin.LIST_AND_WATCH, None):
                    endpoint.listed_at.append(time.monotonic())
                    endpoint.devices = devices
                    await self._notify()
        except RemoteError as error:
            endpoint.failure = error
        finally:
            answered.set()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def playing(folder: Path, backstage: Path) -> AsyncIterator[Kubelet]:
    """Play the kubelet in `folder`; `backstage` is a folder of the same file system for what it hides."""
    failure: MissingError | None = None
    async with asyncio.TaskGroup() as group:
        kubelet = Kubelet(folder, backstage, group)
        await kubelet.start()
        try:
            yield kubelet
        except MissingError as error:  # raised again below: a TaskGroup would wrap it
            failure = error
        finally:
            await kubelet.stop()
    if failure is not None:
        raise failure
