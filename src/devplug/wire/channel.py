"""The client's channel of our own transport: it connects at a call if there is no connection."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.client_connection import ClientConnection, NotDoneError
from devplug.wire.statuses import CLOSING, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from devplug.wire.client_connection import ClientCall

SPEAK_SECONDS: Final = 5.0
"""How long a server may take to speak HTTP/2."""

_RETRY_SECONDS: Final = 0.05
_FULL_QUEUE_SECONDS: Final = 0.005


class UnixChannel:
    """Calls to the server behind one path, over one connection; lives until it is closed.

    The next call makes a new connection if the last one was lost or the server has sent GOAWAY.
    """

    def __init__(self, path: Path, authority: str, receive_limit_bytes: int) -> None:
        self._path = os.fsencode(path)
        self._authority = authority
        self._receive_limit_bytes = receive_limit_bytes
        self._connection: ClientConnection | None = None
        self._dialling = asyncio.Lock()
        self._connections: set[ClientConnection] = set()
        """Also those that are left, for as long as they have calls."""
        self._is_closed = False
        self._is_final = False
        """Whether no other connection is made in place of the one that there is."""

    async def ready(self) -> None:
        """Wait until the other end has sent its HTTP/2 preface, with as many attempts as that takes."""
        while True:
            try:
                await self._connected(None)
            except RpcError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def connect(self) -> None:
        """Connect, with one attempt; calls fail from now on when this connection is lost."""
        await self._connected(None)
        self._is_final = True

    async def lost(self) -> None:
        """Wait until the connection is lost; returns at once where there is none."""
        connection = self._usable()
        if connection is not None:
            await connection.lost.wait()

    async def call(self, path: str, request: bytes, timeout_seconds: float | None) -> bytes:
        """Call a method with one answer."""
        call = await self._begun(path, request, timeout_seconds)
        try:
            try:
                return await call.only_message()
            except NotDoneError:
                # The server left before it looked at the call: another one may be there.
                call.end()
                call = await self._begun(path, request, timeout_seconds)
                return await call.only_message()
        finally:
            call.end()

    async def stream(self, path: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers of a stream; closing the generator cancels it."""
        call = await self._begun(path, request, None)
        try:
            while (message := await call.next_message()) is not None:
                yield message
        finally:
            call.end()

    async def close(self) -> None:
        """End all calls and the connection; later calls raise `RpcError`."""
        self._is_closed = True
        connections, self._connection = tuple(self._connections), None
        for connection in connections:
            connection.leave()
        for connection in connections:
            await connection.lost.wait()

    async def _begun(self, path: str, request: bytes, timeout_seconds: float | None) -> ClientCall:
        """Begin a call, on a connection that has room for it."""
        if self._is_closed:
            raise RpcError("Canceled", CLOSING)
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        connection = self._usable()
        if connection is None or not connection.http.can_open:
            connection = await self._with_room(deadline)
        return connection.begin(path, self._authority, request, deadline)

    async def _with_room(self, deadline: float | None) -> ClientConnection:
        """Wait for a connection that has room for a call."""
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    connection = self._usable() or await self._connected(deadline)
                    if connection.http.can_open:
                        return connection
                    await connection.room()
        except TimeoutError:
            raise RpcError("DeadlineExceeded", "context deadline exceeded") from None

    def _usable(self) -> ClientConnection | None:
        connection = self._connection
        if connection is None or not connection.is_open or connection.http.is_used_up:
            return None
        return connection

    async def _connected(self, _deadline: float | None) -> ClientConnection:
        """Return the connection, made now if there is none. Raises `RpcError` Unavailable."""
        async with self._dialling:
            connection = self._usable()
            if connection is None:
                if self._is_final:
                    raise RpcError("Unavailable", "connection error: the connection was lost")
                connection = self._connection = await self._dial()
            return connection

    @property
    def _place(self) -> str:
        """The network and the address of the server, in Go's words."""
        return f"unix {os.fsdecode(self._path)}"

    async def _opened(self) -> socket.socket:
        """Return a connected socket. Raises `OSError`."""
        return await _open(self._path)

    async def _dial(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        try:
            opened = await self._opened()
        except OSError as error:
            # As Go's gRPC says it, since a pod's event repeats it.
            where = f"dial {self._place}: connect: {(error.strerror or str(error)).lower()}"
            text = f'connection error: desc = "transport: Error while dialing: {where}"'
            raise RpcError("Unavailable", text) from error
        connection = ClientConnection(self._receive_limit_bytes)
        try:
            await loop.create_connection(lambda: connection, sock=opened)
        except BaseException:
            opened.close()
            raise
        self._connections = {one for one in self._connections if not one.lost.is_set()} | {connection}
        try:
            async with asyncio.timeout(SPEAK_SECONDS):
                await connection.spoken.wait()
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError):
                raise RpcError("Unavailable", "connection error: the server does not speak HTTP/2") from None
            raise
        if not connection.http.has_settings:
            raise RpcError("Unavailable", "connection error: the server has closed the connection")
        return connection


class TcpChannel(UnixChannel):
    """Calls to the server at an IP address and a port, without TLS."""

    def __init__(self, host: str, port: int, receive_limit_bytes: int) -> None:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        super().__init__(Path(authority), authority, receive_limit_bytes)
        self._address = host, port

    @property
    def _place(self) -> str:
        return f"tcp {self._authority}"

    async def _opened(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(opened, self._address)
        except BaseException:
            opened.close()
            raise
        return opened


async def _open(path: bytes) -> socket.socket:
    """Connect a socket. Raises `OSError`.

    Not by the event loop, which takes a server whose backlog is full for a connected one.
    """
    if len(path) > SOCKET_PATH_LIMIT_BYTES or b"\0" in path:
        raise OSError(0, "no socket can have this path")
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        while True:
            try:
                opened.connect(path)
            except BlockingIOError:
                await asyncio.sleep(_FULL_QUEUE_SECONDS)
            else:
                return opened
    except BaseException:
        opened.close()
        raise
