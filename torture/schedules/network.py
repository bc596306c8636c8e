"""Unix sockets in memory: files with inodes, servers, connections, and calls whose messages take their time.

As on Linux: a connection is made to who listens at the file that has the name at that moment; it outlives
the file, and ends with either end. As with gRPC: messages of one call in one direction keep their order,
those of different calls do not where they are sent together; a call on a lost connection dials again, and a
deadline or a cancelled call cancels who serves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devplug.errors import RemoteError
from devplug.wire.codecs import Encoded
from devplug.wire.statuses import refusal_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from devplug.wire.methods import Method
    from devplug.wire.sockets import Binding
    from torture.schedules.chance import Chance

__all__ = ["Connection", "MemoryPeer", "MemoryTransport", "Network", "Node", "Owner"]

logger = logging.getLogger(__name__)

CLOSED: Final = "Socket closed"
NEVER_TWICE: Final = 1e-6
"""Seconds between two messages of one call, at least."""

TOGETHER_SECONDS: Final = 0.05
"""What is sent within this time over one connection is taken in any order: it is one stream of bytes, but who
reads it has several threads."""

IN_TURN_SECONDS: Final = 0.001
"""How long after those before a later one is taken, at least."""

RECONNECT_SECONDS: Final = 1.0
"""The first wait of a kubelet whose dial found nobody; each next one is 1.6 times as long (grpc-go)."""


@dataclass(eq=False, slots=True)
class Owner:
    """A process: what it has open ends when it is killed."""

    name: str
    is_dead: bool = False
    transports: list[MemoryTransport] = field(default_factory=list)
    peers: list[MemoryPeer] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Node:
    """A file: an inode, which may be a socket that somebody listens at."""

    identity: tuple[int, int, int]
    is_socket: bool = True
    transport: MemoryTransport | None = None
    """Who listens; None for what only looks like a socket, or did once."""


class Network:
    """All sockets of one folder, by file name. Lives as long as its schedule."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: asyncio.TaskGroup, chance: Chance) -> None:
        self.loop = loop
        self.tasks = tasks
        self.chance = chance
        self.nodes: dict[str, Node] = {}
        self.watchers: list[Callable[[str], None]] = []
        """Told the name of each file that comes or goes."""
        self.connections: list[Connection] = []
        """The open ones."""
        self.on_call: Callable[[Owner, str, int], None] = lambda *_: None
        """Told who calls which method, with 1 at the beginning and -1 at the end; not of streams."""
        self.on_arrival: Callable[[Owner, str], None] = lambda *_: None
        """Told whose call of which method a server takes up; not of streams."""
        self.refused: dict[str, RemoteError] = {}
        """Methods that are refused, whoever serves them."""
        self.streams_cut_early = 0
        """How many streams their caller gave up before the server knew of them."""
        self.dials_in_vain = 0
        """How often a kubelet that lives has dialled a plugin, found nobody and waits to dial again."""
        self._free: list[int] = []
        self._next = 10

    # ── files ──

    def new_node(self, *, is_socket: bool = True) -> Node:
        """Return a file without a name. Like most file systems, it takes the last free inode number first."""
        if self._free:
            number = self._free.pop()
        else:
            number = self._next = self._next + 1
        return Node((1, number, int(self.loop.time() * 1e9)), is_socket)

    def note(self, text: str, *facts: object) -> None:
        """Log what happens, for who plays one schedule with its log."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%8.4f  %s", self.loop.time(), text % facts)

    def put(self, name: str, node: Node) -> None:
        """Give a file a name, as link(2) and rename(2) do; whatever had it has it no more."""
        self.note("file %s made, inode %s", name, node.identity[1])
        self.nodes[name] = node
        self.tell(name)

    def remove(self, name: str) -> Node | None:
        """Take the name away. Who listens there goes on, and can be reached no more."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self.note("file %s removed", name)
            if node not in self.nodes.values():
                self._free.append(node.identity[1])
            self.tell(name)
        return node

    def tell(self, name: str) -> None:
        """Tell all who watch that something happened to a name."""
        for watcher in self.watchers:
            watcher(name)

    def listening_at(self, name: str) -> MemoryTransport | None:
        """Return who can be reached at a name; None if a connection would be refused."""
        node = self.nodes.get(name)
        transport = None if node is None else node.transport
        return None if transport is None or transport.is_stopped or not transport.is_listening else transport

    def listens_late(self, transport: MemoryTransport) -> None:
        """Let connections be refused for a moment, as those of a Go server between bind(2) and listen(2)."""

        def listen() -> None:
            transport.is_listening = True

        transport.is_listening = False
        self.after(listen)

    # ── processes ──

    def kill(self, owner: Owner) -> None:
        """End a process at once: its files stay, all that it has open is closed."""
        self.note("%s killed", owner.name)
        owner.is_dead = True
        for transport in owner.transports:
            transport.fall()
        for peer in owner.peers:
            peer.close()

    def after(self, then: Callable[..., None], *arguments: object) -> None:
        """Call something after as long as a message takes."""
        self.loop.call_at(self.loop.time() + self.chance.message(), then, *arguments)


