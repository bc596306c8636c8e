"""The server's end of a Unix socket: a listener, the file that it owns, and the calls that it takes."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import grpc
import grpc.aio

from devplug.errors import AnswerTooLargeError, KubeletError, PluginError
from devplug.wire.limits import (
    CALLS_AT_ONCE_LIMIT,
    KUBELET_RECEIVE_LIMIT_BYTES,
    PLUGIN_RECEIVE_LIMIT_BYTES,
    SOCKET_PATH_LIMIT_BYTES,
)
from devplug.wire.statuses import status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

    from devplug.wire.methods import Method

__all__ = ["Binding", "Listener", "socket_identity", "stream", "unary"]

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Binding:
    """One method and the function that serves it."""

    method: Method[Any, Any]
    handler: Callable[[Any], Any]


def unary(
    method: Method[Request, Response],
    handler: Callable[[Request], Awaitable[Response]],
) -> Binding:
    """Bind `handler` to a method with one answer."""
    return Binding(method, handler)


def stream(
    method: Method[Request, Response],
    handler: Callable[[Request], AsyncIterator[Response]],
) -> Binding:
    """Bind `handler` to a method that answers with a stream."""
    return Binding(method, handler)


@dataclass(slots=True, eq=False)
class _Server:
    """One gRPC server behind a listener, with the number of calls and streams that it serves now."""

    grpc_server: grpc.aio.Server
    open_calls: int = 0


@dataclass(slots=True)
class Listener:
    """A server on one Unix socket, and the owner of the socket's file.

    `bind` makes the file, and makes it again when somebody removed or replaced it; calls and streams that
    came over the lost file go on meanwhile. `close` ends it all and removes the file only if it is still
    ours.

    gRPC's own handling of socket files is kept away from the path: it takes over a path in use without a
    word, and removes by name what may be another server's file (grpc/grpc#17122). So it binds a hidden name
    that nobody else uses; the socket is then linked to its real name and the hidden one removed, or renamed.
    """

    path: Path
    bindings: tuple[Binding, ...]
    receive_limit_bytes: int = PLUGIN_RECEIVE_LIMIT_BYTES
    send_limit_bytes: int = KUBELET_RECEIVE_LIMIT_BYTES
    """A larger answer is refused here, with its size, before the other end chokes on it."""
    admit_call: Callable[[], None] | None = None
    """Called before each call with one answer; raises to refuse it.

    Streams, unknown methods and requests that cannot be decoded never get there, as in Go's gRPC, where the
    kubelet's limit is a unary interceptor.
    """
    by_rename: bool = False
    """Whether watchers of the folder see the socket moved in, as the kubelet does with that of pod-resources
    (cri-client util_unix.go), and not made.
    """
    _servers: list[_Server] = field(default_factory=list, init=False)
    _identity: tuple[int, int, int] | None = field(default=None, init=False)

    def is_bound(self) -> bool:
        """Whether the file at `path` is the socket that this listener made last."""
        return self._identity is not None and socket_identity(self.path) == self._identity

    async def bind(self) -> None:
        """Listen at `path` from now on.

        Raises `KubeletError` if the folder does not take the socket, `PluginError` if the path is too long.
        """
        # A name that no other listener of the folder takes at the same time, in this process or another.
        hidden = self.path.with_name(f".{secrets.token_hex(3)}")
        length = max(len(os.fsencode(self.path)), len(os.fsencode(hidden)))
        if length > SOCKET_PATH_LIMIT_BYTES:
            raise PluginError(
                f"socket path {self.path} is {length} bytes; Unix sockets take {SOCKET_PATH_LIMIT_BYTES}: "
                "use a shorter folder",
            )
        server = await self._start(hidden)
        try:
            identity = socket_identity(hidden)
            self.path.unlink(missing_ok=True)
            if self.by_rename:
                hidden.rename(self.path)
            else:
                # Watchers of the folder see a file made, as when a Go server binds.
                self.path.hardlink_to(hidden)
                hidden.unlink()
        except OSError as error:
            await server.grpc_server.stop(None)
            raise KubeletError(f"cannot make the socket {self.path}: {error.strerror}") from error
        self._identity = identity
        # The one that is replaced may be between two calls of a caller that it still has.
        await self._drop_idle(self._servers[:-1])
        self._servers.append(server)

    async def tidy(self) -> None:
        """Stop the servers of lost files that nobody calls any more; for when no caller is just arriving."""
        await self._drop_idle(self._servers[:-1])

    async def _drop_idle(self, servers: list[_Server]) -> None:
        for server in servers:
            if not server.open_calls:
                self._servers.remove(server)
                await server.grpc_server.stop(None)

    async def close(self, grace_seconds: float = 0, *, keep_file: bool = False) -> None:
        """Stop listening, let calls in flight end within `grace_seconds`, remove our file. Safe to repeat.

        With `keep_file` the socket stays and refuses connections, as after the end of a process.
        """
        if self.is_bound() and not keep_file:
            with suppress(OSError):
                self.path.unlink()
        self._identity = None
        servers, self._servers = self._servers, []
        async with asyncio.TaskGroup() as group:
            for server in servers:
                group.create_task(server.grpc_server.stop(grace_seconds or None))

    async def _start(self, path: Path) -> _Server:
        server = _Server(
            grpc.aio.server(
                options=[
                    ("grpc.max_receive_message_length", self.receive_limit_bytes),
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
        for binding in self.bindings:
            serve = self._stream_handler if binding.method.is_stream else self._unary_handler
            services.setdefault(binding.method.service, {})[binding.method.name] = serve(server, binding)
        server.grpc_server.add_generic_rpc_handlers(
            (
                *(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()),
                _NotServed(frozenset(services)),
            ),
        )
        try:
            server.grpc_server.add_insecure_port(f"unix:{quote(os.fsencode(path))}")
            await _unbroken(server.grpc_server.start())
        except BaseException as error:
            await server.grpc_server.stop(None)
            if isinstance(error, RuntimeError):
                raise KubeletError(f"cannot listen in {path.parent}: {_why_not(path.parent)}") from error
            raise
        return server

    def _unary_handler(self, server: _Server, binding: Binding) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = binding.method

        async def serve(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            server.open_calls += 1
            try:
                value = method.request.decode(request)
                if self.admit_call is not None:
                    self.admit_call()
                return self._encoded(method, await binding.handler(value))
            except Exception as error:  # noqa: BLE001 -- the table decides what of it may cross the wire
                code, text = status_of(error, method)
            finally:
                server.open_calls -= 1
            await context.abort(code, text)
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(serve)

    def _stream_handler(self, server: _Server, binding: Binding) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = binding.method

        async def serve(
            request: bytes,
            context: grpc.aio.ServicerContext[bytes, bytes],
        ) -> AsyncIterator[bytes]:
            server.open_calls += 1
            try:
                async for response in binding.handler(method.request.decode(request)):
                    yield self._encoded(method, response)
            except Exception as error:  # noqa: BLE001 -- as above
                code, text = status_of(error, method)
            else:
                return
            finally:
                server.open_calls -= 1
            await context.abort(code, text)

        return grpc.unary_stream_rpc_method_handler(serve)

    def _encoded(self, method: Method[Any, Response], response: Response) -> bytes:
        content = method.response.encode(response)
        if len(content) > self.send_limit_bytes:
            raise AnswerTooLargeError(len(content), self.send_limit_bytes)
        return content


async def _unbroken(start: Coroutine[Any, Any, None]) -> None:
    """Await gRPC's start, which lasts a moment and breaks the server for good if it is cancelled half-way."""
    ended = asyncio.Event()

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
    """Refuses what no binding serves, in the words of Go's gRPC: the kubelet repeats them to people."""

    services: frozenset[str]

    def service(
        self,
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return a method that only refuses."""
        service, _, method = handler_call_details.method.removeprefix("/").rpartition("/")
        is_known = service in self.services
        text = f"unknown method {method} for service {service}" if is_known else f"unknown service {service}"

        async def refuse(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(refuse)


def socket_identity(path: Path) -> tuple[int, int, int] | None:
    """Return what tells the file at `path` from any other that stood there before, or None without one.

    Device, inode and time of making: an inode number alone comes back at once on most file systems.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _why_not(folder: Path) -> str:
    if not folder.is_dir():
        return "the folder does not exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "no right to write there"
    return "the system refused (see its log)"
