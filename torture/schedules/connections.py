"""Connections in memory: calls whose messages take their time, and the end of a caller.

As with gRPC: messages of one call in one direction keep their order, those of different calls do not where
they are sent together; a call on a lost connection dials again, and a deadline or a cancelled call cancels
who serves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from devplug.errors import RemoteError
from devplug.wire.codecs import Encoded
from devplug.wire.handlers import refusal_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from devplug.wire.deviceplugin import Method
    from torture.schedules.network import MemoryTransport, Network, Owner

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
        self.calls: list[Call] = []
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


class Call:
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
        tasks: asyncio.TaskGroup = connection.network.tasks
        transport.calls[self] = tasks.create_task(serve(transport, handler, request))

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
        except Exception as error:  # noqa: BLE001 -- as in `wire.listener`
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
        except Exception as error:  # noqa: BLE001 -- as in `wire.listener`
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

    async def _begun(self, method: Method[Any, Any], request: object) -> Call:
        if self._is_closed:
            raise RemoteError("Canceled", "grpc: the client connection is closing")
        if not await self.dial():
            raise RemoteError("Unavailable", "failed to connect to all addresses", is_unsent=True)
        assert self._connection is not None
        call = Call(self._connection, method)
        call.begin(request)
        return call
