"""The queue of what is to be sent: frames that go at once, and content that waits for windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.wire.http2.flow_control import SendWindow
from devplug.wire.http2.frames import Continuation, Data, Headers
from devplug.wire.http2.headers import NO_TABLE
from devplug.wire.http2.streams import Step

if TYPE_CHECKING:
    from devplug.wire.http2.flow_control import PeerSettings
    from devplug.wire.http2.streams import Stream

CHUNK_BYTES: Final = 1 << 14
"""The most content of one frame, even if the other end accepts more: a long frame delays other streams."""


class SendQueue:
    """The bytes for the other end, in the order in which they go; lives as long as the connection."""

    def __init__(self, peer: PeerSettings) -> None:
        self._peer = peer
        self._ready: list[bytes] = []
        self._waiting: list[Stream] = []
        self._has_sent_block = False
        self.window = SendWindow()
        """The window of the connection, for all streams together."""

    # ── what goes at once ──

    def put(self, frame: bytes) -> None:
        """Add a frame that no window holds back."""
        self._ready.append(frame)

    def put_block(self, stream_id: int, block: bytes, *, ends_stream: bool) -> None:
        """Add a block of header fields, in as many frames as it needs (4.3)."""
        if not self._has_sent_block:
            self._has_sent_block = True
            block = NO_TABLE + block
        limit = self._peer.frame_limit_bytes
        first, rest = block[:limit], block[limit:]
        self._ready.append(Headers(stream_id, first, ends_stream, ends_headers=not rest).to_bytes())
        while rest:
            part, rest = rest[:limit], rest[limit:]
            self._ready.append(Continuation(stream_id, part, ends_headers=not rest).to_bytes())

    # ── what waits for its windows ──

    def put_content(self, stream: Stream, content: bytes) -> None:
        """Add content of a stream; it is cut into frames when its turn comes."""
        stream.contents.append(memoryview(content))
        self._wait(stream)

    def put_end(self, stream: Stream, trailers: bytes) -> None:
        """Add the end of a stream after its content, with a block of trailers unless that is empty."""
        stream.ends_with = trailers
        self._wait(stream)

    def _wait(self, stream: Stream) -> None:
        if not stream.is_waiting:
            stream.is_waiting = True
            self._waiting.append(stream)

    def window_grew(self, stream: Stream) -> None:
        """Let a stream that was held back try again."""
        if stream.has_content:
            self._wait(stream)

    # ── taking it out ──

    @property
    def has_output(self) -> bool:
        """Whether anything is in the queue."""
        return bool(self._ready or self._waiting)

    def take(self, limit_bytes: int | None) -> tuple[bytes, list[Stream]]:
        """Return what may be sent now, and the streams whose content is complete with it.

        It has at most about `limit_bytes` of content; with None none at all, only frames that go at once.
        """
        done: list[Stream] = []
        if limit_bytes is not None and self._waiting:
            self._let_through(limit_bytes, done)
        frames, self._ready = self._ready, []
        return (frames[0] if len(frames) == 1 else b"".join(frames)), done

    def _let_through(self, limit_bytes: int, done: list[Stream]) -> None:
        """Give each stream one frame in its turn, until the limit or the windows are reached.

        A stream whose own window is used up leaves the queue, and comes back with `window_grew`; if the
        connection's is used up, all stay. A frame without content needs no window (6.9.1).
        """
        sent = 0
        stays: list[Stream] = []
        while self._waiting and sent < limit_bytes:
            stream = self._waiting.pop(0)
            if stream.is_closed:
                stream.is_waiting = False
                continue
            if stream.contents:
                size = min(
                    len(stream.contents[0]),
                    CHUNK_BYTES,
                    self._peer.frame_limit_bytes,
                    stream.send_window.room,
                    self.window.room,
                )
                if size <= 0 and len(stream.contents[0]):
                    if stream.send_window.room > 0:
                        stays.append(stream)
                    else:
                        stream.is_waiting = False
                    continue
                sent += size
                self._send(stream, size)
            if not stream.contents:
                self._end(stream)
                stream.is_waiting = False
                done.append(stream)
            else:
                self._waiting.append(stream)
        self._waiting[:0] = stays

    def _send(self, stream: Stream, size: int) -> None:
        content = stream.contents[0]
        if size == len(content):
            stream.contents.pop(0)
        else:
            stream.contents[0] = content[size:]
        ends = stream.ends_with == b"" and not stream.contents
        stream.step(Step.SEND_DATA)
        stream.send_window.room -= size
        self.window.room -= size
        self._ready.append(Data(stream.id, bytes(content[:size]), ends, size).to_bytes())
        if ends:
            stream.ends_with = None
            stream.step(Step.SEND_END)

    def _end(self, stream: Stream) -> None:
        """Send what follows the content of a stream, if its end was asked for."""
        if stream.ends_with is None:
            return
        if stream.ends_with:
            stream.step(Step.SEND_HEADERS)
            self.put_block(stream.id, stream.ends_with, ends_stream=True)
        else:
            stream.step(Step.SEND_DATA)
            self._ready.append(Data(stream.id, b"", ends_stream=True, size=0).to_bytes())
        stream.ends_with = None
        stream.step(Step.SEND_END)
