"""One connection of our own server: its timers, and its calls from head to end, each in a task."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Protocol

from devplug.wire.connection import SocketConnection
from devplug.wire.http2.errors import ErrorCode
from devplug.wire.http2.events import DataReceived, HeadersReceived, StreamEnded, StreamReset
from devplug.wire.limits import HELD_LIMIT_BYTES
from devplug.wire.rpc import (
    ANSWER_HEAD,
    OK_TRAILERS,
    MessageReader,
    NotGrpcError,
    framed,
    http_refusal,
    message_head,
    request_of,
    trailers,
    trailers_only,
)
from devplug.wire.statuses import RpcError

if TYPE_CHECKING:
    from devplug.wire.handlers import Binding, Handlers
    from devplug.wire.http2.connection import Limits
    from devplug.wire.rpc import Request

logger = logging.getLogger(__name__)

SPEAK_SECONDS: Final = 5.0
"""How long a connection may take for its HTTP/2 preface, and for a whole block of header fields."""

REQUEST_SECONDS: Final = 30.0
"""How long a call may take to send its message."""

IDLE_SECONDS: Final = 600.0
"""How long a connection without calls is kept."""

_STARTS_A_TURN: Final = 2
"""Handlers that begin with what comes at once, and then in each turn of the loop. If hundreds of calls come,
the others wait, so that a list for a stream is sent between them and not only after the last."""

_JOINED_BYTES: Final = 1 << 14
"""Up to here a message is copied to stand behind its length; a longer one is sent as it is."""


class ConnectionOwner(Protocol):
    """The server, which accepts connections and counts the calls of all of them."""

    def admit(self, connection: ServerConnection, transport: asyncio.Transport) -> bool:
        """Let a new connection in, or say that it may not be."""

    def forget(self, connection: ServerConnection) -> None:
        """Note that a connection is gone."""

    def call_begun(self, call: Call, connection: ServerConnection) -> None:
        """Count a call; end another one if there are too many. Raises `RpcError` if none makes room."""

    def call_ended(self, call: Call) -> None:
        """Count a call as over."""


class Call:
    """One call that a connection has: waiting for its message, or being answered."""

    __slots__ = ("binding", "deadline", "has_head", "held_bytes", "id", "reader", "room", "task", "timer")

    def __init__(
        self, stream_id: int, binding: Binding, deadline: float | None, reader: MessageReader
    ) -> None:
        self.id = stream_id
        self.binding = binding
        self.deadline = deadline
        self.reader: MessageReader | None = reader
        """Until the message is there."""
        self.held_bytes = 0
        """How much of its message is counted in `_HELD`."""
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.room: asyncio.Future[None] | None = None
        """Set while the last answer has not gone out."""
        self.has_head = False


class _HeldRequests:
    """The bytes of requests that all servers of this process hold, and whose they are."""

    def __init__(self) -> None:
        self._bytes = 0
        self._incomplete: dict[Call, ServerConnection] = {}

    def count(self, call: Call, connection: ServerConnection, size: int) -> None:
        """Set how much of its message a call holds; the incomplete calls with most make room."""
        self._bytes += size - call.held_bytes
        call.held_bytes = size
        if call.reader is None:
            self._incomplete.pop(call, None)
        else:
            self._incomplete[call] = connection
        while self._bytes > HELD_LIMIT_BYTES:
            largest = max(self._incomplete, key=lambda one: one.held_bytes, default=call)
            self._incomplete.get(largest, connection).end_call(largest, "too many large messages at once")

    def drop(self, call: Call) -> None:
        """Forget a call."""
        self._bytes -= call.held_bytes
        call.held_bytes = 0
        self._incomplete.pop(call, None)


_HELD: Final = _HeldRequests()


class ServerConnection(SocketConnection):
    """One connection of a server; lives until its socket is closed, and all its calls end with it."""

    def __init__(
        self, owner: ConnectionOwner, handlers: Handlers, group: asyncio.TaskGroup, limits: Limits
    ) -> None:
        super().__init__(is_client=False, limits=limits)
        self.calls: dict[int, Call] = {}
        self._owner = owner
        self._handlers = handlers
        self._group = group
        self._idle_since = self._loop.time()
        self._block_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._begun: list[Call] = []
        """Calls whose heads have come since the loop called last."""
        self._starts_left = _STARTS_A_TURN
        self._unstarted: list[tuple[Call, bytes]] = []
        """Calls that have their message and wait for a turn of the loop; some may be over by then."""
        self._takers = {
            HeadersReceived: self._take_head,
            DataReceived: self._take_data,
            StreamEnded: self._take_end,
            StreamReset: self._take_reset,
        }

    # ── the connection ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in, or close it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._owner.admit(self, transport):
            transport.abort()
            return
        self._watch()
        self.flush()

    def data_received(self, content: bytes) -> None:
        """Take what has come."""
        if not self._unstarted:
            self._starts_left = _STARTS_A_TURN
        super().data_received(content)
        if self._begun:
            self._limit_waiting()
        if not self.http.is_in_block:
            self._block_since = None
        elif self._block_since is None:
            self._block_since = self._loop.time()
            self._watch()

    def ended(self) -> None:
        """End all calls: nobody waits for them."""
        if self._timer is not None:
            self._timer.cancel()
        self._owner.forget(self)
        for call in tuple(self.calls.values()):
            self._drop(call)

    @property
    def rank(self) -> int:
        """How much it would be missed: 0 without a complete call, 1 without any call, else 2.

        A peer that keeps a connection for later calls has finished the earlier ones.
        """
        if not self.http.has_settings:
            return 0
        if not self.calls:
            return 1
        return 2 if any(call.reader is None for call in self.calls.values()) else 0

    def end_call(self, call: Call, why: str) -> None:
        """End a call to make room for others."""
        self._refuse(call, "ResourceExhausted", why)
        self.flush()

    def leave(self) -> None:
        """Take no more calls; the connection closes with the last one."""
        self._is_leaving = True
        self.http.go_away()
        self.flush()
        self._close_if_done()

    def end(self) -> None:
        """Close the connection now, whatever goes on."""
        self.flush()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self.abort()
        else:
            self.close()
        for call in tuple(self.calls.values()):
            self._drop(call)

    def _close_if_done(self) -> None:
        if self._is_leaving and not self.calls:
            self.close()

    def _watch(self) -> None:
        """Look at the connection now, and again when something of it may be over its time."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        begun = self._idle_since if not self.http.has_settings else self._block_since
        if begun is not None:
            if now - begun >= SPEAK_SECONDS:
                self.abort()
                return
            wait = begun + SPEAK_SECONDS - now
        elif self.calls:
            wait = IDLE_SECONDS
        elif now - self._idle_since >= IDLE_SECONDS:
            self.leave()
            return
        else:
            wait = self._idle_since + IDLE_SECONDS - now
        self._timer = self._loop.call_later(wait + 0.001, self._watch)

    # ── calls, as they come ──

    def _take_head(self, event: HeadersReceived) -> None:
        try:
            request = request_of(event.fields)
            self._begin(event.stream_id, request)
        except NotGrpcError as error:
            self.http.end(event.stream_id, http_refusal(error.http_status, error.text))
        except RpcError as error:
            self.http.end(event.stream_id, trailers_only(error.status, error.text))

    def _begin(self, stream_id: int, request: Request) -> None:
        binding = self._handlers.find(request.path)
        if binding is None:
            raise RpcError("Unimplemented", self._handlers.not_served(request.path))
        seconds = request.timeout_seconds
        deadline = None if seconds is None else self._loop.time() + seconds
        reader = MessageReader(self._handlers.receive_limit_bytes, request.encoding)
        call = Call(stream_id, binding, deadline, reader)
        self._owner.call_begun(call, self)
        self.calls[stream_id] = call
        self._begun.append(call)

    def _limit_waiting(self) -> None:
        """Limit the time of new calls that wait for their message; most come with it."""
        for call in self._begun:
            if call.reader is not None:
                until = self._loop.time() + REQUEST_SECONDS
                due = until if call.deadline is None else min(call.deadline, until)
                call.timer = self._loop.call_at(due, self._late, call)
        self._begun.clear()

    def _late(self, call: Call) -> None:
        self._refuse(call, "DeadlineExceeded", "the message did not come in time")
        self.flush()

    def _take_data(self, event: DataReceived) -> None:
        # It is read at once: what it is read into is bounded.
        self.http.give_back(event.stream_id, event.size)
        call = self.calls.get(event.stream_id)
        if call is None or call.reader is None:
            return
        try:
            messages = call.reader.feed(event.content)
        except RpcError as error:
            self._refuse(call, error.status, error.text)
            return
        size = len(messages[0]) if messages else call.reader.held_bytes
        if messages:
            self._stop_reading(call)
        _HELD.count(call, self, size)
        if messages and self.calls.get(call.id) is call:
            self._start(call, messages[0])

    def _take_end(self, event: StreamEnded) -> None:
        call = self.calls.get(event.stream_id)
        if call is not None and call.reader is not None:
            self._refuse(call, "Internal", "the call ended without its message")

    def _take_reset(self, event: StreamReset) -> None:
        call = self.calls.get(event.stream_id)
        if call is not None:
            self._drop(call)

    def _refuse(self, call: Call, status: str, text: str) -> None:
        """End a call with an error."""
        self.http.end(call.id, self._refusal(call, status, text))
        self._drop(call)

    def _drop(self, call: Call) -> None:
        """Forget a call, and cancel its task if it has one."""
        if self.calls.pop(call.id, None) is None:
            return
        self._stop_reading(call)
        _HELD.drop(call)
        self._owner.call_ended(call)
        if call.task is not None:
            call.task.cancel()
        self._idle_since = self._loop.time()
        self._close_if_done()

    def _stop_reading(self, call: Call) -> None:
        call.reader = None
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    # ── calls, as they are answered ──

    def _start(self, call: Call, message: bytes) -> None:
        if not self._starts_left:
            if not self._unstarted:
                self._loop.call_soon(self._start_more)
            self._unstarted.append((call, message))
            return
        self._starts_left -= 1
        call.task = self._group.create_task(self._answer(call, message))

    def _start_more(self) -> None:
        """Start calls of an earlier turn of the loop, as many as begin in one."""
        self._starts_left = _STARTS_A_TURN
        while self._unstarted and self._starts_left:
            call, message = self._unstarted.pop(0)
            if self.calls.get(call.id) is call:
                self._start(call, message)
        if self._unstarted:
            self._loop.call_soon(self._start_more)

    async def _answer(self, call: Call, message: bytes) -> None:
        try:
            if call.deadline is None:
                end = await self._answered(call, message)
            else:
                async with asyncio.timeout_at(call.deadline):
                    end = await self._answered(call, message)
        except RpcError as error:
            end = self._refusal(call, error.status, error.text)
        except TimeoutError:  # of the deadline: `Handlers` lets no other one out
            end = self._refusal(call, "DeadlineExceeded", "context deadline exceeded")
        except Exception:
            logger.exception("a call was dropped because of a bug in devplug")
            self.http.reset(call.id, ErrorCode.INTERNAL_ERROR)
            end = b""
        if self.calls.get(call.id) is call:
            if end:
                self.http.end(call.id, end)
            call.task = None
            self.flush()
            self._drop(call)

    async def _answered(self, call: Call, message: bytes) -> bytes:
        """Send all answers; return what ends them."""
        if not call.binding.method.is_stream:
            self._send(call, await self._handlers.answer(call.binding, message))
            return OK_TRAILERS
        async with aclosing(self._handlers.answers(call.binding, message)) as answers:
            async for content in answers:
                # Only when this one is on its way the next is asked for: then it is the latest.
                call.room = self._loop.create_future()
                self._send(call, content)
                del content
                self.flush()
                await call.room
        self._send_head(call)
        return OK_TRAILERS

    def _refusal(self, call: Call, status: str, text: str) -> bytes:
        return (trailers if call.has_head else trailers_only)(status, text)

    def _send(self, call: Call, content: bytes) -> None:
        self._send_head(call)
        if len(content) <= _JOINED_BYTES:
            self.http.send_content(call.id, framed(content))
        else:
            self.http.send_content(call.id, message_head(content))
            self.http.send_content(call.id, content)

    def _send_head(self, call: Call) -> None:
        if not call.has_head:
            call.has_head = True
            self.http.send_head(call.id, ANSWER_HEAD)

    def content_sent(self, stream_id: int) -> None:
        """Let the stream's handler go on."""
        call = self.calls.get(stream_id)
        if call is not None and call.room is not None and not call.room.done():
            call.room.set_result(None)
