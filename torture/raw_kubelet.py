"""A kubelet's end made by hand: it can be killed, refuse, keep silent or hang at each step of a registration.

What a kubelet does with devices is not here; what a plugin sees of one is, in the order of the real one
(plugin/v1beta1: server.go, handler.go, client.go).
"""

from __future__ import annotations

import asyncio
import enum
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from torture.raw_grpc import Connection, Exchange, dialled, listening_socket
from torture.testbed import RESOURCE

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from devplug.wire.values import AdvertisedDevice, RegisterRequest


class Phase(enum.StrEnum):
    """The steps of a registration, as a kubelet reaches them; then its calls for a pod."""

    STARTED = "started"
    CALLED = "connected to by a plugin"
    REGISTER = "Register has come"
    DIALLED = "plugin dialled"
    OPTIONS = "options asked for"
    ANSWERED = "Register answered"
    OPENED = "ListAndWatch opened"
    LISTED = "first list read"
    PREFERENCE = "in GetPreferredAllocation"
    ALLOCATE = "in Allocate"
    PRE_START = "in PreStartContainer"


@dataclass(frozen=True, slots=True)
class Manner:
    """How a kubelet treats those who register. The default is a right one's."""

    refusal: tuple[str, str] | None = None
    """Status and text of the answer, undialled."""
    is_silent: bool = False
    """It never answers, and does nothing."""
    cuts: bool = False
    """It closes the connection instead of answering."""
    answer_after_seconds: float = 0.0
    """How long the answer is held back, after ListAndWatch was opened."""
    streams: int = 1
    """How many ListAndWatch streams it opens after an answer."""


RIGHT = Manner()


@dataclass(eq=False, slots=True)
class Attempt:
    """One Register that came. Times are the loop's."""

    request: RegisterRequest
    at: float
    is_open: bool = True
    overlapping: int = 0
    """How many others of the same resource were open."""


@dataclass(eq=False, slots=True)
class Client:
    """A plugin that was taken on: the connection to it, and the lists that came."""

    resource_name: str
    path: Path
    connection: Connection
    lists: list[Sequence[AdvertisedDevice]] = field(default_factory=list)
    is_listening: bool = True
    exchange: Exchange | None = None

    @property
    def healthy_ids(self) -> list[str]:
        """The IDs that a pod could get."""
        return [device.id for device in self.lists[-1] if device.health == "Healthy"] if self.lists else []

    @property
    def ids(self) -> list[str]:
        """All IDs of the last list."""
        return [device.id for device in self.lists[-1]] if self.lists else []


