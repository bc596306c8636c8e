"""A kubelet's end that is acted: it takes plugins on as the real one does, or behaves as it is told.

It keeps no account of devices; its socket can be replaced in one step, and its streams end at will.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from devplug.errors import RemoteError
from devplug.linux.notifier import Notifier
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, connected, unary
from torture.relays import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from devplug.wire.sockets import Peer
    from devplug.wire.values import AdvertisedDevice, RegisterRequest

Behaviour: TypeAlias = "Callable[[RegisterRequest], Awaitable[None]]"


@dataclass(eq=False, slots=True)
class Attempt:
    """One Register that came."""

    resource_name: str
    at: float
    is_open: bool = True
    overlapping: int = 0
    """How many others of the same resource were open."""


@dataclass(eq=False, slots=True)
class Stream:
    """One ListAndWatch; `latest` is the last list that came."""

    is_open: bool = True
    lists: int = 0
    latest: Sequence[AdvertisedDevice] = ()
    task: asyncio.Task[None] | None = None

    @property
    def healthy_ids(self) -> list[str]:
        """The IDs that a pod could get."""
        return [device.id for device in self.latest if device.health == "Healthy"]

    def end(self) -> None:
        """Give the stream up."""
        if self.task is not None:
            self.task.cancel()


@dataclass(eq=False, slots=True)
class Client:
    """One connection to a plugin that has registered."""

    resource_name: str
    path: Path
    peer: Peer | None = None
    streams: list[Stream] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def is_listening(self) -> bool:
        """Whether a stream of it is open and has brought a list."""
        return any(stream.is_open and stream.lists for stream in self.streams)

    @property
    def healthy_ids(self) -> list[str]:
        """The IDs of its first stream that a pod could get."""
        return self.streams[0].healthy_ids if self.streams else []

    def end(self) -> None:
        """Close the connection."""
        if self.task is not None:
            self.task.cancel()


class ActedKubelet:
    """The kubelet's end of one plugin folder; see `acted_kubelet`.

    `behave` is asked for each Register: it returns to accept, and raises `RemoteError` to refuse. By default
    it is `take_on`. `attempts` and `clients` have what came since the last `start`.
    """

    def __init__(self, folder: Path, behind: Path, group: asyncio.TaskGroup) -> None:
        self.front = Relay(folder / "kubelet.sock", behind, group)
        self.behave: Behaviour = self.take_on
        self.dialled: Callable[[RegisterRequest], Path] = lambda request: folder / request.endpoint
        """Where a plugin is dialled; something may stand in between."""
        self.attempts: list[Attempt] = []
        self.clients: list[Client] = []
        self._behind = Listener(behind, (unary(deviceplugin.REGISTER, self._register),))
        self._group = group
        self._notifier = Notifier()

    async def bind(self) -> None:
        """Make what is behind the kubelet's socket; once."""
        await self._behind.bind()

    async def close(self) -> None:
        """End everything."""
        self.front.close()
        self.end_clients()
        await self._behind.close()

    def start(self, *, keeps_clients: bool = False) -> None:
        """Begin a new life in one step: another socket, and by default no connections of the old one."""
        self.front.close(keeps_connections=keeps_clients)
        self.attempts = []
        self.behave = self.take_on
        if not keeps_clients:
            self.end_clients()
        self.clients = []
        self.front.open()

    def end_clients(self) -> None:
        """Close all connections to plugins."""
        for client in self.clients:
            client.end()

    def listening(self, resource_name: str) -> Client | None:
        """Return the newest plugin of the name, if it lists."""
        for client in reversed(self.clients):
            if client.resource_name == resource_name:
                return client if client.is_listening else None
        return None

    async def until(self, claim: Callable[[], object]) -> None:
        """Wait until something is true, asked after each event here."""
        while not claim():
            await self._notifier.next.wait()

    async def take_on(
        self, request: RegisterRequest, *, streams: int = 1, answer_after_seconds: float = 0
    ) -> None:
        """Accept a plugin: dial it, ask for its options, open streams; answer after that, or later."""
        client = Client(request.resource_name, self.dialled(request))
        is_dialled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.task = self._group.create_task(self._hold(client, streams, is_dialled))
        await is_dialled
        await asyncio.sleep(answer_after_seconds)

    async def _register(self, request: RegisterRequest) -> None:
        others = [one for one in self.attempts if one.is_open and one.resource_name == request.resource_name]
        now = asyncio.get_running_loop().time()
        attempt = Attempt(request.resource_name, now, overlapping=len(others))
        self.attempts.append(attempt)
        self._notifier.notify()
        try:
            await self.behave(request)
        finally:
            attempt.is_open = False
            self._notifier.notify()

    async def _hold(self, client: Client, streams: int, is_dialled: asyncio.Future[None]) -> None:
        try:
            async with connected(client.path, ready_within_seconds=10) as peer:
                client.peer = peer
                await peer.call(deviceplugin.GET_OPTIONS, None)
                self.clients.append(client)
                client.streams = [Stream() for _ in range(streams)]
                async with asyncio.TaskGroup() as group:
                    for stream in client.streams:
                        stream.task = group.create_task(self._listen(peer, stream))
                    if not is_dialled.done():
                        is_dialled.set_result(None)
                if not streams:
                    await asyncio.Event().wait()
        except RemoteError as error:
            if not is_dialled.done():
                is_dialled.set_exception(
                    RemoteError("Unknown", f"failed to dial device plugin: {error.text}")
                )
        finally:
            # gRPC closes a channel when its last reference goes, and a cancelled task has one.
            client.peer = client.task = None
            for stream in client.streams:
                stream.task = None
            if not is_dialled.done():
                is_dialled.set_exception(RemoteError("Unavailable", "the kubelet ends"))
            self._notifier.notify()

    async def _listen(self, peer: Peer, stream: Stream) -> None:
        try:
            async with aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as lists:
                async for devices in lists:
                    stream.lists += 1
                    stream.latest = devices
                    self._notifier.notify()
        except RemoteError:
            pass
        finally:
            stream.is_open = False
            self._notifier.notify()


@asynccontextmanager
async def acted_kubelet(folder: Path, behind: Path) -> AsyncIterator[ActedKubelet]:
    """Act a kubelet in `folder`, its server at the path `behind` elsewhere; not started when entered."""
    async with asyncio.TaskGroup() as group:
        kubelet = ActedKubelet(folder, behind, group)
        await kubelet.bind()
        try:
            yield kubelet
        finally:
            await kubelet.close()
