"""Calls of an API server over HTTP: one request and its answer, with the credentials of an account."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlencode, urlsplit
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from devplug.errors import one_line
from devplug.k8s.answers import ANSWER_LIMIT_BYTES, decoded_object
from devplug.k8s.credentials import Credentials, tls_context
from devplug.k8s.errors import AnswerError, ClusterError
from devplug.k8s.objects import text
from devplug.k8s.proxies import proxy_url
from devplug.linux.notifier import Notifier
from devplug.web.addresses import TcpAddress
from devplug.web.client_connection import ClientRequest
from devplug.web.connections import Connections, Proxy, Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.k8s.account import Account
    from devplug.k8s.objects import Object
    from devplug.web.client_connection import AnswerHead, ClientConnection

_ANSWER_SECONDS: Final = 30.0
"""Longest wait for an answer."""


_ANSWERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Notifier] = WeakKeyDictionary()


def answers() -> Notifier:
    """Return what is notified of each successful answer of the API server on the running loop.

    A daemon has several connections to one API server: what one of them learns, the others need not wait for.
    """
    return _ANSWERS.setdefault(asyncio.get_running_loop(), Notifier())


class ApiCalls:
    """An API server as one account reaches it; whoever has it closes it."""

    def __init__(self, account: Account) -> None:
        """Read the certificates; nothing is sent. Raises `ClusterError`."""
        url = urlsplit(account.cluster.server)
        self._host = url.netloc.rpartition("@")[2]
        self._root = url.path.rstrip("/")
        self._credentials = Credentials(account.user)
        try:
            self._connections = Connections(_server(account, os.environ))
        except (OSError, ValueError) as error:
            why = one_line(str(error), 120)
            raise ClusterError(
                f"cannot use the account of {account.where}: {why}; mend it or mount it again"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        content: object = None,
        *,
        media_type: str = "application/json",
    ) -> Object:
        """Return the object that a request is answered with; raises what `begin` does, and `TimeoutError`."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            body = await self._body(await self.begin(method, path, query, content, media_type=media_type))
        return decoded_object(body)

    async def begin(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        content: object = None,
        *,
        media_type: str = "application/json",
    ) -> ClientConnection:
        """Return the connection of a request whose answer has begun; the caller closes it.

        Raises `AnswerError` for an answer that is no success, `ClusterError` and `WebClientError` for none.
        """
        asked = urlencode([(name, value) for name, value in (query or {}).items() if value])
        headers = [("Host", self._host), ("User-Agent", "devplug"), ("Accept", "application/json")]
        if content is not None:
            headers.append(("Content-Type", media_type))
        body = b"" if content is None else msgspec.json.encode(content)
        request = ClientRequest(method, f"{self._root}{path}{'?' if asked else ''}{asked}", headers, body)
        try:
            return await self._sent(request)
        except AnswerError as error:
            if error.code != 401 or not self._credentials.expire():
                raise
        return await self._sent(request)

    async def _sent(self, request: ClientRequest) -> ClientConnection:
        if authorization := await self._credentials.authorization():
            request = replace(request, headers=[*request.headers, ("Authorization", authorization)])
        stream, head = await self._connections.ask(request)
        if head.status in range(200, 300):
            answers().notify()
            return stream
        raise _refusal(head, await self._body(stream))

    async def _body(self, stream: ClientConnection) -> bytes:
        """Return the body of an answer, after which the next request may have its connection."""
        try:
            body = await stream.body(ANSWER_LIMIT_BYTES)
        except BaseException:
            stream.close()
            raise
        self._connections.keep(stream)
        return body


def _server(account: Account, environment: Mapping[str, str]) -> Server:
    """Return how an account's server is reached. Raises `OSError`, `ValueError`."""
    cluster = account.cluster
    url = urlsplit(cluster.server)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("its server is no URL as in https://10.0.0.1:6443")
    is_tls = url.scheme == "https"
    address = TcpAddress(url.hostname, url.port or (443 if is_tls else 80))
    tls = tls_context(cluster, account.user) if is_tls else None
    proxy = cluster.proxy_url or proxy_url(cluster.server, environment)
    return Server(address, f"the API server {address}", tls, cluster.tls_server_name, _proxy(proxy))


def _proxy(url: str) -> Proxy | None:
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("its proxy is not one of HTTP; name one as in http://10.0.0.1:3128")
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return Proxy(TcpAddress(parts.hostname, parts.port or 80), user)


def _refusal(head: AnswerHead, body: bytes) -> AnswerError:
    """Return the error that an answer is; only what the API server itself says is a Status."""
    try:
        said = text(msgspec.json.decode(body), "message")
    except msgspec.DecodeError:
        said = ""
    wait = head.headers.get("retry-after", "")  # seconds: an API server gives no dates
    return AnswerError(head.status, said or str(head), float(wait) if wait.isdecimal() else 0.0)
