"""The caller's end of a Unix socket: a connection, and the calls that are made over it."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import grpc
import grpc.aio

from devplug.errors import RemoteError
from devplug.wire.limits import KUBELET_RECEIVE_LIMIT_BYTES, SOCKET_PATH_LIMIT_BYTES
from devplug.wire.statuses import FAILURES, remote_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from devplug.wire.methods import Method

__all__ = ["Peer", "authority_of", "connected"]

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Peer:
    """A connection to the server behind a Unix socket; open for as long as the `connected` block lasts."""

    _channel: grpc.aio.Channel

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Call a method with one answer; raises `RemoteError`, also for a deadline or a lost connection."""
        call = self._channel.unary_unary(method.path, None, None)
        try:
            answer = await call(method.request.encode(request), timeout=timeout_seconds)
            return method.response.decode(answer)
        except FAILURES as error:
            failure = remote_error(error, method)
        # Not where it was caught: gRPC's error, as its context, would hold the connection open with it.
        raise failure

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
    ) -> AsyncGenerator[Response, None]:
        """Yield the answers of a stream until the other end ends it; raises `RemoteError` if it fails.

        Closing the generator cancels the stream.
        """
        call = self._channel.unary_stream(method.path, None, None)(method.request.encode(request))
        try:
            async for answer in call:
                yield method.response.decode(answer)
        except FAILURES as error:
            failure = remote_error(error, method)
        else:
            return
        finally:
            call.cancel()
        raise failure


@asynccontextmanager
async def connected(
    path: Path,
    *,
    ready_within_seconds: float | None = None,
    receive_limit_bytes: int = KUBELET_RECEIVE_LIMIT_BYTES,
    authority: str = "localhost",
) -> AsyncIterator[Peer]:
    """Open a connection to the socket at `path`, closed when the block is left.

    With `ready_within_seconds` wait until the other end speaks HTTP/2, as the kubelet does (client.go);
    raises `RemoteError` DeadlineExceeded if it does not. Without, the first call finds out.
    """
    with _dialled(path) as dialled:
        channel = grpc.aio.insecure_channel(
            f"unix:{quote(dialled)}",
            options=[
                ("grpc.default_authority", authority),
                ("grpc.max_receive_message_length", receive_limit_bytes),
                ("grpc.max_send_message_length", -1),
                # Connections are never shared between two owners of the same path.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.enable_retries", 0),
            ],
            compression=grpc.Compression.NoCompression,
        )
        try:
            if ready_within_seconds is not None:
                try:
                    async with asyncio.timeout(ready_within_seconds):
                        await channel.channel_ready()
                except TimeoutError:
                    raise RemoteError("DeadlineExceeded", "context deadline exceeded") from None
            yield Peer(channel)
        finally:
            await channel.close(None)


def authority_of(path: Path) -> str:
    """Return the `:authority` that Go's gRPC makes of a path which it dials by itself (encodeAuthority).

    That is what a plugin in plugins_registry sees of the kubelet (kubelet.md 1.1).
    """
    return quote(os.fsencode(path), safe="!$&'()*+,;=:[]@")


@contextmanager
def _dialled(path: Path) -> Iterator[bytes]:
    """Yield what gRPC has to dial in order to reach the socket at `path`, and nothing else.

    At a comma it would cut the path and try the pieces, at a zero byte it would stop reading. So a path with
    a comma is dialled through a link in a folder of our own, which each attempt follows anew; and one that
    no socket can have leads nowhere, as in the kubelet, where the attempts go on until the time is up.
    """
    name = os.fsencode(path)
    is_possible = len(name) <= SOCKET_PATH_LIMIT_BYTES and b"\0" not in name
    if is_possible and b"," not in name:
        yield name
        return
    try:
        folder = TemporaryDirectory(prefix="devplug-")
    except OSError as error:
        text = f"cannot dial {path}: no folder for a link to it: {error.strerror}"
        raise RemoteError("Unavailable", text) from error
    with folder:
        link = Path(folder.name, "socket")
        if is_possible:
            link.symlink_to(path.absolute())
        yield os.fsencode(link)
