"""The client: one request over a connection of its own, with the answer as a whole or line by line."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import h11
from msgspec import Struct

from devplug.errors import one_line
from devplug.linux.unix_sockets import within_reach
from devplug.web.addresses import TcpAddress, UnixAddress, is_ip
from devplug.web.messages import WebClientError
from devplug.web.sockets import send

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from devplug.web.addresses import Address

__all__ = ["Response", "get", "lines"]

_ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
_HEADER_LIMIT_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024
_SEND_SECONDS: Final = 5.0

_WHYS: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "there is no such socket; the program that makes it is not running",
    ConnectionRefusedError: "nothing listens there; the program that should is not running",
    PermissionError: "no right to connect; ask as the user who runs it",
    socket.gaierror: "the name is not known",
    ConnectionError: "it ended the connection",
}


class Response(Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    media_type: str
    """As the other end wrote it, with its parameters; empty without one."""
    body: bytes


async def get(
    address: Address,
    path: str,
    *,
    timeout_seconds: float = 5,
    limit_bytes: int = _ANSWER_LIMIT_BYTES,
) -> Response:
    """Return the answer to a GET of `path`, which may have a query.

    Raises `WebClientError` if there is none within `timeout_seconds`, or one of more than `limit_bytes`.
    """
    body = bytearray()
    with ExitStack() as stack:
        async with _within(timeout_seconds, address, path):
            exchange, head = await _asked(stack, address, path)
            while (piece := await exchange.piece()) is not None:
                body += piece
                if len(body) > limit_bytes:
                    raise WebClientError(f"{address}{path} answered with more than {limit_bytes} bytes")
    headers = dict(head.headers)
    return Response(head.status_code, headers.get(b"content-type", b"").decode("latin-1"), bytes(body))


@asynccontextmanager
async def lines(
    address: Address,
    path: str,
    *,
    timeout_seconds: float = 5,
    limit_bytes: int = _ANSWER_LIMIT_BYTES,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the lines of a streamed answer, without their ends, until the other end ends it.

    The block is entered when the answer has begun, within `timeout_seconds`; a line may then take any time.
    Raises `WebClientError` if the answer is no 200, breaks off, or has a line of more than `limit_bytes`.
    """
    with ExitStack() as stack:
        async with _within(timeout_seconds, address, path):
            exchange, head = await _asked(stack, address, path)
        if head.status_code != 200:
            status = f"{head.status_code} {head.reason.decode('latin-1')}".rstrip()
            raise WebClientError(f"{address}{path} answered {status}")
        found = _lines(exchange, limit_bytes)
        try:
            yield found
        finally:
            await found.aclose()


async def _lines(exchange: _Exchange, limit_bytes: int) -> AsyncGenerator[bytes, None]:
    rest = bytearray()
    while (piece := await exchange.piece()) is not None:
        # Only the new piece is searched: a line may come in a thousand of them.
        first, *others = piece.split(b"\n")
        rest += first
        for other in others:
            yield bytes(rest)
            rest = bytearray(other)
        if len(rest) > limit_bytes:
            raise WebClientError(f"{exchange.place} answered with a line of more than {limit_bytes} bytes")
    if rest:
        yield bytes(rest)


@asynccontextmanager
async def _within(seconds: float, address: Address, path: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise WebClientError(f"{address}{path} did not answer within {seconds:g} s") from None


async def _asked(stack: ExitStack, address: Address, path: str) -> tuple[_Exchange, h11.Response]:
    """Send the request over a connection that the stack closes; return it with the head of the answer."""
    place = f"{address}{path}"
    with _failures(place):
        connected = stack.enter_context(await _dialled(address))
    exchange = _Exchange(connected, place)
    return exchange, await exchange.ask(address, path)


class _Exchange:
    """One request and its answer over a connection; what goes wrong becomes a `WebClientError`."""

    def __init__(self, connected: socket.socket, place: str) -> None:
        self.place = place
        self._socket = connected
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_LIMIT_BYTES)

    async def ask(self, address: Address, path: str) -> h11.Response:
        """Send the request, and return the answer's status and headers when they are there."""
        request = h11.Request(
            method="GET",
            target=quote(path, safe="/?&=%:,;+@!$'()*~"),
            headers=[
                ("Host", _authority(address)),
                ("User-Agent", "devplug"),
                ("Accept", "*/*"),
                ("Connection", "close"),
            ],
        )
        content = [self._http.send(event) or b"" for event in (request, h11.EndOfMessage())]
        with _failures(self.place):
            await send(self._socket, content, seconds=_SEND_SECONDS)
        while isinstance(event := await self._event(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise WebClientError(f"{self.place} gave no answer")
        return event

    async def piece(self) -> bytes | None:
        """Return the next bytes of the answer's body, None at its end."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def _event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        loop = asyncio.get_running_loop()
        with _failures(self.place):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await loop.sock_recv(self._socket, _READ_BYTES))
        return event


@contextmanager
def _failures(place: str) -> Iterator[None]:
    try:
        yield
    except h11.RemoteProtocolError as error:
        why = "did not answer in HTTP, or broke off its answer"
        raise WebClientError(f"{place} {why}") from error
    except OSError as error:
        whys = (why for kind, why in _WHYS.items() if isinstance(error, kind))
        why = next(whys, None) or error.strerror or one_line(str(error))
        raise WebClientError(f"cannot ask {place}: {why}") from error


# ── connecting ──


async def _dialled(address: Address) -> socket.socket:
    """Return a connected socket; raises `OSError`."""
    if isinstance(address, UnixAddress):
        with within_reach(Path(address.path)) as name:
            return await _connected(socket.AF_UNIX, name)
    failure: OSError | None = None
    for family, place in await _places(address):
        try:
            return await _connected(family, place)
        except OSError as error:
            failure = failure or error
    raise failure or OSError("the name leads nowhere")


async def _connected(family: socket.AddressFamily, place: bytes | tuple[str, int]) -> socket.socket:
    with ExitStack() as stack:
        opened = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        opened.settimeout(0)
        await asyncio.get_running_loop().sock_connect(opened, place)
        stack.pop_all()
        return opened


async def _places(address: TcpAddress) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    host, port = address.host, address.port
    if host in {"", "localhost"}:
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))]
    if is_ip(host):
        return [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, (str(place[0]), port)) for family, _, _, _, place in found]


def _authority(address: Address) -> str:
    if isinstance(address, UnixAddress):
        return "localhost"
    return str(address) if address.host else f"localhost:{address.port}"
