"""gRPC made by hand, as much as a kubelet's ends need: it can be cut, held back or left unread anywhere.

What a library would do by itself at the end of a process, it does not: a connection that is aborted says
nothing, as after SIGKILL.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import unquote

from devplug.errors import RemoteError
from torture.catalogue import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from devplug.wire.deviceplugin import Method

Request = TypeVar("Request")
Response = TypeVar("Response")

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_CONTINUATION: Final = 9
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_CANCEL: Final = 8

CODES: Final = {
    "OK": 0,
    "Canceled": 1,
    "Unknown": 2,
    "InvalidArgument": 3,
    "DeadlineExceeded": 4,
    "NotFound": 5,
    "ResourceExhausted": 8,
    "FailedPrecondition": 9,
    "Unimplemented": 12,
    "Internal": 13,
    "Unavailable": 14,
}
_NAMES: Final = {code: name for name, code in CODES.items()}


@dataclass(eq=False, slots=True)
class Exchange:
    """One call on a connection: what came of it so far."""

    connection: Connection
    number: int
    messages: deque[bytes] = field(default_factory=deque)
    is_over: bool = False
    failure: RemoteError | None = None
    content: bytearray = field(default_factory=bytearray)
    """Of a message that is not whole yet."""
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, content: bytes) -> None:
        """Add what came, and cut whole messages off."""
        self.content += content
        while len(self.content) >= 5 and len(self.content) >= 5 + (size := _number_of(self.content[1:5])):
            self.messages.append(bytes(self.content[5 : 5 + size]))
            del self.content[: 5 + size]
        self._came.set()

    def end(self, failure: RemoteError | None = None) -> None:
        """Note that nothing comes any more."""
        if not self.is_over:
            self.is_over, self.failure = True, failure
            self._came.set()

    async def message(self) -> bytes | None:
        """Wait for the next message; None at the end in order. Raises `RemoteError` at any other end."""
        while not self.messages:
            if self.is_over:
                if self.failure is not None:
                    raise self.failure
                return None
            self._came.clear()
            await self._came.wait()
        return self.messages.popleft()

    async def status(self) -> str:
        """Wait for the end, past all messages; return its status and text."""
        try:
            while await self.message() is not None:
                pass
        except RemoteError as error:
            return f"{error.status} {error.text}"
        return "OK"

    def cancel(self) -> None:
        """Say that the rest is not wanted."""
        self.connection.forget(self.number)
        self.end(RemoteError("Canceled", "cancelled here"))


class Connection(asyncio.Protocol):
    """One end of an HTTP/2 connection. With `on_request` it is the server's end, else the client's.

    `on_request` is told the exchange and the one message of each call that came.
    """

    def __init__(self, on_request: Callable[[Exchange, bytes], None] | None = None) -> None:
        self.is_settled = asyncio.Event()
        """Whether the other end has spoken HTTP/2."""
        self.is_closed = asyncio.Event()
        self.grants = True
        """Whether the other end may send more for what was read: otherwise its window runs dry."""
        self.on_bytes: Callable[[], None] | None = None
        """Called as soon as anything came, before it is read."""
        self._on_request = on_request
        self._exchanges: dict[int, Exchange] = {}
        self._numbers: Iterator[int] = itertools.count(1, 2)
        self._buffer = bytearray()
        self._block = b""
        self._table: list[tuple[str, str]] = []
        self._transport: asyncio.Transport | None = None
        self._preface_bytes = 0 if on_request is None else len(_PREFACE)

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        preface = b"" if self._on_request else _PREFACE
        self._write(preface + _frame(_SETTINGS, 0, 0, b""))

    def data_received(self, data: bytes) -> None:
        if self.on_bytes is not None:
            self.on_bytes()
        self._buffer += data
        if self._preface_bytes:
            if len(self._buffer) < self._preface_bytes:
                return
            del self._buffer[: self._preface_bytes]
            self._preface_bytes = 0
        while len(self._buffer) >= 9 and len(self._buffer) >= 9 + (size := _number_of(self._buffer[:3])):
            kind, flags, stream = self._buffer[3], self._buffer[4], _number_of(self._buffer[5:9])
            content = bytes(self._buffer[9 : 9 + size])
            del self._buffer[: 9 + size]
            self._take(kind, flags, stream, content)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for exchange in self._exchanges.values():
            exchange.end(RemoteError("Unavailable", "the connection was lost"))
        self._exchanges.clear()
        self.is_closed.set()
        self.is_settled.set()

    # ── calling ──

    def send(self, method: Method[Request, Any], request: Request) -> Exchange:
        """Begin a call; nothing is waited for."""
        exchange = Exchange(self, next(self._numbers))
        if self.is_closed.is_set():
            exchange.end(RemoteError("Unavailable", "the connection was lost"))
            return exchange
        self._exchanges[exchange.number] = exchange
        content = method.request.encode(request)
        self._write(
            _frame(_HEADERS, _END_HEADERS, exchange.number, _request_headers(method.path))
            + _frame(_DATA, _END_STREAM, exchange.number, _message(content)),
        )
        return exchange

    async def call(self, method: Method[Request, Response], request: Request, seconds: float = 5) -> Response:
        """Call a method with one answer. Raises `RemoteError`, and `TimeoutError` after these seconds."""
        async with asyncio.timeout(seconds * PATIENCE.get()):
            content = await self.send(method, request).message()
        if content is None:
            raise RemoteError("Internal", "an end without an answer")
        return method.response.decode(content)

    def forget(self, number: int) -> None:
        """Reset one stream."""
        if self._exchanges.pop(number, None) is not None:
            self._write(_frame(_RST_STREAM, 0, number, _CANCEL.to_bytes(4, "big")))

    # ── answering ──

    def answer(self, number: int, content: bytes) -> None:
        """Answer a call with one message, and end it."""
        self._write(
            _frame(_HEADERS, _END_HEADERS, number, _ANSWER_HEADERS)
            + _frame(_DATA, 0, number, _message(content))
            + _frame(_HEADERS, _END_HEADERS | _END_STREAM, number, _fields({"grpc-status": "0"})),
        )

    def refuse(self, number: int, status: str, text: str) -> None:
        """Answer a call with a status and its text."""
        trailers = _fields({"grpc-status": str(CODES[status]), "grpc-message": text})
        self._write(_frame(_HEADERS, _END_HEADERS | _END_STREAM, number, _ANSWER_HEADERS + trailers))

    # ── ending, and reading ──

    def abort(self) -> None:
        """Let go of the connection without a word, as the end of a process does."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing more, not even what the kernel has already."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on, and grant what was withheld."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def grant(self, exchange: Exchange, size_bytes: int) -> None:
        """Let the other end send so many bytes more, of this call and of all."""
        content = size_bytes.to_bytes(4, "big")
        self._write(
            _frame(_WINDOW_UPDATE, 0, 0, content) + _frame(_WINDOW_UPDATE, 0, exchange.number, content)
        )

    # ── frames ──

    def _write(self, content: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(content)

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        exchange = self._exchanges.get(stream)
        if kind == _SETTINGS and not flags & _ACK:
            self.is_settled.set()
            self._write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._write(_frame(_PING, _ACK, 0, content))
        elif kind == _RST_STREAM and exchange is not None:
            self._end(exchange, RemoteError("Canceled", f"reset with {_number_of(content)}"))
        elif kind in {_HEADERS, _CONTINUATION}:
            self._block += content
            if flags & _END_HEADERS:
                block, self._block = self._block, b""
                self._take_headers(stream, block, is_end=bool(flags & _END_STREAM))
        elif kind == _DATA:
            self._take_data(stream, content, is_end=bool(flags & _END_STREAM))

    def _take_headers(self, stream: int, block: bytes, *, is_end: bool) -> None:
        if self._on_request is not None:
            self._exchanges[stream] = Exchange(self, stream)
            return
        fields = dict(_decoded(block, self._table))
        exchange = self._exchanges.get(stream)
        if is_end and exchange is not None:
            status = int(fields.get("grpc-status", "2"))
            text = unquote(fields.get("grpc-message", ""))
            self._end(exchange, None if status == 0 else RemoteError(_NAMES.get(status, str(status)), text))

    def _take_data(self, stream: int, content: bytes, *, is_end: bool) -> None:
        if (exchange := self._exchanges.get(stream)) is None:
            return
        if content and self.grants:
            self.grant(exchange, len(content))
        exchange.take(content)
        if self._on_request is not None and is_end:
            self._exchanges.pop(stream)
            self._on_request(exchange, exchange.messages.popleft() if exchange.messages else b"")

    def _end(self, exchange: Exchange, failure: RemoteError | None) -> None:
        self._exchanges.pop(exchange.number, None)
        exchange.end(failure)


async def dialled(path: Path) -> Connection:
    """Return a connection to the socket at `path`; raises `OSError`. It may not speak HTTP/2 yet."""
    _, connection = await asyncio.get_running_loop().create_unix_connection(Connection, str(path))
    return connection


def listening_socket(path: Path, *, backlog: int | None = 128) -> socket.socket:
    """Return a socket bound to `path`; listening there, unless `backlog` is None."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind(str(path))
    if backlog is not None:
        listener.listen(backlog)
    return listener


# ── bytes ──


def _number_of(content: bytes | bytearray) -> int:
    return int.from_bytes(content, "big")


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def _message(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4, "big") + content


def _fields(fields: dict[str, str]) -> bytes:
    """Return a block of literal fields that nobody is to remember (RFC 7541, 6.2.2)."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    content = text.encode()
    rest = len(content) - 0x7F
    if rest < 0:
        return bytes([len(content)]) + content
    length = bytearray(b"\x7f")
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(length) + bytes([rest]) + content


_ANSWER_HEADERS: Final = b"\x88" + _fields({"content-type": "application/grpc"})


def _request_headers(path: str) -> bytes:
    return _fields(
        {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "user-agent": "grpc-go/1.79.3",
            "te": "trailers",
        },
    )


def _decoded(block: bytes, table: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a block; those with a name of the static table under its number."""
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _prefixed(block, at, 7)
            yield table[index - 62] if index > 61 else (f"#{index}", "")
            continue
        if first & 0xE0 == 0x20:
            _, at = _prefixed(block, at, 5)
            continue
        is_kept = bool(first & 0x40)
        index, at = _prefixed(block, at, 6 if is_kept else 4)
        if index:
            name = table[index - 62][0] if index > 61 else f"#{index}"
        else:
            name, at = _decoded_text(block, at)
        value, at = _decoded_text(block, at)
        if is_kept:
            table.insert(0, (name, value))
        yield name, value


def _prefixed(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a number with a prefix of so many bits, and where it ends (RFC 7541, 5.1)."""
    limit = 2**bits - 1
    number = block[at] & limit
    at += 1
    if number < limit:
        return number, at
    shift = 0
    while True:
        number += (block[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not block[at - 1] & 0x80:
            return number, at


def _decoded_text(block: bytes, at: int) -> tuple[str, int]:
    if block[at] & 0x80:
        raise ValueError("Huffman codes are not read here; no server of ours writes them")
    size, at = _prefixed(block, at, 7)
    return block[at : at + size].decode(), at + size
