"""The caller's end of a Unix socket: a connection, and the calls that are made over it."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import quote

from msgspec import Struct

from devplug.errors import RemoteError
from devplug.wire.codecs import MalformedMessageError, MessageTooLargeError
from devplug.wire.decoder import decoded
from devplug.wire.limits import ELEMENTS_LIMIT, KUBELET_RECEIVE_LIMIT_BYTES
from devplug.wire.statuses import RpcError
from devplug.wire.transport import client_transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from devplug.wire.deviceplugin import Method
    from devplug.wire.transport import Channel

Request = TypeVar("Request")
Response = TypeVar("Response")


class Peer(Protocol):
    """A connection to the server behind a Unix socket; open for as long as the `connected` block lasts."""

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Call a method with one answer; raises `RemoteError`, also for a deadline or a lost connection."""

    def stream(
        self,
        method: Method[Request, Response],
        request: Request,
    ) -> AsyncGenerator[Response, None]:
        """Yield the answers of a stream until the other end ends it; raises `RemoteError` if it fails.

        Closing the generator cancels the stream.
        """


class Connection(Peer, Protocol):
    """A peer that tells when it is lost."""

    async def lost(self) -> None:
        """Wait until the connection is lost; returns at once where there is none."""


class _ChannelPeer(Struct, frozen=True):
    """The `Connection` behind a transport's channel."""

    _channel: Channel

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Call as `Peer` says."""
        content = method.request.encode(request)
        try:
            answer = await self._channel.call(method.path, content, timeout_seconds)
            return await decoded(method.response, answer, ELEMENTS_LIMIT)
        except _FAILURES as error:
            failure = _remote_error(error, method)
        # Not where it was caught: the transport's error, as its context, would hold the connection with it.
        raise failure

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
    ) -> AsyncGenerator[Response, None]:
        """Yield as `Peer` says."""
        try:
            async with aclosing(self._channel.stream(method.path, method.request.encode(request))) as answers:
                async for answer in answers:
                    yield await decoded(method.response, answer, ELEMENTS_LIMIT)
        except _FAILURES as error:
            failure = _remote_error(error, method)
        else:
            return
        raise failure

    async def lost(self) -> None:
        """Wait as `Connection` says."""
        await self._channel.lost()


_FAILURES: Final = (RpcError, MalformedMessageError, MessageTooLargeError)


def _remote_error(error: Exception, method: Method[Request, Response]) -> RemoteError:
    if isinstance(error, RpcError):
        text = error.text
        if error.status == "DeadlineExceeded" and "Deadline Exceeded" in text:
            text = "context deadline exceeded"  # grpcio has several words for it, at either end
        # In the words of either transport; where they change, a call counts as sent, which is the safe side.
        is_unsent = text.startswith(("connection error:", "failed to connect to all addresses"))
        return RemoteError(error.status, text, is_unsent=is_unsent)
    if isinstance(error, MessageTooLargeError):
        return RemoteError("ResourceExhausted", f"the answer to {method.name} is too large: {error}")
    return RemoteError("Internal", f"cannot decode the answer to {method.name}: {error}")


@asynccontextmanager
async def connected(
    path: Path,
    *,
    ready_within_seconds: float | None = None,
    connect_within_seconds: float | None = None,
    receive_limit_bytes: int = KUBELET_RECEIVE_LIMIT_BYTES,
    authority: str = "localhost",
) -> AsyncIterator[Connection]:
    """Open a connection to the socket at `path`, closed when the block is left.

    With `ready_within_seconds` wait until the other end speaks HTTP/2, as the kubelet does (client.go);
    raises `RemoteError` DeadlineExceeded if it does not. With `connect_within_seconds` that is tried once,
    and no call ever goes to another server that listens there later; raises `RemoteError` Unavailable if
    nobody listens. Without either, the first call connects.
    """
    try:
        channel = client_transport().channel(path, authority, receive_limit_bytes)
    except RpcError as error:
        raise RemoteError(error.status, error.text, is_unsent=True) from error
    try:
        try:
            if ready_within_seconds is not None:
                async with asyncio.timeout(ready_within_seconds):
                    await channel.ready()
            if connect_within_seconds is not None:
                async with asyncio.timeout(connect_within_seconds):
                    await channel.connect()
        except TimeoutError:
            text = "context deadline exceeded"
            raise RemoteError("DeadlineExceeded", text, is_unsent=True) from None
        except RpcError as error:
            raise RemoteError(error.status, error.text, is_unsent=True) from error
        yield _ChannelPeer(channel)
    finally:
        await channel.close()


def authority_of(path: Path) -> str:
    """Return the `:authority` that Go's gRPC makes of a path which it dials by itself (encodeAuthority).

    That is what a plugin in plugins_registry sees of the kubelet (kubelet.md 1.1).
    """
    return quote(os.fsencode(path), safe="!$&'()*+,;=:[]@")
