"""The caller's end by grpcio: the tests' referee for ours, and what could take its place again."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from devplug.wire.grpciosetup import NAMES, grpc
from devplug.wire.limits import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.rpc.faults import CLOSING, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["GrpcioChannel"]

_FAILURES: Final = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError)


class GrpcioChannel:
    """A channel of grpcio; raises `RpcError` at its making where a path cannot be dialled at all."""

    def __init__(self, path: Path, authority: str, receive_limit_bytes: int) -> None:
        self._links = ExitStack()
        self._channel = grpc.aio.insecure_channel(
            f"unix:{quote(self._dialled(path))}",
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

    async def ready(self) -> None:
        """Wait until the other end speaks HTTP/2."""
        await self._channel.channel_ready()

    async def connect(self) -> None:
        """Connect, trying once. In place of a lost connection the library still makes another."""
        state = self._channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state in {grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN}:
                raise RpcError("Unavailable", "failed to connect to all addresses")
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state()

    async def call(self, path: str, request: bytes, timeout_seconds: float | None) -> bytes:
        """Call a method with one answer."""
        call = self._channel.unary_unary(path, None, None)
        try:
            answer: bytes = await call(request, timeout=timeout_seconds)
        except _FAILURES as error:
            failure = _failure(error)
        else:
            return answer
        raise failure

    async def stream(self, path: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers of a stream; closing the generator cancels it."""
        begin = self._channel.unary_stream(path, None, None)
        try:
            call = begin(request)
            try:
                async for answer in call:
                    yield answer
            finally:
                call.cancel()
        except _FAILURES as error:
            failure = _failure(error)
        else:
            return
        raise failure

    async def close(self) -> None:
        """End all calls and the connection."""
        try:
            await self._channel.close(None)
        finally:
            self._links.close()

    def _dialled(self, path: Path) -> bytes:
        """Return what gRPC has to dial in order to reach the socket at `path`, and nothing else.

        At a comma it would cut the path and try the pieces, at a zero byte it would stop reading. So a path
        with a comma is dialled through a link in a folder of our own, which each attempt follows anew; and
        one that no socket can have leads nowhere, as in the kubelet, where the attempts go on until the time
        is up.
        """
        name = os.fsencode(path)
        is_possible = len(name) <= SOCKET_PATH_LIMIT_BYTES and b"\0" not in name
        if is_possible and b"," not in name:
            return name
        try:
            folder = self._links.enter_context(TemporaryDirectory(prefix="devplug-"))
        except OSError as error:
            text = f"cannot dial {path}: no folder for a link to it: {error.strerror}"
            raise RpcError("Unavailable", text) from error
        link = Path(folder, "socket")
        if is_possible:
            link.symlink_to(path.absolute())
        return os.fsencode(link)


def _failure(error: BaseException) -> RpcError:
    """Return what one of `_FAILURES` means for the caller; raises it again if this task was cancelled."""
    if isinstance(error, grpc.aio.AioRpcError):
        return RpcError(NAMES[error.code()], error.details() or "")
    # A channel closed by its owner cancels its calls and takes no more; that is an answer, not a cancellation
    # of this task.
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
    return RpcError("Canceled", CLOSING)
