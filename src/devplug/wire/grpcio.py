"""Client and server by grpcio, with which the tests compare our own transport, and which could replace it.

Only this file imports the library, without its output on stderr, and maps its statuses to our names.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

# gRPC reads this when it is loaded; without it, each connection that is lost leaves a line on stderr.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc
import grpc.aio

from devplug.errors import KubeletError
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.limits import CALLS_AT_ONCE_LIMIT
from devplug.wire.socketfiles import discard, keep_private, why_not
from devplug.wire.statuses import CLOSING, STATUSES, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine

    from devplug.wire.handlers import Binding, Handlers

__all__ = ["GrpcioChannel", "GrpcioServer", "grpc", "keep_poller", "start"]

_CODES: Final = {STATUSES[code.value[0]]: code for code in grpc.StatusCode}
_NAMES: Final = {code: name for name, code in _CODES.items()}

_FAILURES: Final = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError)


@cache
def keep_poller() -> None:
    """Keep gRPC's poller thread for the life of the process; call it on an event loop, which it needs.

    gRPC joins the thread when its last object is collected, wherever that happens to be, and now and then the
    thread never ends. One reference that is never given back keeps it.
    """
    grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it


# ── the caller's end ──────────────────────────────────────────────────────────────────────────────


class GrpcioChannel:
    """A channel of grpcio; making it raises `RpcError` for a path that nobody can connect to."""

    def __init__(self, path: Path, authority: str, receive_limit_bytes: int) -> None:
        keep_poller()
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

    async def lost(self) -> None:
        """Wait until the connection is lost; returns at once where there is none."""
        while (state := self._channel.get_state()) is grpc.ChannelConnectivity.READY:
            await self._channel.wait_for_state_change(state)

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
        return RpcError(_NAMES[error.code()], error.details() or "")
    # A channel closed by its owner cancels its calls and takes no more; that is an answer, not a cancellation
    # of this task.
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
    return RpcError("Canceled", CLOSING)


# ── the server's end ──────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class GrpcioServer:
    """One server of grpcio, with the number of calls and streams that it serves now."""

    grpc_server: grpc.aio.Server
    open_calls: int = 0

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let calls in flight end within the grace, and end the others."""
        await self.grpc_server.stop(grace_seconds or None)


async def start(path: Path, handlers: Handlers) -> GrpcioServer:
    """Listen at a path where nothing may be. Raises `KubeletError`.

    grpcio's own handling of socket files takes over a path in use without a word, and removes by name what
    may be another server's file (grpc/grpc#17122): so nobody else may use this path.
    """
    keep_poller()
    server = GrpcioServer(
        grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", handlers.receive_limit_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
                # Only `identity`: a compressed message is refused, so none can be a bomb.
                ("grpc.compression_enabled_algorithms_bitset", 1),
            ],
            maximum_concurrent_rpcs=CALLS_AT_ONCE_LIMIT,
            compression=grpc.Compression.NoCompression,
        ),
    )
    services: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = {}
    for binding in handlers.bindings:
        serve = _stream_handler if binding.method.is_stream else _unary_handler
        services.setdefault(binding.method.service, {})[binding.method.name] = serve(
            server, handlers, binding
        )
    server.grpc_server.add_generic_rpc_handlers(
        (
            *(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()),
            _NotServed(handlers),
        ),
    )
    try:
        server.grpc_server.add_insecure_port(f"unix:{quote(os.fsencode(path))}")
        keep_private(path)
        await _unbroken(server.grpc_server.start())
    except BaseException as error:
        await server.stop(0)
        discard(path)
        if isinstance(error, RuntimeError | OSError):
            reason = why_not(path.parent, OSError(*error.args))
            raise KubeletError(f"cannot listen in {path.parent}: {reason}") from error
        raise
    return server


def _unary_handler(
    server: GrpcioServer, handlers: Handlers, binding: Binding
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def serve(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        server.open_calls += 1
        try:
            return await handlers.answer(binding, request)
        except RpcError as error:
            refusal = error
        finally:
            server.open_calls -= 1
        await context.abort(_CODES[refusal.status], refusal.text)
        raise AssertionError

    return grpc.unary_unary_rpc_method_handler(serve)


def _stream_handler(
    server: GrpcioServer, handlers: Handlers, binding: Binding
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def serve(
        request: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],
    ) -> AsyncIterator[bytes]:
        server.open_calls += 1
        try:
            async with aclosing(handlers.answers(binding, request)) as responses:
                async for response in responses:
                    yield response
        except RpcError as error:
            refusal = error
        else:
            return
        finally:
            server.open_calls -= 1
        await context.abort(_CODES[refusal.status], refusal.text)

    return grpc.unary_stream_rpc_method_handler(serve)


async def _unbroken(start: Coroutine[Any, Any, None]) -> None:
    """Await gRPC's start, which lasts a moment and breaks the server for good if it is cancelled half-way."""
    ended: Final = asyncio.Event()

    async def whole() -> None:
        try:
            await start
        finally:
            ended.set()

    try:
        await asyncio.shield(whole())
    finally:
        await ended.wait()


@dataclass(frozen=True, slots=True)
class _NotServed(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs only
    """The handler that refuses what no binding serves."""

    handlers: Handlers

    def service(
        self,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return a method that only refuses."""
        text = self.handlers.not_served(handler_call_details.method)

        async def refuse(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(refuse)
