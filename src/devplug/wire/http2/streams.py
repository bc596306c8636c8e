"""Streams: the table of their states with all steps between them (5.1), and what each has still to send.

The table is the same for both ends. Nobody pushes, so no stream is reserved.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.wire.http2.errors import ConnectionFaultError, ErrorCode, MisuseError, StreamFaultError
from devplug.wire.http2.flow_control import FIRST_WINDOW, ReceiveWindow, SendWindow

if TYPE_CHECKING:
    from collections.abc import Mapping


# ── the table ─────────────────────────────────────────────────────────────────────────────────────


class State(Enum):
    """The state of a stream (5.1)."""

    IDLE = auto()
    OPEN = auto()
    HALF_CLOSED_LOCAL = auto()
    """We have ended our side, the other end has not."""
    HALF_CLOSED_REMOTE = auto()
    """The other end has ended its side, we have not."""
    CLOSED = auto()

    # `Enum.__hash__` is written in Python, and each look-up in the table below would call it.
    __hash__ = object.__hash__


class Step(Enum):
    """A step in the life of a stream; the flag END_STREAM is a step of its own, after that of its frame."""

    SEND_HEADERS = auto()
    SEND_DATA = auto()
    SEND_END = auto()
    SEND_RESET = auto()
    RECEIVE_HEADERS = auto()
    RECEIVE_DATA = auto()
    RECEIVE_END = auto()
    RECEIVE_RESET = auto()
    RECEIVE_WINDOW = auto()

    __hash__ = object.__hash__


STEPS: Final[Mapping[tuple[State, Step], State]] = {
    (State.IDLE, Step.SEND_HEADERS): State.OPEN,
    (State.IDLE, Step.RECEIVE_HEADERS): State.OPEN,
    (State.OPEN, Step.SEND_HEADERS): State.OPEN,
    (State.OPEN, Step.SEND_DATA): State.OPEN,
    (State.OPEN, Step.SEND_END): State.HALF_CLOSED_LOCAL,
    (State.OPEN, Step.SEND_RESET): State.CLOSED,
    (State.OPEN, Step.RECEIVE_HEADERS): State.OPEN,
    (State.OPEN, Step.RECEIVE_DATA): State.OPEN,
    (State.OPEN, Step.RECEIVE_END): State.HALF_CLOSED_REMOTE,
    (State.OPEN, Step.RECEIVE_RESET): State.CLOSED,
    (State.OPEN, Step.RECEIVE_WINDOW): State.OPEN,
    (State.HALF_CLOSED_LOCAL, Step.SEND_RESET): State.CLOSED,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_HEADERS): State.HALF_CLOSED_LOCAL,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_DATA): State.HALF_CLOSED_LOCAL,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_END): State.CLOSED,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_RESET): State.CLOSED,
    (State.HALF_CLOSED_LOCAL, Step.RECEIVE_WINDOW): State.HALF_CLOSED_LOCAL,
    (State.HALF_CLOSED_REMOTE, Step.SEND_HEADERS): State.HALF_CLOSED_REMOTE,
    (State.HALF_CLOSED_REMOTE, Step.SEND_DATA): State.HALF_CLOSED_REMOTE,
    (State.HALF_CLOSED_REMOTE, Step.SEND_END): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.SEND_RESET): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_RESET): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_WINDOW): State.HALF_CLOSED_REMOTE,
    # The first two may have been sent before the other end knew that the stream had ended.
    (State.CLOSED, Step.RECEIVE_RESET): State.CLOSED,
    (State.CLOSED, Step.RECEIVE_WINDOW): State.CLOSED,
    (State.CLOSED, Step.SEND_RESET): State.CLOSED,
}
"""Every step that is allowed."""


class _Wrong(Struct, frozen=True):
    code: ErrorCode
    ends_connection: bool


_NEVER_BEGUN: Final = _Wrong(ErrorCode.PROTOCOL_ERROR, ends_connection=True)
_SAID_ALL: Final = _Wrong(ErrorCode.STREAM_CLOSED, ends_connection=False)
_IS_OVER: Final = _Wrong(ErrorCode.STREAM_CLOSED, ends_connection=True)

WRONG: Final[Mapping[tuple[State, Step], _Wrong]] = {
    (State.IDLE, Step.RECEIVE_DATA): _NEVER_BEGUN,
    (State.IDLE, Step.RECEIVE_END): _NEVER_BEGUN,
    (State.IDLE, Step.RECEIVE_RESET): _NEVER_BEGUN,
    (State.IDLE, Step.RECEIVE_WINDOW): _NEVER_BEGUN,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_HEADERS): _SAID_ALL,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_DATA): _SAID_ALL,
    (State.HALF_CLOSED_REMOTE, Step.RECEIVE_END): _SAID_ALL,
    (State.CLOSED, Step.RECEIVE_HEADERS): _IS_OVER,
    (State.CLOSED, Step.RECEIVE_DATA): _IS_OVER,
    (State.CLOSED, Step.RECEIVE_END): _IS_OVER,
}
"""Every step of the other end that is not allowed, and its error. Any other one is a mistake of our code."""


def after(state: State, step: Step, stream_id: int) -> State:
    """Return the state after a step; raises the error, or `MisuseError` for a mistake of our own code."""
    following = STEPS.get((state, step))
    if following is not None:
        return following
    wrong = WRONG.get((state, step))
    fault = f"{step.name} on a stream that is {state.name}"
    if wrong is None:
        raise MisuseError(f"stream {stream_id}: {fault}")
    if wrong.ends_connection:
        raise ConnectionFaultError(wrong.code, fault)
    raise StreamFaultError(stream_id, wrong.code, fault)


# ── streams ───────────────────────────────────────────────────────────────────────────────────────


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
        """Whether the other end's final header fields have come, so that further ones are trailers."""
        self.awaited_bytes: int | None = None
        """How many bytes of content are still to come; None if the other end has not said so."""
        self.contents: list[memoryview] = []
        """The content that still waits for windows."""
        self.ends_with: bytes | None = None
        """The block that follows the content and ends the stream; empty for an end without one."""
        self.is_waiting = False
        """Whether the stream is in the queue of those with content to send."""

    def step(self, step: Step) -> None:
        """Take a step in the life of the stream; raises as `after` does, and keeps its state then."""
        self.state = STEPS.get((self.state, step)) or after(self.state, step, self.id)

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

    Clients open streams with odd, rising numbers, and nobody opens others.
    """

    def __init__(self, *, is_client: bool, receive_size: int, limit: int) -> None:
        self._is_client = is_client
        self._receive_size = receive_size
        self._limit = limit
        self._begun = -1 if is_client else 0
        """The last one that was begun."""
        self._were_reset: dict[int, bool] = {}
        """The last streams that ended, and whether we reset them: frames of those may still come (5.1)."""
        self.send_room = FIRST_WINDOW
        """The first window of a new stream, by the other end's settings."""
        self.open: dict[int, Stream] = {}
        self.is_shut = False
        """Whether we have sent GOAWAY, so that no more streams are accepted (6.8)."""

    @property
    def last_of_peer(self) -> int:
        """The last stream that the other end opened and we accepted."""
        return 0 if self._is_client else self._begun

    @property
    def are_used_up(self) -> bool:
        """Whether all stream numbers are used."""
        return self._begun + 2 > LAST_STREAM_ID

    def begin(self) -> Stream:
        """Open a stream, as a client."""
        self._begun += 2
        return self._new(self._begun)

    def begun(self, stream_id: int) -> Stream | None:
        """Return the stream of HEADERS, a new one if they open one; None if they are to be ignored."""
        if (stream := self.open.get(stream_id)) is not None:
            return stream
        if self._is_client or not stream_id % 2:
            self.find(stream_id, Step.RECEIVE_DATA)  # neither HEADERS nor DATA can open a stream here
            return None
        if stream_id <= self._begun:
            if stream_id not in self._were_reset:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a stream number that was used before")
            return self.find(stream_id, Step.RECEIVE_HEADERS)
        if self.is_shut:
            return None
        self._begun = stream_id
        if len(self.open) >= self._limit:
            self._were_reset[stream_id] = True
            raise StreamFaultError(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")  # 5.1.2
        return self._new(stream_id)

    def find(self, stream_id: int, step: Step) -> Stream | None:
        """Return the stream of a frame, None if the frame is late; raises if it is not allowed (5.1)."""
        if (stream := self.open.get(stream_id)) is not None:
            return stream
        if stream_id > self._begun or not stream_id % 2:
            if not (self.is_shut and stream_id % 2):
                after(State.IDLE, step, stream_id)
        elif self._were_reset.get(stream_id) is False:
            after(State.CLOSED, step, stream_id)
        return None

    def forget(self, stream: Stream, *, was_reset: bool) -> None:
        """Remove a stream that has ended."""
        stream.contents.clear()
        stream.ends_with = None
        del self.open[stream.id]
        self._were_reset[stream.id] = was_reset
        if len(self._were_reset) > RECENT_STREAMS:
            del self._were_reset[next(iter(self._were_reset))]

    def _new(self, stream_id: int) -> Stream:
        stream = self.open[stream_id] = Stream(stream_id, self.send_room, self._receive_size)
        return stream
