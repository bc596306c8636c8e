"""A connection of the server: requests are read, handed over and answered, within limits, until it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Final

import h11

from devplug.errors import IncidentError
from devplug.linux.shares import Standing
from devplug.web.messages import Page, Stream, body_of, head_of, http_date, reason_of, refusal, request_of
from devplug.web.sockets import linger, send

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Hashable

    from devplug.web.messages import Answer, Handler, Limits, Request

_log: Final = logging.getLogger(__name__)

_DRAIN_BYTES: Final = 4096
_CLOSE_SECONDS: Final = 0.1
"""For a handler's iterator to end when it is closed."""


class _DroppedError(Exception):
    """The answer under way cannot be brought to its end."""


class Connection:
    """A connection and the state of its exchange; lasts as long as its `run`, which closes the socket."""

    def __init__(
        self,
        opened: socket.socket,
        handle: Handler,
        limits: Limits,
        *,
        peer: Hashable,
        may_stream: Callable[[], bool],
        is_local: bool,
        is_loopback: bool,
    ) -> None:
        self.peer = peer
        """The address or the process at the other end."""
        self.is_streaming = False
        """Whether it sends an answer without an end."""
        self._may_stream = may_stream
        self._socket = opened
        self._handle = handle
        self._limits = limits
        self._is_local = is_local
        self._is_loopback = is_loopback
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes)
        self._loop = asyncio.get_running_loop()
        self._between: asyncio.Timeout | None = None
        """Set while nothing of the next request is there."""
        self._next_chunk: asyncio.Timeout | None = None
        """Set while the next piece of a stream is waited for."""
        self._is_ending = False
        self._is_gone = False
        """Whether the other end has closed."""
        self._last_answer: float | None = None
        self._is_answering = False
        self._since = self._loop.time()
        """When it last came a step further: the connection, a whole request, an answer."""

    @property
    def standing(self) -> Standing:
        """What decides whether it makes room for another connection, with the time of its last progress.

        It has rank 0 without a whole request, 1 between two requests, 2 while an answer is sent, 3 while a
        stream is.
        """
        if self.is_streaming:
            return Standing(self.peer, 3, self._since)
        if self._is_answering:
            return Standing(self.peer, 2, self._since)
        is_idle = self._between is not None and self._last_answer is not None and not self._is_ending
        return Standing(self.peer, 1 if is_idle else 0, self._since)

    def end(self) -> None:
        """End it as soon as that breaks no answer: at once where nothing is under way."""
        self._is_ending = True
        _expire(self._between)
        _expire(self._next_chunk)

    def close(self) -> None:
        """Close the socket, whatever goes on. Safe to repeat."""
        self._socket.close()

    async def run(self) -> None:
        """Answer requests until either end has enough. Raises nothing but cancellation."""
        try:
            while not self._is_ending and await self._exchange():
                self._http.start_next_cycle()
                self._since = self._last_answer = self._loop.time()
                # Else a client that sends faster than we answer has the loop for itself.
                await asyncio.sleep(0)
            await self._leave()
        except (OSError, _DroppedError):
            pass  # it is gone, or it reads too slowly
        except Exception:  # noqa: BLE001 -- ours to mend; the server goes on
            _log.exception("a connection was dropped because of a bug in devplug")
        finally:
            self.close()

    async def _leave(self) -> None:
        if not (self._is_gone or self._is_ending):
            await linger(self._socket, seconds=self._limits.linger_seconds)

    # ── a request ──

    async def _exchange(self) -> bool:
        """Answer one request; tell whether another may follow."""
        try:
            head = await self._read_head()
            if head is None:
                return False
            is_head = head.method == b"HEAD"
            asked = self._judged(head)
            if isinstance(asked, Page):
                await self._refuse(asked, is_head=is_head)
                return False
            self._http.next_event()  # the end of the request, which has no body
        except h11.RemoteProtocolError as error:
            await self._refuse(refusal(error.error_status_hint))
            return False
        self._is_answering, self._since = True, self._loop.time()
        try:
            await self._answer(asked, is_head=is_head)
        finally:
            self._is_answering = False
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _read_head(self) -> h11.Request | None:
        """Read the next request's line and headers; None if there will be none."""
        must_begin = self._last_answer is None or bool(self._http.trailing_data[0])
        seconds = self._limits.header_seconds if must_begin else self._limits.idle_seconds
        try:
            async with asyncio.timeout(seconds) as scope:
                while (event := self._http.next_event()) is h11.NEED_DATA:
                    is_begun = bool(self._http.trailing_data[0])
                    self._between = None if is_begun else scope
                    await self._receive()
                    if not (is_begun or must_begin):
                        scope.reschedule(self._loop.time() + self._limits.header_seconds)
        except TimeoutError:
            if self._http.trailing_data[0]:
                await self._refuse(refusal(408))
            return None
        finally:
            self._between = None
        if isinstance(event, h11.Request):
            return event
        self._is_gone = True
        return None

    async def _receive(self) -> None:
        # Never more than the limit: h11 looks at it only while a head is incomplete.
        room = self._limits.header_bytes + 1 - len(self._http.trailing_data[0])
        self._http.receive_data(await self._loop.sock_recv(self._socket, room))

    def _judged(self, head: h11.Request) -> Request | Page:
        return request_of(
            head.method.decode("latin-1"),
            head.target.decode("latin-1"),
            head.http_version.decode("latin-1"),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            is_local=self._is_local,
            is_loopback=self._is_loopback,
        )

    # ── its answer ──

    async def _answer(self, asked: Request, *, is_head: bool) -> None:
        try:
            answer = await self._handle(asked)
            if isinstance(answer, Stream) and not self._may_stream():
                await _close(answer.chunks)
                answer = refusal(503)
            body = body_of(answer)
            head = self._head(answer, body)
        except Exception as error:  # noqa: BLE001 -- whatever it is, only its number leaves this process
            answer = Page(f"{_incident(asked, error)}\n", status=500)
            body = body_of(answer)
            head = self._head(answer, body)
        if isinstance(answer, Page):
            await self._send_page(head, body, is_head=is_head)
            return
        self.is_streaming = True
        try:
            await self._send(head)
            if not is_head:
                await self._send_chunks(asked, answer.chunks)
            await self._send(h11.EndOfMessage())
        finally:
            self.is_streaming = False
            await _close(answer.chunks)

    async def _send_chunks(self, asked: Request, chunks: AsyncIterator[bytes]) -> None:
        """Send what the iterator yields until it ends, the reader goes or the server ends."""
        self._loop.add_reader(self._socket, self._drain)
        try:
            while (chunk := await self._chunk(asked, chunks)) is not None:
                await self._send(h11.Data(chunk))
                await asyncio.sleep(0)  # else an iterator that never waits has the loop for itself
        finally:
            self._loop.remove_reader(self._socket)

    async def _chunk(self, asked: Request, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next piece, or None if there will be none; raises `_DroppedError` if it failed."""
        # No time is set yet: `_drain` and `end` set it to now, when the wait is over.
        scope = self._next_chunk = asyncio.timeout(None)
        try:
            async with scope:
                return None if self._is_ending or self._is_gone else await anext(chunks, None)
        except Exception as error:  # noqa: BLE001 -- as above
            if not (scope.expired() and isinstance(error, TimeoutError)):
                _incident(asked, error)
                raise _DroppedError from None  # the reader sees that the end is missing
        finally:
            self._next_chunk = None
        return None

    def _drain(self) -> None:
        """Throw away what the reader of a stream sends; that it has closed is what matters."""
        try:
            if self._socket.recv(_DRAIN_BYTES):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass  # reset: gone as well
        self._is_gone = True
        self._loop.remove_reader(self._socket)
        _expire(self._next_chunk)

    # ── on the wire ──

    async def _refuse(self, page: Page, *, is_head: bool = False) -> None:
        body = body_of(page)
        await self._send_page(self._head(page, body, is_last=True), body, is_head=is_head)

    async def _send_page(self, head: h11.Response, body: bytes, *, is_head: bool) -> None:
        await self._send(head, *(() if is_head else (h11.Data(body),)), h11.EndOfMessage())

    def _head(self, answer: Answer, body: bytes, *, is_last: bool = False) -> h11.Response:
        status = answer.status if isinstance(answer, Page) else 200
        ends = is_last or self._is_ending or not isinstance(answer, Page)
        return h11.Response(
            status_code=status,
            reason=reason_of(status),
            headers=head_of(answer, len(body), http_date(time.gmtime()), is_last=ends),
        )

    async def _send(self, *events: h11.Event) -> None:
        parts: list[bytes] = []
        for event in events:
            parts += self._http.send_with_data_passthrough(event) or ()
        await send(self._socket, parts, seconds=self._limits.write_seconds)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    """Close an async generator; other iterators may do without."""
    close = getattr(chunks, "aclose", None)
    if close is None:
        return
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await close()
    except Exception:  # noqa: BLE001 -- as above
        _log.exception("a response stream raised an error while it was closed")


def _incident(asked: Request, error: Exception) -> IncidentError:
    incident = IncidentError(os.urandom(3).hex())
    facts = {"path": asked.path, "incident": incident.incident}
    _log.error("a request failed", extra=facts, exc_info=error)
    return incident


def _expire(scope: asyncio.Timeout | None) -> None:
    if scope is not None and not scope.expired():
        scope.reschedule(asyncio.get_running_loop().time())