class MemoryTransport:
    """What stands behind a listener: it accepts connections and serves their calls until it is stopped."""

    def __init__(self, network: Network, owner: Owner, bindings: tuple[Binding, ...]) -> None:
        self.network = network
        self.owner = owner
        self.handlers = {binding.method.name: binding.handler for binding in bindings}
        self.open_calls = 0
        self.is_stopped = False
        self.is_listening = True
        self.calls: dict[_Call, asyncio.Task[None]] = {}
        self.connections: list[Connection] = []
        self._idle: asyncio.Event | None = None
        owner.transports.append(self)

    async def stop(self, grace_seconds: float) -> None:
        """Accept nothing more, let calls end within the grace, and close all connections."""
        self.is_stopped = True
        if self in self.owner.transports:
            self.owner.transports.remove(self)
        if grace_seconds and self.calls:
            self._idle = asyncio.Event()
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._idle.wait()
            except TimeoutError:
                pass
        self.fall()
        await asyncio.sleep(0)

    def fall(self) -> None:
        """Close everything at once."""
        self.is_stopped = True
        for connection in tuple(self.connections):
            connection.close()

    def done(self, call: _Call) -> None:
        """Forget a call that has been served."""
        self.calls.pop(call, None)
        if self._idle is not None and not self.calls:
            self._idle.set()


class Connection:
    """One connection. Each end learns of its loss in its own time; what is under way then is lost."""

    def __init__(self, network: Network, peer: MemoryPeer, transport: MemoryTransport) -> None:
        self.network = network
        self.peer = peer
        self.transport = transport
        self.is_open = True
        self.is_open_here = True
        """Whether the caller's end does not know better."""
        self.is_open_there = True
        """Whether the server's end does not know better."""
        self.calls: list[_Call] = []
        """Those that the caller waits for."""
        self.under_way: deque[tuple[float, float]] = deque()
        """When messages to the caller were sent and arrive, those of the last moments."""
        self._settled = 0.0
        network.connections.append(self)
        transport.connections.append(self)

    def not_before(self) -> float:
        """Return when a message to the caller may arrive at the earliest, if it is sent now."""
        before = self.network.loop.time() - TOGETHER_SECONDS
        while self.under_way and self.under_way[0][0] < before:
            self._settled = max(self._settled, self.under_way.popleft()[1])
        return self._settled + IN_TURN_SECONDS

    def close(self) -> None:
        """Lose it, from either end or in the middle."""
        if not self.is_open:
            return
        self.network.note("connection %s → %s lost", self.peer.owner.name, self.transport.owner.name)
        self.is_open = False
        self.network.connections.remove(self)
        if self in self.transport.connections:
            self.transport.connections.remove(self)
        if self.transport.owner.is_dead:
            self._lost_there()
        else:
            self.network.after(self._lost_there)
        self.network.after(self._lost_here)

    def _lost_there(self) -> None:
        self.is_open_there = False
        for call, task in tuple(self.transport.calls.items()):
            if call.connection is self:
                task.cancel()

    def _lost_here(self) -> None:
        self.is_open_here = False
        for call in tuple(self.calls):
            call.end_here(RemoteError("Unavailable", CLOSED))


