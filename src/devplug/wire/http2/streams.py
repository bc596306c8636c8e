"""Streams: where each is in its life, its windows, what it has still to send; and which of them there are."""

from __future__ import annotations

from collections import deque
from typing import Final

from devplug.wire.http2.faults import ConnectionFaultError, ErrorCode, StreamFaultError
from devplug.wire.http2.states import State, Step, after
from devplug.wire.http2.windows import FIRST_WINDOW, ReceiveWindow, SendWindow

__all__ = ["Stream", "Streams"]

LAST_STREAM_ID: Final = 0x7FFFFFFF
RECENT_STREAMS: Final = 100


class Stream:
    """A stream from its first frame to its last; belongs to the connection, which forgets it at its end."""

    __slots__ = (
        "awaited_bytes",
        "contents",
        "ends_with",
        "has_head",
        "id",
        "is_waiting",
        "receive_window",
        "send_window",
        "state",
    )

    def __init__(self, stream_id: int, send_room: int, receive_size: int) -> None:
        self.id = stream_id
        self.state = State.IDLE
        self.send_window = SendWindow(send_room)
        self.receive_window = ReceiveWindow(receive_size)
        self.has_head = False
        """Whether the other end's final head is there, so that other fields are trailers."""
        self.awaited_bytes: int | None = None
        """How much content is to come, where the other end has said so."""
        self.contents: deque[memoryview] = deque()
        """What the windows have not let through yet."""
        self.ends_with: bytes | None = None
        """The block that follows the content and ends the stream; empty for an end without one."""
        self.is_waiting = False
        """Whether it stands in the queue of those that have content to send."""

    def step(self, step: Step) -> None:
        """Take a step in the life of the stream; raises as `states.after`, and stays where it was."""
        self.state = after(self.state, step, self.id)

    def receive(self, size: int, *, ends: bool) -> None:
        """Note that so much content has come; raises if more was promised, or less at the end (8.1.1)."""
        if self.awaited_bytes is not None:
            self.awaited_bytes -= size
            if self.awaited_bytes < 0 or (ends and self.awaited_bytes):
                why = "another length of content than promised"
                raise StreamFaultError(self.id, ErrorCode.PROTOCOL_ERROR, why)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can come any more, from either end."""
        return self.state is State.CLOSED

    @property
    def has_content(self) -> bool:
        """Whether something waits for the windows."""
        return bool(self.contents) or self.ends_with is not None


class Streams:
    """The streams of a connection, and the rules of their numbers (5.1.1); lives as long as the connection.

    Clients begin the odd ones, in rising order, and nobody begins others.
    """

    def __init__(self, *, is_client: bool, receive_size: int, limit: int) -> None:
        self._is_client = is_client
        self._receive_size = receive_size
        self._limit = limit
        self._begun = -1 if is_client else 0
        """The last one that was begun."""
        self._were_reset: dict[int, bool] = {}
        """The last ones that ended, and whether we reset them: of those, frames may be under way (5.1)."""
        self.send_room = FIRST_WINDOW
        """What the window of a new one is, by the other end's settings."""
        self.open: dict[int, Stream] = {}
        self.is_shut = False
        """Whether no more are taken, because we have said so (6.8)."""

    @property
    def last_of_peer(self) -> int:
        """The last one that the other end began and we took."""
        return 0 if self._is_client else self._begun

    @property
    def are_used_up(self) -> bool:
        """Whether there are no more numbers."""
        return self._begun + 2 > LAST_STREAM_ID

    def begin(self) -> Stream:
        """Begin a stream, as a client."""
        self._begun += 2
        return self._new(self._begun)

    def begun(self, stream_id: int) -> Stream | None:
        """Return the stream that a head or trailers came on, a new one if it began one; None to ignore it."""
        if (stream := self.open.get(stream_id)) is not None:
            return stream
        if self._is_client or not stream_id % 2:
            self.find(stream_id, Step.RECEIVE_DATA)  # a head could begin nothing here, as little as content
            return None
        if stream_id <= self._begun:
            if stream_id not in self._were_reset:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a stream with a number from before")
            return self.find(stream_id, Step.RECEIVE_HEADERS)
        if self.is_shut:
            return None
        self._begun = stream_id
        if len(self.open) >= self._limit:
            self._were_reset[stream_id] = True
            raise StreamFaultError(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")  # 5.1.2
        return self._new(stream_id)

    def find(self, stream_id: int, step: Step) -> Stream | None:
        """Return the stream that a frame is about, None if the frame is late; raises if it is wrong (5.1)."""
        if (stream := self.open.get(stream_id)) is not None:
            return stream
        if stream_id > self._begun or not stream_id % 2:
            if not (self.is_shut and stream_id % 2):
                after(State.IDLE, step, stream_id)
        elif self._were_reset.get(stream_id) is False:
            after(State.CLOSED, step, stream_id)
        return None

    def forget(self, stream: Stream, *, was_reset: bool) -> None:
        """Take out a stream that has ended."""
        stream.contents.clear()
        stream.ends_with = None
        del self.open[stream.id]
        self._were_reset[stream.id] = was_reset
        if len(self._were_reset) > RECENT_STREAMS:
            del self._were_reset[next(iter(self._were_reset))]

    def _new(self, stream_id: int) -> Stream:
        stream = self.open[stream_id] = Stream(stream_id, self.send_room, self._receive_size)
        return stream
