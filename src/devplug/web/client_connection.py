"""The client's end of an HTTP connection, by h11: one request and its answer at a time."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h11
from msgspec import Struct

from devplug.errors import one_line
from devplug.linux.unix_sockets import within_reach
from devplug.web.addresses import UnixAddress, is_ip
from devplug.web.messages import TooLargeError, WebClientError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
    from ssl import SSLContext

    from devplug.web.addresses import Address, TcpAddress

_HEADER_LIMIT_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024
_NEXT_ADDRESS_SECONDS: Final = 3.0
"""After which the next address of a name is tried."""

_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A peer that is gone is noticed within a minute, also while nothing is sent."""

_WHYS: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "there is no such socket; the program that makes it is not running",
    ConnectionRefusedError: "nothing listens there; the program that should is not running",
    PermissionError: "no right to connect; ask as the user who runs it",
    socket.gaierror: "the name is not known",
    ConnectionError: "it ended the connection",
}


class ClientRequest(Struct, frozen=True):
    """What is asked of a server."""

    method: str
    target: str
    """The path with its query, percent-encoded; of a proxy also a whole URL, or HOST:PORT for CONNECT."""
    headers: Sequence[tuple[str, str]]
    """All but Content-Length."""
    body: bytes = b""


class AnswerHead(Struct, frozen=True):
    """What an answer begins with."""

    status: int
    reason: str
    """The phrase beside the status; empty without one."""
    headers: Mapping[str, str]
    """With names in lower case."""

    def __str__(self) -> str:
        """Return the status as people know it, as in `404 Not Found`."""
        return f"{self.status} {self.reason}".rstrip()


async def connect(
    address: Address, place: str, *, tls: SSLContext | None = None, server_name: str = ""
) -> ClientConnection:
    """Return a connection to a server, for the caller to close; `place` names it in errors.

    `server_name` is the name in its certificate, if that is not the address's. Raises `WebClientError`.
    """
    with _failures(place):
        connected = await _connected(address)
        try:
            if isinstance(address, UnixAddress):
                streams = await asyncio.open_unix_connection(sock=connected)
            else:
                name = server_name or address.host if tls is not None else None
                streams = await asyncio.open_connection(sock=connected, ssl=tls, server_hostname=name)
        except BaseException:
            connected.close()
            raise
    return ClientConnection(*streams, place)


async def _connected(address: Address) -> socket.socket:
    """Return a connected socket; raises `OSError`."""
    if isinstance(address, UnixAddress):
        with within_reach(Path(address.path)) as name:
            return await _connected_to(socket.AF_UNIX, name)
    failure: OSError | None = None
    *others, last = await _places(address)
    for place in others:
        try:
            async with asyncio.timeout(_NEXT_ADDRESS_SECONDS):
                return await _connected_to(*place)
        except OSError as error:  # a TimeoutError is one
            failure = failure or error
    try:
        return await _connected_to(*last)
    except OSError as error:
        raise failure or error from None


async def _connected_to(family: socket.AddressFamily, place: bytes | tuple[str, int]) -> socket.socket:
    with ExitStack() as stack:
        opened = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        opened.settimeout(0)
        if family != socket.AF_UNIX:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                opened.setsockopt(socket.IPPROTO_TCP, option, value)
        await asyncio.get_running_loop().sock_connect(opened, place)
        stack.pop_all()
        return opened


async def _places(address: TcpAddress) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Return where to connect to, one after the other; at least one. Raises `OSError`."""
    host, port = address.host, address.port
    if host in {"", "localhost"}:  # never looked up elsewhere (RFC 6761, 6.3)
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))]
    if is_ip(host):
        return [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, (str(place[0]), port)) for family, _, _, _, place in found]


class ClientConnection:
    """A connection to a server; whoever has it asks one thing at a time, and closes it.

    What goes wrong becomes a `WebClientError`, with `place` in its text.
    """

    def __init__(self, reader: StreamReader, writer: StreamWriter, place: str) -> None:
        self.place = place
        self.has_answered = False
        """Whether any of the answer to the last request has come."""
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_LIMIT_BYTES)

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent: the answer has ended, and the other end is still there."""
        is_open = not (self._writer.is_closing() or self._reader.at_eof())
        return is_open and self._http.our_state is self._http.their_state is h11.DONE

    async def ask(self, request: ClientRequest) -> AnswerHead:
        """Send a request, and return the head of its answer when it is there."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self.has_answered = False
        headers = [*request.headers]
        if request.body or request.method in {"POST", "PUT", "PATCH"}:
            headers.append(("Content-Length", str(len(request.body))))
        head = h11.Request(method=request.method, target=request.target, headers=headers)
        events = [head, h11.Data(data=request.body), h11.EndOfMessage()]
        with _failures(self.place):
            self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
            await self._writer.drain()
        while isinstance(event := await self._event(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise WebClientError(f"{self.place} gave no answer")
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return AnswerHead(event.status_code, event.reason.decode("latin-1"), found)

    async def piece(self) -> bytes | None:
        """Return the next bytes of the answer's body, None at its end."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def body(self, limit_bytes: int) -> bytes:
        """Return the answer's body."""
        body = bytearray()
        while (piece := await self.piece()) is not None:
            body += piece
            if len(body) > limit_bytes:
                raise TooLargeError(f"{self.place} answered with more than {limit_bytes} bytes")
        return bytes(body)

    async def lines(self, limit_bytes: int) -> AsyncGenerator[bytes]:
        """Yield the lines of the answer's body, without their ends."""
        rest = bytearray()
        while (piece := await self.piece()) is not None:
            # Only the new piece is searched: a line may come in a thousand of them.
            first, *others = piece.split(b"\n")
            rest += first
            for other in others:
                yield bytes(rest)
                rest = bytearray(other)
            if len(rest) > limit_bytes:
                raise WebClientError(f"{self.place} answered with a line of more than {limit_bytes} bytes")
        if rest:
            yield bytes(rest)

    async def secure(self, tls: SSLContext, server_name: str) -> None:
        """Go on with TLS, once a proxy has said that what is sent from now on goes to the server itself."""
        with _failures(self.place):
            await self._writer.start_tls(tls, server_hostname=server_name)
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_LIMIT_BYTES)

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        self._writer.transport.abort()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        with _failures(self.place):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(_READ_BYTES)
                self.has_answered = self.has_answered or bool(data)
                self._http.receive_data(data)
        return event


@contextmanager
def _failures(place: str) -> Iterator[None]:
    try:
        yield
    except h11.RemoteProtocolError as error:
        why = "did not answer in HTTP, or broke off its answer"
        raise WebClientError(f"{place} {why}") from error
    except OSError as error:
        whys = [why for kind, why in _WHYS.items() if isinstance(error, kind)]
        if doubt := getattr(error, "verify_message", ""):
            whys = [f"its certificate is not trusted: {doubt}"]
        why = whys[0] if whys else error.strerror or one_line(str(error))
        raise WebClientError(f"cannot ask {place}: {why}") from error
