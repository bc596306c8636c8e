"""The transport that carries the calls, our own or grpcio's, and the one place that chooses."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from devplug.errors import KubeletError
from devplug.wire.statuses import RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
    from pathlib import Path

    from devplug.wire.handlers import Handlers


class Server(Protocol):
    """A server that listens at one socket until it is stopped."""

    @property
    def open_calls(self) -> int:
        """How many calls and streams it serves now."""

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let calls in flight end within the grace, and end the others."""


class Channel(Protocol):
    """A connection to the server behind a path, made anew when it is lost. Raises `RpcError`."""

    async def ready(self) -> None:
        """Wait until the other end speaks HTTP/2, however often that has to be tried."""

    async def connect(self) -> None:
        """Connect, trying once; from then on calls fail when this connection is lost."""

    async def lost(self) -> None:
        """Wait until the connection is lost; returns at once where there is none."""

    async def call(self, path: str, request: bytes, timeout_seconds: float | None) -> bytes:
        """Call a method with one answer."""

    def stream(self, path: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers of a stream; closing the generator cancels it."""

    async def close(self) -> None:
        """End all calls and the connection."""


class Transport(Struct, frozen=True):
    """A way to carry calls: one function for either end."""

    name: str
    serve: Callable[[Path, Handlers], Awaitable[Server]]
    """Listens at a path where nothing may be; raises `KubeletError`."""
    channel: Callable[[Path, str, int], Channel]
    """Makes a channel to a path, with an authority and the largest answer in bytes that is taken."""


# Each is imported when it is used: the other one is not loaded at all.


async def _serve_own(path: Path, handlers: Handlers) -> Server:
    try:
        from devplug.wire.server import start
    except OSError as error:  # no descriptor is left, not even to read a module
        raise KubeletError(f"cannot listen in {path.parent}: {error.strerror}") from error

    return await start(path, handlers)


def _own_channel(path: Path, authority: str, receive_limit_bytes: int) -> Channel:
    try:
        from devplug.wire.channel import UnixChannel
    except OSError as error:
        raise RpcError("Unavailable", f"connection error: {error.strerror}") from error
    return UnixChannel(path, authority, receive_limit_bytes)


async def _serve_grpcio(path: Path, handlers: Handlers) -> Server:
    from devplug.wire.grpcio import start

    return await start(path, handlers)


def _grpcio_channel(path: Path, authority: str, receive_limit_bytes: int) -> Channel:
    from devplug.wire.grpcio import GrpcioChannel

    return GrpcioChannel(path, authority, receive_limit_bytes)


OWN: Final = Transport("own", _serve_own, _own_channel)
GRPCIO: Final = Transport("grpcio", _serve_grpcio, _grpcio_channel)

_USUAL: Final = OWN

_SERVER: Final[ContextVar[Transport]] = ContextVar("server transport", default=_USUAL)
_CLIENT: Final[ContextVar[Transport]] = ContextVar("client transport", default=_USUAL)


def server_transport() -> Transport:
    """Return what servers are made of that start now."""
    return _SERVER.get()


def client_transport() -> Transport:
    """Return what connections are made of that begin now."""
    return _CLIENT.get()


@contextmanager
def chosen(*, server: Transport, client: Transport) -> Iterator[None]:
    """Choose otherwise for a block, and for the tasks that are made in it."""
    before = _SERVER.set(server), _CLIENT.set(client)
    try:
        yield
    finally:
        _SERVER.reset(before[0])
        _CLIENT.reset(before[1])
