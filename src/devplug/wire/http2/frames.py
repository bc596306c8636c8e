"""Frames as values, and their conversion from and to bytes (4, 6).

Errors of a single frame are found here: its size, its padding, and whether it may be on stream 0.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from devplug.wire.http2.errors import ConnectionFaultError, ErrorCode, StreamFaultError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client: the connection preface (3.4)."""

FRAME_HEAD_BYTES: Final = 9
LEAST_FRAME_LIMIT_BYTES: Final = 1 << 14
"""The frame size that every end accepts (4.2)."""

_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS = range(5)
_PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = range(5, 10)

_END_STREAM: Final = 0x1
_ACK: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_WITH_PRIORITY: Final = 0x20

_HEAD: Final = struct.Struct(">BHBBI")
_NUMBER: Final = struct.Struct(">I")
_PAIR: Final = struct.Struct(">HI")
_STREAM_ID_MASK: Final = 0x7FFFFFFF
"""The highest bit is reserved, and ignored (4.1)."""


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


# ── the kinds ─────────────────────────────────────────────────────────────────────────────────────


class Data(Struct, frozen=True):
    """A piece of the content of a stream (6.1)."""

    stream_id: int
    content: bytes
    ends_stream: bool
    size: int
    """How much of the windows it uses: the content with its padding (6.9.1)."""

    def to_bytes(self) -> bytes:
        """Return the frame, without padding."""
        return _frame(_DATA, _END_STREAM if self.ends_stream else 0, self.stream_id, self.content)


class Headers(Struct, frozen=True):
    """The start of a block of header fields (6.2); its priority is ignored (5.3.2)."""

    stream_id: int
    fragment: bytes
    ends_stream: bool
    ends_headers: bool

    def to_bytes(self) -> bytes:
        """Return the frame, without padding."""
        flags = (_END_STREAM if self.ends_stream else 0) | (_END_HEADERS if self.ends_headers else 0)
        return _frame(_HEADERS, flags, self.stream_id, self.fragment)


class Priority(Struct, frozen=True):
    """The priority of a stream, which is deprecated (6.3)."""

    stream_id: int


class Reset(Struct, frozen=True):
    """The end of a stream, at once (6.4)."""

    stream_id: int
    code: int

    def to_bytes(self) -> bytes:
        """Return the frame."""
        return _frame(_RST_STREAM, 0, self.stream_id, _NUMBER.pack(self.code))


class Settings(Struct, frozen=True):
    """The settings of the sender, as pairs of identifier and value; or an acknowledgement (6.5)."""

    pairs: tuple[tuple[int, int], ...]
    is_ack: bool = False

    def to_bytes(self) -> bytes:
        """Return the frame."""
        content = b"".join(_PAIR.pack(*pair) for pair in self.pairs)
        return _frame(_SETTINGS, _ACK if self.is_ack else 0, 0, content)


class PushPromise(Struct, frozen=True):
    """The announcement of a stream that the server opens (6.6)."""

    stream_id: int


class Ping(Struct, frozen=True):
    """A test whether the other end is alive, or its answer (6.7)."""

    content: bytes
    is_ack: bool = False

    def to_bytes(self) -> bytes:
        """Return the frame."""
        return _frame(_PING, _ACK if self.is_ack else 0, 0, self.content)