class _Call:
    """One call, seen from both ends."""

    __slots__ = (
        "_at_here",
        "_at_there",
        "connection",
        "error",
        "has_arrived",
        "inbox",
        "is_over",
        "method",
        "name",
        "waiter",
    )

    def __init__(self, connection: Connection, method: Method[Any, Any]) -> None:
        self.connection = connection
        self.method = method
        self.name = method.name
        self.inbox: deque[Any] = deque()
        self.error: RemoteError | None = None
        self.is_over = False
        self.has_arrived = False
        self.waiter: asyncio.Future[None] | None = None
        self._at_here = 0.0
        self._at_there = 0.0
        connection.calls.append(self)

    def _note(self, what: str, message: object = "") -> None:
        network, connection = self.connection.network, self.connection
        if logger.isEnabledFor(logging.DEBUG):
            network.note(
                "%s → %s: %s %s %s",
                connection.peer.owner.name,
                connection.transport.owner.name,
                self.name,
                what,
                message,
            )

    # ── the caller's end ──

    def begin(self, request: object) -> None:
        """Send the request."""
        self._note("begins")
        self._to_there(self._arrive, request)

    def deliver(self, message: object) -> None:
        """Take one answer; not what was under way when the connection was lost.

        The end of a stream may be noticed late, but then no list of it comes after that of a successor: a
        kubelet would believe it, and no plugin could know.
        """
        if not self.is_over and self.connection.is_open:
            self._note("answered", message)
            self.inbox.append(message)
            self._wake()

    def end_here(self, error: RemoteError | None) -> None:
        """Take the end."""
        if not self.is_over:
            self._note("is over", error or "")
            self.is_over = True
            self.error = error
            self.connection.calls.remove(self)
            self._wake()

    def cancel(self) -> None:
        """Give up, and tell the server so."""
        if not self.is_over:
            self.connection.network.streams_cut_early += self.method.is_stream and not self.has_arrived
            self.end_here(RemoteError("Canceled", "context canceled"))
            if self.connection.is_open:
                self._to_there(self._cancelled_there)

    async def answered(self) -> None:
        """Wait for a message or the end."""
        self.waiter = self.connection.network.loop.create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _to_there(self, then: Callable[..., None], *arguments: object) -> None:
        network = self.connection.network
        at = network.loop.time() + network.chance.message()
        self._at_there = at = max(at, self._at_there + NEVER_TWICE)
        network.loop.call_at(at, then, *arguments)

    # ── the server's end ──

    def _arrive(self, request: object) -> None:
        connection = self.connection
        if not connection.is_open_there:
            return
        transport = connection.transport
        if transport.is_stopped:
            self._to_here(self.end_here, RemoteError("Unavailable", CLOSED))
            return
        if self.name in self.connection.network.refused:
            self._to_here(self.end_here, self.connection.network.refused[self.name])
            return
        handler = transport.handlers.get(self.name)
        if handler is None:
            text = f"unknown service {self.method.service}"
            self._to_here(self.end_here, RemoteError("Unimplemented", text))
            return
        serve = self._serve_stream if self.method.is_stream else self._serve
        self._note("arrives")
        self.has_arrived = True
        if not self.method.is_stream:
            connection.network.on_arrival(connection.peer.owner, self.name)
        transport.calls[self] = connection.network.tasks.create_task(serve(transport, handler, request))

    def _cancelled_there(self) -> None:
        task = self.connection.transport.calls.get(self)
        if task is not None:
            task.cancel()

    async def _serve(
        self, transport: MemoryTransport, handler: Callable[[Any], Awaitable[object]], request: object
    ) -> None:
        transport.open_calls += 1
        try:
            answer = await handler(request)
        except Exception as error:  # noqa: BLE001 -- as in `wire.listening`
            self._fail(error)
        else:
            self._to_here(self._answer, answer)
        finally:
            transport.open_calls -= 1
            transport.done(self)

    async def _serve_stream(
        self, transport: MemoryTransport, handler: Callable[[Any], AsyncIterator[Any]], request: object
    ) -> None:
        transport.open_calls += 1
        try:
            async for answer in handler(request):
                is_encoded = isinstance(answer, Encoded)
                message = self.method.response.decode(answer.content) if is_encoded else answer
                self._to_here(self.deliver, message)
        except Exception as error:  # noqa: BLE001 -- as in `wire.listening`
            self._fail(error)
        else:
            self._to_here(self.end_here, None)
        finally:
            transport.open_calls -= 1
            transport.done(self)

    def _fail(self, error: Exception) -> None:
        refusal = refusal_of(error, self.method)
        failure = RemoteError(refusal.status, refusal.text)
        self._to_here(self.end_here, failure)

    def _answer(self, answer: object) -> None:
        if self.connection.is_open:
            self.deliver(answer)
            self.end_here(None)

    def _to_here(self, then: Callable[..., None], *arguments: object) -> None:
        if self.connection.is_open:
            network = self.connection.network
            at = network.loop.time() + network.chance.message()
            self._at_here = at = max(at, self._at_here + NEVER_TWICE, self.connection.not_before())
            self.connection.under_way.append((network.loop.time(), at))
            network.loop.call_at(at, then, *arguments)


