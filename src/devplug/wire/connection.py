"""A connection of a socket that carries HTTP/2, at either end: `http2.connection` on an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.linux.notifier import Event
from devplug.wire.http2.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devplug.wire.http2.connection import Limits

_PORTION_BYTES: Final = 1 << 16
"""How much is passed to the socket at once; the rest waits, not copied, until the other end has read that."""

_UNREAD_LIMIT_BYTES: Final = 1 << 20
"""How many bytes of frames without flow control, as answers to PING, may wait for an end that reads
nothing."""

_LEAVING_SECONDS: Final = 0.5
"""How long the other end has, at our end, to read what it was sent."""


class SocketConnection(asyncio.Protocol):
    """One connection; lives from when its socket is given to the loop until `lost` is set.

    Subclasses have a function for each type of event in `_takers`.
    """

    def __init__(self, *, is_client: bool, limits: Limits) -> None:
        self.http = Connection(is_client=is_client, limits=limits)
        self.lost = Event()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_held = False
        """Whether the socket is full."""
        self._takers: Mapping[type, Callable[..., None]] = {}

    def content_sent(self, stream_id: int) -> None:
        """Called when all content of a stream was passed to the socket."""

    def ended(self) -> None:
        """Called when the connection is lost; nothing is received after that."""

    # ── called by the loop ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the socket, and send the preface."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.flush()

    def data_received(self, content: bytes) -> None:
        """Take what has come."""
        for event in self.http.receive(content, self._loop.time()):
            take = self._takers.get(type(event))
            if take is not None:
                take(event)
        self.flush()
        if self.http.is_over:
            self.close()

    def pause_writing(self) -> None:
        """Hold content back: the socket is full."""
        self._is_held = True

    def resume_writing(self) -> None:
        """Send content again."""
        self._is_held = False
        self.flush()

    def connection_lost(self, _: Exception | None) -> None:
        """Note the end."""
        self._transport = None
        self.lost.set()
        self.ended()

    # ── called by the ends ──

    @property
    def is_open(self) -> bool:
        """Whether anything can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def flush(self) -> None:
        """Send what may be sent now."""
        while self._transport is not None and self.http.has_output:
            content, sent = self.http.take(None if self._is_held else _PORTION_BYTES)
            if content and not self._transport.is_closing():
                self._transport.write(content)
                if self._transport.get_write_buffer_size() > _UNREAD_LIMIT_BYTES:
                    self._transport.abort()
            for stream_id in sent:
                self.content_sent(stream_id)
            if not content:
                return

    def close(self) -> None:
        """Close the socket when the other end has read what it was sent, or soon anyhow. Safe to repeat."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._loop.call_later(_LEAVING_SECONDS, self.abort)

    def abort(self) -> None:
        """Close the socket at once. Safe to repeat."""
        if self._transport is not None:
            self._transport.abort()