class GoAway(Struct, frozen=True):
    """The announced end of a connection: the last stream that was processed, and why (6.8)."""

    last_stream_id: int
    code: int
    text: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the frame."""
        return _frame(_GOAWAY, 0, 0, _NUMBER.pack(self.last_stream_id) + _NUMBER.pack(self.code) + self.text)


class WindowUpdate(Struct, frozen=True):
    """How much more may be sent on a stream, or on stream 0: on all together (6.9)."""

    stream_id: int
    increment: int

    def to_bytes(self) -> bytes:
        """Return the frame."""
        return _frame(_WINDOW_UPDATE, 0, self.stream_id, _NUMBER.pack(self.increment))


class Continuation(Struct, frozen=True):
    """A further part of a block of header fields (6.10)."""

    stream_id: int
    fragment: bytes
    ends_headers: bool

    def to_bytes(self) -> bytes:
        """Return the frame."""
        flags = _END_HEADERS if self.ends_headers else 0
        return _frame(_CONTINUATION, flags, self.stream_id, self.fragment)


class Unknown(Struct, frozen=True):
    """A frame of an unknown type, to be ignored (5.5)."""

    kind: int
    stream_id: int


Frame: TypeAlias = (
    Data
    | Headers
    | Priority
    | Reset
    | Settings
    | PushPromise
    | Ping
    | GoAway
    | WindowUpdate
    | Continuation
    | Unknown
)


# ── bytes → frames ────────────────────────────────────────────────────────────────────────────────


def _on_stream(name: str, stream_id: int) -> None:
    if not stream_id:
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"{name} on stream 0")


def _on_connection(name: str, stream_id: int) -> None:
    if stream_id:
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"{name} on a stream")


def _sized(name: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"{name} of {len(payload)} bytes")


def _unpadded(name: str, flags: int, payload: bytes) -> bytes:
    """Return the payload without its padding, which must be shorter than the payload (6.1, 6.2)."""
    if not flags & _PADDED:
        return payload
    if not payload:
        raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"{name} without the length of its padding")
    if payload[0] >= len(payload):
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"{name} with more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def _read_data(flags: int, stream_id: int, payload: bytes) -> Data:
    _on_stream("DATA", stream_id)
    return Data(stream_id, _unpadded("DATA", flags, payload), bool(flags & _END_STREAM), len(payload))


def _read_headers(flags: int, stream_id: int, payload: bytes) -> Headers:
    _on_stream("HEADERS", stream_id)
    fragment = _unpadded("HEADERS", flags, payload)
    if flags & _WITH_PRIORITY:
        if len(fragment) < 5:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without its priority")
        fragment = fragment[5:]
    return Headers(stream_id, fragment, bool(flags & _END_STREAM), bool(flags & _END_HEADERS))


def _read_priority(_flags: int, stream_id: int, payload: bytes) -> Priority:
    _on_stream("PRIORITY", stream_id)
    if len(payload) != 5:
        raise StreamFaultError(stream_id, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes")
    return Priority(stream_id)


def _read_reset(_flags: int, stream_id: int, payload: bytes) -> Reset:
    _on_stream("RST_STREAM", stream_id)
    _sized("RST_STREAM", payload, 4)
    return Reset(stream_id, _NUMBER.unpack(payload)[0])


def _read_settings(flags: int, stream_id: int, payload: bytes) -> Settings:
    _on_connection("SETTINGS", stream_id)
    if flags & _ACK:
        _sized("SETTINGS with ACK", payload, 0)
    elif len(payload) % _PAIR.size:
        raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    return Settings(tuple(_PAIR.iter_unpack(payload)), bool(flags & _ACK))


def _read_push_promise(_flags: int, stream_id: int, _payload: bytes) -> PushPromise:
    _on_stream("PUSH_PROMISE", stream_id)
    return PushPromise(stream_id)


def _read_ping(flags: int, stream_id: int, payload: bytes) -> Ping:
    _on_connection("PING", stream_id)
    _sized("PING", payload, 8)
    return Ping(payload, bool(flags & _ACK))


def _read_go_away(_flags: int, stream_id: int, payload: bytes) -> GoAway:
    _on_connection("GOAWAY", stream_id)
    if len(payload) < 8:
        raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
    last, code = struct.unpack_from(">II", payload)
    return GoAway(last & _STREAM_ID_MASK, code, payload[8:])


def _read_window_update(_flags: int, stream_id: int, payload: bytes) -> WindowUpdate:
    _sized("WINDOW_UPDATE", payload, 4)
    increment = _NUMBER.unpack(payload)[0] & _STREAM_ID_MASK
    if not increment:
        if stream_id:
            raise StreamFaultError(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
    return WindowUpdate(stream_id, increment)


def _read_continuation(flags: int, stream_id: int, payload: bytes) -> Continuation:
    _on_stream("CONTINUATION", stream_id)
    return Continuation(stream_id, payload, bool(flags & _END_HEADERS))


_READERS: Final[Mapping[int, Callable[[int, int, bytes], Frame]]] = {
    _DATA: _read_data,
    _HEADERS: _read_headers,
    _PRIORITY: _read_priority,
    _RST_STREAM: _read_reset,
    _SETTINGS: _read_settings,
    _PUSH_PROMISE: _read_push_promise,
    _PING: _read_ping,
    _GOAWAY: _read_go_away,
    _WINDOW_UPDATE: _read_window_update,
    _CONTINUATION: _read_continuation,
}


class FrameReader:
    """A reader of frames from received bytes; it keeps the bytes of an incomplete frame."""

    def __init__(self, *, wants_preface: bool) -> None:
        self._wants_preface = wants_preface
        self._kept = b""
        self._start = 0
        """Where in `_kept` the next frame begins."""

    def feed(self, content: bytes) -> None:
        """Take received bytes, of any length."""
        if self._start < len(self._kept):
            content = self._kept[self._start :] + content
        self._kept = content
        self._start = 0

    def next(self) -> Frame | None:
        """Return the next complete frame, None if there is none.

        Raises `StreamFaultError` for an error that ends one stream, `ConnectionFaultError` for any other.
        """
        if self._wants_preface:
            self._read_preface()
            if self._wants_preface:
                return None
        kept, start = self._kept, self._start
        head_end = start + FRAME_HEAD_BYTES
        if len(kept) < head_end:
            return None
        high, low, kind, flags, stream_id = _HEAD.unpack_from(kept, start)
        size = high << 16 | low
        if size > LEAST_FRAME_LIMIT_BYTES:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        end = head_end + size
        if len(kept) < end:
            return None
        self._start = end
        read = _READERS.get(kind)
        stream_id &= _STREAM_ID_MASK
        return Unknown(kind, stream_id) if read is None else read(flags, stream_id, kept[head_end:end])

    def _read_preface(self) -> None:
        said = self._kept[: len(PREFACE)]
        if not PREFACE.startswith(said):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
        if len(said) == len(PREFACE):
            self._wants_preface = False
            self._start = len(PREFACE)