class MemoryPeer:
    """The caller's end; it dials when it has to."""

    def __init__(self, network: Network, owner: Owner, name: str) -> None:
        self._network = network
        self.owner = owner
        self._name = name
        self._connection: Connection | None = None
        self._is_closed = False
        self._is_final = False
        owner.peers.append(self)

    async def dial(self) -> bool:
        """Connect, unless it is connected; return whether it is."""
        network = self._network
        if self._connection is not None and self._connection.is_open_here:
            return True
        if self._is_final:
            return False
        await asyncio.sleep(network.chance.message())
        if self._connection is not None and self._connection.is_open_here:
            return True  # another call was quicker
        transport = network.listening_at(self._name)
        if transport is None or self._is_closed:
            return False
        self._connection = Connection(network, self, transport)
        return True

    async def connect(self) -> None:
        """Connect, trying once, and never again; raises `RemoteError`."""
        if not await self.dial():
            raise RemoteError("Unavailable", "failed to connect to all addresses", is_unsent=True)
        self._is_final = True

    async def ready(self, seconds: float) -> None:
        """Try to connect for so long; raises `RemoteError`."""
        wait_seconds = RECONNECT_SECONDS
        try:
            async with asyncio.timeout(seconds):
                while not await self.dial():
                    self._network.dials_in_vain += not self.owner.is_dead
                    await asyncio.sleep(wait_seconds)
                    wait_seconds *= 1.6
        except TimeoutError:
            raise RemoteError("DeadlineExceeded", "context deadline exceeded") from None

    def close(self) -> None:
        """Close the connection; whoever waits for an answer is told."""
        if not self._is_closed:
            self._is_closed = True
            self.owner.peers.remove(self)
            connection = self._connection
            if connection is not None:
                connection.close()
                for call in tuple(connection.calls):
                    call.end_here(RemoteError("Canceled", "grpc: the client connection is closing"))

    async def call(
        self, method: Method[Any, Any], request: object, *, timeout_seconds: float | None = None
    ) -> Any:  # noqa: ANN401 -- what the method answers
        """Call as `Peer` says."""
        if timeout_seconds is None:
            return await self._called(method, request)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._called(method, request)
        except TimeoutError:
            raise RemoteError("DeadlineExceeded", "context deadline exceeded") from None

    async def _called(self, method: Method[Any, Any], request: object) -> object:
        self._network.on_call(self.owner, method.name, 1)
        try:
            call = await self._begun(method, request)
            try:
                if not call.is_over:
                    await call.answered()  # its end comes with it
            finally:
                call.cancel()
        finally:
            self._network.on_call(self.owner, method.name, -1)
        if call.inbox:
            return call.inbox.popleft()
        assert call.error is not None
        raise call.error

    async def stream(self, method: Method[Any, Any], request: object) -> AsyncGenerator[Any, None]:
        """Yield as `Peer` says."""
        call = await self._begun(method, request)
        try:
            while True:
                while call.inbox:
                    yield call.inbox.popleft()
                if call.is_over:
                    break
                await call.answered()
        finally:
            call.cancel()
        if call.error is not None:
            raise call.error

    async def _begun(self, method: Method[Any, Any], request: object) -> _Call:
        if self._is_closed:
            raise RemoteError("Canceled", "grpc: the client connection is closing")
        if not await self.dial():
            raise RemoteError("Unavailable", "failed to connect to all addresses", is_unsent=True)
        assert self._connection is not None
        call = _Call(self._connection, method)
        call.begin(request)
        return call
