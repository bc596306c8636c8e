"""The server's end by grpcio: the tests' referee for ours, and what could take its place again."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from devplug.errors import KubeletError
from devplug.wire.grpciosetup import CODES, grpc
from devplug.wire.limits import CALLS_AT_ONCE_LIMIT
from devplug.wire.rpc.faults import RpcError
from devplug.wire.socketfiles import discard, keep_private, why_not

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from devplug.wire.answering import Answering, Binding

__all__ = ["GrpcioServer", "start"]


@dataclass(slots=True, eq=False)
class GrpcioServer:
    """One server of grpcio, with the number of calls and streams that it serves now."""

    grpc_server: grpc.aio.Server
    open_calls: int = 0

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let calls in flight end within the grace, and end the others."""
        await self.grpc_server.stop(grace_seconds or None)


async def start(path: Path, answering: Answering) -> GrpcioServer:
    """Listen at a path where nothing may be. Raises `KubeletError`.

    grpcio's own handling of socket files takes over a path in use without a word, and removes by name what
    may be another server's file (grpc/grpc#17122): so nobody else may use this path.
    """
    server = GrpcioServer(
        grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", answering.receive_limit_bytes),
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
    for binding in answering.bindings:
        serve = _stream_handler if binding.method.is_stream else _unary_handler
        services.setdefault(binding.method.service, {})[binding.method.name] = serve(
            server, answering, binding
        )
    server.grpc_server.add_generic_rpc_handlers(
        (
            *(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()),
            _NotServed(answering),
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
            raise KubeletError(f"cannot listen in {path.parent}: {why_not(path.parent)}") from error
        raise
    return server


def _unary_handler(
    server: GrpcioServer, answering: Answering, binding: Binding
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def serve(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        server.open_calls += 1
        try:
            return await answering.answer(binding, request)
        except RpcError as error:
            refusal = error
        finally:
            server.open_calls -= 1
        await context.abort(CODES[refusal.status], refusal.text)
        raise AssertionError

    return grpc.unary_unary_rpc_method_handler(serve)


def _stream_handler(
    server: GrpcioServer, answering: Answering, binding: Binding
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def serve(
        request: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],
    ) -> AsyncIterator[bytes]:
        server.open_calls += 1
        try:
            async with aclosing(answering.answers(binding, request)) as responses:
                async for response in responses:
                    yield response
        except RpcError as error:
            refusal = error
        else:
            return
        finally:
            server.open_calls -= 1
        await context.abort(CODES[refusal.status], refusal.text)

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
    """Refuses what no binding serves."""

    answering: Answering

    def service(
        self,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return a method that only refuses."""
        text = self.answering.not_served(handler_call_details.method)

        async def refuse(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(refuse)