class Life:
    """One process of a kubelet, from its start until `kill`."""

    def __init__(self, kubelet: HandKubelet, path: Path, group: asyncio.TaskGroup) -> None:
        self.attempts: list[Attempt] = []
        self.clients: dict[str, Client] = {}
        """The newest of each resource."""
        self.started_at = asyncio.get_running_loop().time()
        self._kubelet = kubelet
        self._group = group
        self._connections: set[Connection] = set()
        self._accepted: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = listening_socket(path)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def deafen(self) -> None:
        """Listen no more; the socket stays and refuses. What is connected stays so."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def kill(self) -> None:
        """End as a killed process does: every connection is gone without a word, the socket refuses."""
        self.deafen()
        for connection in self._connections:
            connection.abort()
        for accepted in self._accepted:
            accepted.close()
        self._connections.clear()
        self._accepted.clear()
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()

    def client(self, resource_name: str) -> Client | None:
        """Return the plugin that lists this resource now."""
        client = self.clients.get(resource_name)
        return client if client is not None and client.is_listening else None

    def _begin(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async def whole() -> None:
            try:
                await work()
            finally:
                self._tasks.discard(task)

        task = self._group.create_task(whole())
        self._tasks.add(task)

    async def _reach(self, phase: Phase) -> None:
        self._kubelet.on_phase(phase)
        await self._kubelet.notify()
        # Where a kill in `on_phase` takes effect.
        await asyncio.sleep(0)

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(BlockingIOError):
            accepted, _ = self._listener.accept()
            accepted.settimeout(0)
            self._accepted.add(accepted)
            self._begin(partial(self._greet, accepted))

    async def _greet(self, accepted: socket.socket) -> None:
        _, connection = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Connection(self._take_register),
            accepted,
        )
        self._accepted.discard(accepted)
        self._connections.add(connection)
        await self._reach(Phase.CALLED)

    def _take_register(self, exchange: Exchange, content: bytes) -> None:
        request = deviceplugin.REGISTER.request.decode(content)
        self._begin(partial(self._register, exchange, request))

    async def _register(self, exchange: Exchange, request: RegisterRequest) -> None:
        others = [one for one in self.attempts if one.is_open]
        attempt = Attempt(
            request,
            asyncio.get_running_loop().time(),
            overlapping=sum(one.request.resource_name == request.resource_name for one in others),
        )
        self.attempts.append(attempt)
        manner = self._kubelet.manner
        connection, number = exchange.connection, exchange.number
        try:
            await self._reach(Phase.REGISTER)
            if manner.is_silent:
                await connection.is_closed.wait()
            elif manner.cuts:
                connection.abort()
            elif manner.refusal:
                connection.refuse(number, *manner.refusal)
            else:
                await self._take_on(exchange, request, manner)
        except (RemoteError, OSError) as error:
            connection.refuse(number, "Unknown", f"failed to dial device plugin: {error}")
        finally:
            attempt.is_open = False
            await self._kubelet.notify()

    async def _take_on(self, exchange: Exchange, request: RegisterRequest, manner: Manner) -> None:
        path = self._kubelet.folder / request.endpoint
        plugin = await dialled(path)
        self._connections.add(plugin)
        await self._reach(Phase.DIALLED)
        await plugin.is_settled.wait()
        options = plugin.send(deviceplugin.GET_OPTIONS, None)
        await self._reach(Phase.OPTIONS)
        await options.message()
        client = Client(request.resource_name, path, plugin)
        self.clients[request.resource_name] = client
        if manner.answer_after_seconds:
            self._begin(partial(self._watch, client))
            await asyncio.sleep(manner.answer_after_seconds)
        exchange.connection.answer(exchange.number, b"")
        await self._reach(Phase.ANSWERED)
        if not manner.answer_after_seconds:
            for _ in range(manner.streams):
                self._begin(partial(self._watch, client))

    async def _watch(self, client: Client) -> None:
        client.exchange = lists = client.connection.send(deviceplugin.LIST_AND_WATCH, None)
        client.is_listening = True
        try:
            await self._reach(Phase.OPENED)
            while (content := await lists.message()) is not None:
                client.lists.append(deviceplugin.LIST_AND_WATCH.response.decode(content))
                await self._reach(Phase.LISTED)
        except RemoteError:
            pass
        finally:
            client.is_listening = False
            client.connection.abort()
            await self._kubelet.notify()


class HandKubelet:
    """The kubelet's end of one plugin folder, over the lives of its process; see `hand_kubelet`.

    `on_phase` is called at each step and may call `kill`: nothing of that life happens afterwards.
    """

    def __init__(self, folder: Path, group: asyncio.TaskGroup) -> None:
        self.folder = folder
        self.manner = RIGHT
        self.on_phase: Callable[[Phase], None] = lambda _: None
        self._group = group
        self._changed = asyncio.Condition()
        self._life: Life | None = None
        self._former: list[Life] = []

    @property
    def path(self) -> Path:
        """Where plugins register."""
        return self.folder / "kubelet.sock"

    @property
    def life(self) -> Life:
        """The process of now, or the last one."""
        assert self._life is not None
        return self._life

    def start(self, path: Path | None = None) -> Life:
        """Clean the folder of sockets and listen, as a process that comes up does; at `path` if given."""
        for file in self.folder.iterdir():
            if file.is_socket():
                file.unlink()
        self._life = Life(self, path or self.path, self._group)
        self.on_phase(Phase.STARTED)
        return self._life

    def kill(self) -> None:
        """Kill the process of now."""
        if self._life is not None:
            self._life.kill()

    def hang(self) -> Life:
        """Let the process of now be: it listens no more, and keeps its connections until it is killed."""
        self.life.deafen()
        self._former.append(self.life)
        return self.life

    def end(self) -> None:
        """Kill every process that there still is."""
        for life in (*self._former, *([self._life] if self._life else [])):
            life.kill()

    async def until(self, claim: Callable[[], object]) -> None:
        """Wait until something is true, asked after each event."""
        async with self._changed:
            await self._changed.wait_for(claim)

    async def until_listed(self, ids: Sequence[str], resource_name: str = RESOURCE) -> Client:
        """Wait until the plugin of a resource lists exactly these IDs as healthy."""
        wanted = sorted(ids)

        def is_so() -> bool:
            client = self.life.client(resource_name)
            return client is not None and client.healthy_ids == wanted

        await self.until(is_so)
        return self.life.clients[resource_name]

    async def until_answered(self) -> None:
        """Wait until no Register is open."""
        await self.until(lambda: not any(attempt.is_open for attempt in self.life.attempts))

    async def notify(self) -> None:
        """Have those who wait look again."""
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def hand_kubelet(folder: Path) -> AsyncIterator[HandKubelet]:
    """Play a kubelet in `folder`; not started when entered, killed when left."""
    async with asyncio.TaskGroup() as group:
        kubelet = HandKubelet(folder, group)
        try:
            yield kubelet
        finally:
            kubelet.end()
