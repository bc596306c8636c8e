"""Connections to one server that stay for the next request, through a proxy if there is one."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from devplug.web.client_connection import AnswerHead, ClientConnection, ClientRequest, connect
from devplug.web.messages import WebClientError

if TYPE_CHECKING:
    from devplug.web.addresses import TcpAddress

_IDLE_SECONDS: Final = 5.0
"""Who stands between may forget a connection on which nothing was sent for a while, and tell nobody."""

_IDLE_LIMIT: Final = 16
_IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})
"""What may be asked twice (RFC 9110, 9.2.2)."""


class Proxy(Struct, frozen=True):
    """A proxy that is asked over plain HTTP."""

    address: TcpAddress
    credentials: str = ""
    """As `user:password`; empty for none."""


class Server(Struct, frozen=True):
    """A server, and how it is reached."""

    address: TcpAddress
    place: str
    """Its name in errors."""
    tls: Any = None
    """An `ssl.SSLContext`, which is imported for TLS only; None for plain HTTP."""
    server_name: str = ""
    """The name in its certificate, if that is not the address's."""
    proxy: Proxy | None = None


class Connections:
    """Connections to one server; as many as are asked over at once, of which some stay a while."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._idle: list[tuple[ClientConnection, float]] = []

    async def ask(self, request: ClientRequest) -> tuple[ClientConnection, AnswerHead]:
        """Send a request; return the head of its answer, and the connection for the rest of it.

        Give the connection to `keep` after the answer's end, or close it. Raises `WebClientError`.
        """
        request = self._directed(request)
        if (connection := self._kept()) is not None:
            try:
                return connection, await connection.ask(request)
            except WebClientError:
                connection.close()
                # The other end may have closed it just as the request was sent.
                if connection.has_answered or request.method not in _IDEMPOTENT:
                    raise
            except BaseException:
                connection.close()
                raise
        connection = await self._connected()
        try:
            return connection, await connection.ask(request)
        except BaseException:
            connection.close()
            raise

    def keep(self, connection: ClientConnection) -> None:
        """Have a connection ready for the next request, if it can take one; close it else."""
        if connection.is_reusable and len(self._idle) < _IDLE_LIMIT:
            self._idle.append((connection, asyncio.get_running_loop().time()))
        else:
            connection.close()

    def close(self) -> None:
        """Close the connections over which nothing is asked."""
        for connection, _ in self._idle:
            connection.close()
        self._idle.clear()

    def _kept(self) -> ClientConnection | None:
        oldest = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while self._idle:
            connection, since = self._idle.pop()
            if since >= oldest and connection.is_reusable:
                return connection
            connection.close()
        return None

    async def _connected(self) -> ClientConnection:
        server, proxy = self._server, self._server.proxy
        if proxy is None:
            return await connect(server.address, server.place, tls=server.tls, server_name=server.server_name)
        connection = await connect(proxy.address, f"{server.place} by the proxy {proxy.address}")
        if server.tls is None:
            return connection
        try:
            target = str(server.address)
            headers = [("Host", target), *_proxy_authorization(proxy)]
            answer = await connection.ask(ClientRequest("CONNECT", target, headers))
            if answer.status != 200:
                raise WebClientError(f"the proxy {proxy.address} answers {answer}")
            await connection.secure(server.tls, server.server_name or server.address.host)
        except BaseException:
            connection.close()
            raise
        return connection

    def _directed(self, request: ClientRequest) -> ClientRequest:
        """Return a request as it is sent: a proxy for plain HTTP is told the server in each."""
        server, proxy = self._server, self._server.proxy
        if proxy is None or server.tls is not None:
            return request
        headers = [*request.headers, *_proxy_authorization(proxy)]
        return ClientRequest(
            request.method, f"http://{server.address}{request.target}", headers, request.body
        )


def _proxy_authorization(proxy: Proxy) -> list[tuple[str, str]]:
    if not proxy.credentials:
        return []
    return [("Proxy-Authorization", f"Basic {b64encode(proxy.credentials.encode()).decode()}")]
