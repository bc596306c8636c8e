"""One connection of our own client, with its calls."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from devplug.wire.connection import SocketConnection
from devplug.wire.http2.connection import Limits
from devplug.wire.http2.errors import ErrorCode, code_name
from devplug.wire.http2.events import (
    DataReceived,
    GoAwayReceived,
    HeadersReceived,
    SettingsReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from devplug.wire.rpc import MessageReader, check_head, check_trailers, framed, request_block
from devplug.wire.statuses import CLOSING, RpcError, status_of_reset

if TYPE_CHECKING:
    from devplug.wire.http2.events import Event, Field

_LIMITS: Final = Limits(stream_window_bytes=1 << 20, connection_window_bytes=1 << 22)
"""Lists of devices have megabytes: with smaller windows the server waits more than it sends."""


class NotDoneError(RpcError):
    """The server has sent GOAWAY and not begun the call, which may be made again on another connection."""


class ClientCall:
    """One call; lives until its caller calls `end`, which it must."""

    def __init__(self, connection: ClientConnection, stream_id: int, receive_limit_bytes: int) -> None:
        self._connection = connection
        self._id = stream_id
        self._limit_bytes = receive_limit_bytes
        self._reader: MessageReader | None = None
        self._messages: deque[bytes] = deque()
        self._unread_bytes = 0
        """What the server may send again only when the waiting message is read."""
        self._head: tuple[Field, ...] = ()
        self._failure: RpcError | None = None
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    # ── for the caller ──

    async def only_message(self) -> bytes:
        """Return the answer of a call that has one; raises `RpcError`."""
        while not self._is_over:
            await self._change()
        if self._failure is not None:
            raise self._failure
        if len(self._messages) != 1:
            raise RpcError("Internal", f"{len(self._messages)} answers to a call that has one")
        return self._messages[0]

    async def next_message(self) -> bytes | None:
        """Return the next answer of a stream, None after the last; raises `RpcError`."""
        while not (self._messages or self._is_over):
            await self._change()
        if self._messages:
            message = self._messages.popleft()
            if not self._messages:
                self._give_back()
            return message
        if self._failure is not None:
            raise self._failure
        return None

    def end(self) -> None:
        """Forget the call, and cancel it at the server if it goes on. A second call does nothing."""
        if self.timer is not None:
            self.timer.cancel()
        self._give_back()
        self._connection.forget(self._id)
        self._failure = None

    async def _change(self) -> None:
        self._waiter = self._connection.future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # ── for the connection ──

    def fail(self, failure: RpcError) -> None:
        """End with a failure, unless it is over."""
        if not self._is_over:
            self._failure = failure
            self._finish()

    def take(self, event: Event) -> None:
        """Take an event of its stream."""
        try:
            if isinstance(event, HeadersReceived):
                self._head = event.fields
                self._reader = MessageReader(self._limit_bytes, check_head(event.fields))
            elif isinstance(event, DataReceived):
                self._take_data(event)
            elif isinstance(event, TrailersReceived):
                self._head = event.fields
            elif isinstance(event, StreamEnded):
                self._take_end()
        except RpcError as error:
            self.fail(error)

    def take_reset(self, event: StreamReset) -> None:
        """Take a RST_STREAM of its stream."""
        if event.code == ErrorCode.REFUSED_STREAM:
            self.fail(NotDoneError("Unavailable", "the server refused the stream"))
        elif event.why:
            self.fail(RpcError("Internal", f"a malformed answer: {event.why}"))
        else:
            text = f"stream terminated by RST_STREAM with error code: {code_name(event.code)}"
            self.fail(RpcError(status_of_reset(event.code), text))

    def _take_data(self, event: DataReceived) -> None:
        self._unread_bytes += event.size
        if self._is_over or self._reader is None:
            self._give_back()
            return
        was_waiting = bool(self._messages)
        found = self._reader.feed(event.content)
        self._messages.extend(found)
        if not was_waiting:
            # The rest of a message must come, whoever reads; behind a whole one it can wait.
            self._give_back()
        if found:
            self._wake()

    def _take_end(self) -> None:
        if self._reader is not None:
            self._reader.finish()
        check_trailers(self._head)
        self._finish()

    def _finish(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _give_back(self) -> None:
        size, self._unread_bytes = self._unread_bytes, 0
        if size:
            self._connection.give_back(self._id, size)


class ClientConnection(SocketConnection):
    """One connection to a server; lives until its socket is closed."""

    def __init__(self, receive_limit_bytes: int) -> None:
        super().__init__(is_client=True, limits=_LIMITS)
        self.spoken = asyncio.Event()
        """Set when the server has spoken, or will not."""
        self._receive_limit_bytes = receive_limit_bytes
        self._calls: dict[int, ClientCall] = {}
        self._is_leaving = False
        self._room = asyncio.Event()
        self._takers = {
            HeadersReceived: self._take_for_call,
            DataReceived: self._take_for_call,
            TrailersReceived: self._take_for_call,
            StreamEnded: self._take_for_call,
            StreamReset: self._take_reset,
            SettingsReceived: self._take_settings,
            GoAwayReceived: self._take_go_away,
        }

    def future(self) -> asyncio.Future[None]:
        """Return a future of this connection's loop."""
        return self._loop.create_future()

    def begin(self, path: str, authority: str, request: bytes, deadline: float | None) -> ClientCall:
        """Begin a call, with its message."""
        seconds = None if deadline is None else deadline - self._loop.time()
        stream_id = self.http.open_stream(request_block(path, authority, seconds))
        call = self._calls[stream_id] = ClientCall(self, stream_id, self._receive_limit_bytes)
        if deadline is not None:
            late = RpcError("DeadlineExceeded", "context deadline exceeded")
            call.timer = self._loop.call_at(deadline, call.fail, late)
        self.http.send_content(stream_id, framed(request))
        self.http.end(stream_id)
        self.flush()
        return call

    async def room(self) -> None:
        """Wait until a stream may have ended, or the connection."""
        self._room.clear()
        await self._room.wait()

    def forget(self, stream_id: int) -> None:
        """Take out a call; cancel its stream if it goes on."""
        if self._calls.pop(stream_id, None) is not None:
            self.http.reset(stream_id, ErrorCode.CANCEL)
            self.flush()
            self._room.set()
            self._close_if_done()

    def give_back(self, stream_id: int, size: int) -> None:
        """Add `size` bytes to the window of a stream."""
        self.http.give_back(stream_id, size)
        self.flush()

    def leave(self) -> None:
        """Close the connection; its calls fail."""
        self._fail_all(RpcError("Canceled", CLOSING))
        if self.is_open:
            for stream_id in tuple(self._calls):
                self.http.reset(stream_id, ErrorCode.CANCEL)
            self.http.go_away()
            self.flush()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self.abort()
        else:
            self.close()

    def ended(self) -> None:
        """Fail all calls that have not ended."""
        self.spoken.set()
        self._room.set()
        self._fail_all(RpcError("Unavailable", "error reading from server: EOF"))

    def _fail_all(self, failure: RpcError) -> None:
        for call in tuple(self._calls.values()):
            call.fail(failure)

    def _close_if_done(self) -> None:
        if self.http.is_left and not self._calls:
            self.close()

    # ── events ──

    def _take_for_call(self, event: HeadersReceived | DataReceived | TrailersReceived | StreamEnded) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            call.take(event)
        elif isinstance(event, DataReceived):
            self.http.give_back(event.stream_id, event.size)

    def _take_reset(self, event: StreamReset) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            call.take_reset(event)

    def _take_settings(self, _event: SettingsReceived) -> None:
        self.spoken.set()
        self._room.set()

    def _take_go_away(self, event: GoAwayReceived) -> None:
        text = f"the server has left: {code_name(event.code)} {event.text}".rstrip()
        for stream_id, call in tuple(self._calls.items()):
            if stream_id > event.last_stream_id:
                call.fail(NotDoneError("Unavailable", text))
        self._room.set()
        self._close_if_done()
