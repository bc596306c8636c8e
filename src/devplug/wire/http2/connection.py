"""One connection of HTTP/2, at either end: received bytes become events, and orders bytes to send.

It knows no socket and no clock: times are given to it. The files beside it decide about single frames,
states, windows and fields; this one joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from devplug.wire.http2 import events
from devplug.wire.http2.errors import ConnectionFaultError, ErrorCode, MisuseError, StreamFaultError
from devplug.wire.http2.flow_control import FIRST_WINDOW, FloodGuard, PeerSettings, ReceiveWindow, Setting
from devplug.wire.http2.frames import (
    PREFACE,
    Continuation,
    Data,
    FrameReader,
    GoAway,
    Headers,
    Ping,
    Priority,
    PushPromise,
    Reset,
    Settings,
    Unknown,
    WindowUpdate,
)
from devplug.wire.http2.headers import (
    HEADER_LIST_LIMIT_BYTES,
    BlockReader,
    content_length,
    wrong_in_request,
    wrong_in_response,
    wrong_in_trailers,
)
from devplug.wire.http2.send_queue import CHUNK_BYTES, SendQueue
from devplug.wire.http2.streams import State, Step, Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devplug.wire.http2.events import Event, Field
    from devplug.wire.http2.streams import Stream


class Limits(Struct, frozen=True):
    """The limits of this end."""

    streams: int = 1024
    """How many streams the other end may have open at the same time; more are refused."""
    stream_window_bytes: int = 1 << 18
    connection_window_bytes: int = 1 << 20
    """How many bytes the other end may send that nobody has read: on one stream, and on all together."""


class Connection:
    """One end of a connection; lives as long as its socket."""

    def __init__(self, *, is_client: bool, limits: Limits) -> None:
        self._is_client = is_client
        self._limits = limits
        self._peer = PeerSettings()
        self._queue = SendQueue(self._peer)
        self._frames = FrameReader(wants_preface=not is_client)
        self._blocks = BlockReader()
        self._streams = Streams(
            is_client=is_client, receive_size=limits.stream_window_bytes, limit=limits.streams
        )
        self._window = ReceiveWindow(limits.connection_window_bytes)
        self._floods = FloodGuard()
        self._now = 0.0
        self._events: list[Event] = []
        self.has_settings = False
        """Whether the first SETTINGS of the other end have come."""
        self.is_left = False
        """Whether the other end has sent GOAWAY: it accepts no more streams."""
        self.is_over = False
        """Whether an error of the other end has ended the connection: what it sends is ignored."""
        self._takers: Mapping[type, Callable[..., None]] = {
            Data: self._take_data,
            Headers: self._take_headers,
            Continuation: self._take_continuation,
            Reset: self._take_reset,
            Settings: self._take_settings,
            PushPromise: self._take_push_promise,
            Ping: self._take_ping,
            GoAway: self._take_go_away,
            WindowUpdate: self._take_window_update,
            Priority: self._take_nothing,
            Unknown: self._take_nothing,
        }
        self._begin()

    def _begin(self) -> None:
        if self._is_client:
            self._queue.put(PREFACE)
        first = {
            Setting.ENABLE_PUSH: 0,
            Setting.MAX_CONCURRENT_STREAMS: self._limits.streams,
            Setting.INITIAL_WINDOW_SIZE: self._limits.stream_window_bytes,
            Setting.MAX_HEADER_LIST_SIZE: HEADER_LIST_LIMIT_BYTES,
        }
        # Only a client sends the first of these, and only a server the second (6.5.2).
        del first[Setting.MAX_CONCURRENT_STREAMS if self._is_client else Setting.ENABLE_PUSH]
        self._queue.put(Settings(tuple((int(name), value) for name, value in first.items())).to_bytes())
        # A setting does not change the window of the connection (6.9.2).
        self._queue.put(WindowUpdate(0, self._limits.connection_window_bytes - FIRST_WINDOW).to_bytes())

    # ── what users do ──

    @property
    def open_streams(self) -> int:
        """The number of open streams."""
        return len(self._streams.open)

    @property
    def is_in_block(self) -> bool:
        """Whether a block of header fields has begun to come and has not ended."""
        return self._blocks.head is not None

    @property
    def can_open(self) -> bool:
        """Whether a client may begin a stream now."""
        limit = self._peer.streams_limit
        return (limit is None or self.open_streams < limit) and not self.is_used_up

    @property
    def is_used_up(self) -> bool:
        """Whether a client can never begin another stream here (5.1.1, 6.8)."""
        return self.is_left or self.is_over or self._streams.are_used_up

    def receive(self, content: bytes, now: float) -> list[Event]:
        """Take bytes that came at a time in seconds; return their events. Never raises for invalid bytes."""
        self._now = now
        if not self.is_over:
            self._frames.feed(content)
            try:
                while not self._take_frames():
                    pass
            except ConnectionFaultError as fault:
                self._fail(fault)
        found, self._events = self._events, []
        return found

    def open_stream(self, block: bytes) -> int:
        """Begin a request with a block of header fields; return the stream's number."""
        if not self._is_client or not self.can_open:
            raise MisuseError("no stream can be opened here")
        stream = self._streams.begin()
        self._send_head(stream, block)
        return stream.id

    def send_head(self, stream_id: int, block: bytes) -> None:
        """Send the header fields of a response; does nothing if the stream has ended."""
        if (stream := self._streams.open.get(stream_id)) is not None:
            self._send_head(stream, block)

    def send_content(self, stream_id: int, content: bytes) -> None:
        """Send content as far as the windows allow; `take` returns the stream when all of it is sent."""
        if (stream := self._streams.open.get(stream_id)) is not None:
            self._queue.put_content(stream, content)

    def end(self, stream_id: int, trailers: bytes = b"") -> None:
        """End our side of a stream after its content, with a block of trailers or without."""
        if (stream := self._streams.open.get(stream_id)) is not None:
            self._queue.put_end(stream, trailers)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Reset a stream; does nothing if it has ended."""
        if (stream := self._streams.open.get(stream_id)) is not None:
            stream.step(Step.SEND_RESET)
            self._queue.put(Reset(stream_id, code).to_bytes())
            self._streams.forget(stream, was_reset=True)

    def give_back(self, stream_id: int, size: int) -> None:
        """Note that `size` bytes of a stream were read, so that as many may follow (5.2.1)."""
        if increment := self._window.give_back(size):
            self._queue.put(WindowUpdate(0, increment).to_bytes())
        stream = self._streams.open.get(stream_id)
        if stream is None or stream.state is State.HALF_CLOSED_REMOTE:
            return
        if increment := stream.receive_window.give_back(size):
            self._queue.put(WindowUpdate(stream_id, increment).to_bytes())

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY: no more streams are accepted, and the open ones go on (6.8)."""
        if not self._streams.is_shut:
            self._streams.is_shut = True
            self._queue.put(GoAway(self._streams.last_of_peer, code, why.encode()).to_bytes())

    @property
    def has_output(self) -> bool:
        """Whether something is to be sent, now or when its windows allow it."""
        return self._queue.has_output

    def take(self, limit_bytes: int | None) -> tuple[bytes, list[int]]:
        """Return what to send now, and the streams whose content is complete with it.

        It has at most about `limit_bytes` of content; with None only frames that need no window.
        """
        content, done = self._queue.take(limit_bytes)
        for stream in done:
            self._floods.reward()
            if stream.state is State.HALF_CLOSED_LOCAL and not self._is_client:
                # The response is complete before the request is: nobody needs the rest (8.1).
                self.reset(stream.id, ErrorCode.NO_ERROR)
                content += self._queue.take(None)[0]
            elif stream.is_closed:
                self._streams.forget(stream, was_reset=False)
        if len(content) > CHUNK_BYTES:
            self._floods.reward(len(content) / CHUNK_BYTES)
        return content, [stream.id for stream in done]

    def _send_head(self, stream: Stream, block: bytes) -> None:
        stream.step(Step.SEND_HEADERS)
        self._queue.put_block(stream.id, block, ends_stream=False)

    # ── faults ──

    def _strike(self) -> None:
        if not self._floods.strike(self._now):
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "too many useless frames")

    def _fail_stream(self, fault: StreamFaultError) -> None:
        self._strike()
        self._queue.put(Reset(fault.stream_id, fault.code).to_bytes())
        stream = self._streams.open.get(fault.stream_id)
        if stream is not None:
            stream.state = State.CLOSED
            self._streams.forget(stream, was_reset=True)
            self._events.append(events.StreamReset(fault.stream_id, fault.code, fault.why))

    def _fail(self, fault: ConnectionFaultError) -> None:
        self.is_over = True
        self._queue.put(GoAway(self._streams.last_of_peer, fault.code, fault.why.encode()).to_bytes())
        self._events.append(events.ConnectionEnded(fault.code, fault.why))

    # ── frames ──

    def _take_frames(self) -> bool:
        """Process frames until there is none or an error ends a stream; return whether there is none."""
        try:
            while (frame := self._frames.next()) is not None:
                if not self.has_settings and not (isinstance(frame, Settings) and not frame.is_ack):
                    why = "the first frame is not SETTINGS"  # 3.4
                    raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, why)
                self._blocks.check_order(frame)
                self._takers[type(frame)](frame)
        except StreamFaultError as fault:
            self._fail_stream(fault)
            return False
        return True

    def _take_data(self, frame: Data) -> None:
        if not self._window.take(frame.size):
            raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "more than the connection's window")
        if not (frame.content or frame.ends_stream):
            self._strike()
        stream = self._streams.find(frame.stream_id, Step.RECEIVE_DATA)
        try:
            if stream is not None:
                self._take_content(stream, frame)
                return
        except StreamFaultError:
            self.give_back(0, frame.size)
            raise
        # Nobody will read it, and the other streams need the window (6.9).
        self.give_back(0, frame.size)

    def _take_content(self, stream: Stream, frame: Data) -> None:
        stream.step(Step.RECEIVE_DATA)
        if self._is_client and not stream.has_head:
            raise StreamFaultError(stream.id, ErrorCode.PROTOCOL_ERROR, "DATA before HEADERS")  # 8.1
        if not stream.receive_window.take(frame.size):
            raise StreamFaultError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "more than the stream's window")
        stream.receive(len(frame.content), ends=frame.ends_stream)
        if frame.size:
            self._events.append(events.DataReceived(stream.id, frame.content, frame.size))
        if frame.ends_stream:
            self._take_end(stream)

    def _take_end(self, stream: Stream) -> None:
        stream.step(Step.RECEIVE_END)
        self._events.append(events.StreamEnded(stream.id))
        if stream.is_closed:
            self._floods.reward()
            self._streams.forget(stream, was_reset=False)

    def _take_headers(self, frame: Headers) -> None:
        fields = self._blocks.begin(frame)
        if fields is not None:
            self._take_fields(frame, fields)

    def _take_continuation(self, frame: Continuation) -> None:
        head = self._blocks.head
        fields = self._blocks.go_on(frame)
        if fields is not None and head is not None:
            self._take_fields(head, fields)

    def _take_fields(self, head: Headers, fields: tuple[Field, ...]) -> None:
        stream = self._streams.begun(head.stream_id)
        if stream is None:
            return
        stream.step(Step.RECEIVE_HEADERS)
        if stream.has_head:
            self._take_trailers(stream, fields, ends_stream=head.ends_stream)
        else:
            self._take_head(stream, fields, ends_stream=head.ends_stream)
        if head.ends_stream:
            self._take_end(stream)

    def _take_trailers(self, stream: Stream, fields: tuple[Field, ...], *, ends_stream: bool) -> None:
        wrong = wrong_in_trailers(fields) or ("" if ends_stream else "trailers without END_STREAM")  # 8.1
        if wrong:
            raise StreamFaultError(stream.id, ErrorCode.PROTOCOL_ERROR, wrong)
        stream.receive(0, ends=True)
        self._events.append(events.TrailersReceived(stream.id, fields))

    def _take_head(self, stream: Stream, fields: tuple[Field, ...], *, ends_stream: bool) -> None:
        wrong = wrong_in_response(fields) if self._is_client else wrong_in_request(fields)
        if wrong:
            raise StreamFaultError(stream.id, ErrorCode.PROTOCOL_ERROR, wrong)
        if self._is_client and any(name == b":status" and value[:1] == b"1" for name, value in fields):
            if ends_stream:
                raise StreamFaultError(stream.id, ErrorCode.PROTOCOL_ERROR, "END_STREAM on a 1xx response")
            self._strike()
            return  # an interim response: the final one follows (8.1)
        stream.has_head = True
        try:
            stream.awaited_bytes = content_length(fields)
        except ValueError:
            why = "a content-length that is no number"
            raise StreamFaultError(stream.id, ErrorCode.PROTOCOL_ERROR, why) from None
        if (
            ends_stream and not self._is_client
        ):  # a response may have the length of content that it does not have (8.1.1)
            stream.receive(0, ends=True)
        self._events.append(events.HeadersReceived(stream.id, fields))

    def _take_reset(self, frame: Reset) -> None:
        stream = self._streams.find(frame.stream_id, Step.RECEIVE_RESET)
        self._strike()
        if stream is not None:
            stream.step(Step.RECEIVE_RESET)
            self._streams.forget(stream, was_reset=False)
            self._events.append(events.StreamReset(stream.id, frame.code, ""))

    def _take_settings(self, frame: Settings) -> None:
        if frame.is_ack:
            return
        self._strike()
        growth = self._peer.read(frame.pairs, from_server=self._is_client)
        self._streams.send_room = self._peer.initial_window
        for stream in self._streams.open.values():
            if not stream.send_window.grow(growth):
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "windows beyond their limit")
            if growth > 0:
                self._queue.window_grew(stream)
        self._queue.put(Settings((), is_ack=True).to_bytes())
        self.has_settings = True
        self._events.append(events.SettingsReceived())

    def _take_push_promise(self, _frame: PushPromise) -> None:
        # A client cannot push (8.4), and as a client we have turned it off (6.6).
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE")

    def _take_ping(self, frame: Ping) -> None:
        if not frame.is_ack:
            self._strike()
            self._queue.put(Ping(frame.content, is_ack=True).to_bytes())

    def _take_go_away(self, frame: GoAway) -> None:
        self.is_left = True
        text = frame.text.decode(errors="replace")
        self._events.append(events.GoAwayReceived(frame.last_stream_id, frame.code, text))

    def _take_window_update(self, frame: WindowUpdate) -> None:
        if not frame.stream_id:
            if not self._queue.window.grow(frame.increment):
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")
            return
        stream = self._streams.find(frame.stream_id, Step.RECEIVE_WINDOW)
        if stream is None:
            return
        if not stream.send_window.grow(frame.increment):
            raise StreamFaultError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")
        self._queue.window_grew(stream)

    def _take_nothing(self, _frame: Priority | Unknown) -> None:
        self._strike()
