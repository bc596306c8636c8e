"""Serve and call the API's methods on Unix sockets; our errors ⇄ gRPC status, in one table.

This is the only module that knows gRPC. Another transport takes its place by offering the same names:
`unary`, `stream`, `Listener`, `Peer` and `connected`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import grpc
import grpc.aio

from devplug.errors import (
    AllocationError,
    AnswerTooLargeError,
    DeadlineError,
    DevplugError,
    IncidentError,
    InvalidRequestError,
    KubeletError,
    LimitError,
    NotOfferedError,
    NotReadyError,
    PluginError,
    RemoteError,
    UnhealthyDeviceError,
    UnknownDeviceError,
    one_line,
)
from devplug.wire.messages import MalformedMessageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

    from devplug.wire.methods import Method

__all__ = [
    "SOCKET_PATH_LIMIT_BYTES",
    "Binding",
    "Listener",
    "Peer",
    "connected",
    "socket_identity",
    "stream",
    "unary",
]

Request = TypeVar("Request")
Response = TypeVar("Response")

logger = logging.getLogger(__name__)

# gRPC joins its poller thread when its last object is collected, wherever that happens to be, and now and
# then the thread never ends. One reference that is never given back keeps it for the life of the process.
grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it

SOCKET_PATH_LIMIT_BYTES: Final = 107
"""The longest path of a Unix socket: `sun_path` holds 108 bytes with its end mark (unix(7))."""

KUBELET_RECEIVE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What the kubelet takes in one message: grpc-go's default (kubelet.md 1.1)."""

PLUGIN_RECEIVE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What a plugin of ours takes: GetPreferredAllocation names every free device of a node."""

CALLS_AT_ONCE_LIMIT: Final = 1024
"""Calls and streams that one server holds at once; more are refused with RESOURCE_EXHAUSTED."""


# ── errors ⇄ status ───────────────────────────────────────────────────────────────────────────────

STATUS_OF_ERROR: Final[tuple[tuple[type[DevplugError], grpc.StatusCode], ...]] = (
    (MalformedMessageError, grpc.StatusCode.INVALID_ARGUMENT),
    (InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (UnknownDeviceError, grpc.StatusCode.NOT_FOUND),
    (UnhealthyDeviceError, grpc.StatusCode.FAILED_PRECONDITION),
    (LimitError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (NotReadyError, grpc.StatusCode.UNAVAILABLE),
    (DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (NotOfferedError, grpc.StatusCode.UNIMPLEMENTED),
    (IncidentError, grpc.StatusCode.INTERNAL),
    (AnswerTooLargeError, grpc.StatusCode.INTERNAL),
    (AllocationError, grpc.StatusCode.FAILED_PRECONDITION),
    # The kubelet's handlers return plain Go errors, which gRPC sends as UNKNOWN (kubelet.md 1.1).
    (KubeletError, grpc.StatusCode.UNKNOWN),
)
"""First match wins. Anything else is INTERNAL with an incident number, and its text stays in the log."""

_GO_NAMES = {
    grpc.StatusCode.OK: "OK",
    grpc.StatusCode.CANCELLED: "Canceled",
    grpc.StatusCode.UNKNOWN: "Unknown",
    grpc.StatusCode.INVALID_ARGUMENT: "InvalidArgument",
    grpc.StatusCode.DEADLINE_EXCEEDED: "DeadlineExceeded",
    grpc.StatusCode.NOT_FOUND: "NotFound",
    grpc.StatusCode.ALREADY_EXISTS: "AlreadyExists",
    grpc.StatusCode.PERMISSION_DENIED: "PermissionDenied",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted",
    grpc.StatusCode.FAILED_PRECONDITION: "FailedPrecondition",
    grpc.StatusCode.ABORTED: "Aborted",
    grpc.StatusCode.OUT_OF_RANGE: "OutOfRange",
    grpc.StatusCode.UNIMPLEMENTED: "Unimplemented",
    grpc.StatusCode.INTERNAL: "Internal",
    grpc.StatusCode.UNAVAILABLE: "Unavailable",
    grpc.StatusCode.DATA_LOSS: "DataLoss",
    grpc.StatusCode.UNAUTHENTICATED: "Unauthenticated",
}


def _status_of(error: Exception, method: Method[Any, Any]) -> tuple[grpc.StatusCode, str]:
    """Return the status and text that the other end gets for `error`."""
    for error_class, code in STATUS_OF_ERROR:
        if isinstance(error, error_class):
            text = str(error)
            return code, text if isinstance(error, KubeletError) else one_line(text)
    incident = IncidentError(secrets.token_hex(3))
    logger.error(
        "call failed inside the server",
        extra={"method": method.name, "incident": incident.incident},
        exc_info=error,
    )
    return grpc.StatusCode.INTERNAL, str(incident)


_FAILURES = (grpc.aio.AioRpcError, MalformedMessageError, asyncio.CancelledError)


def _remote_error(error: BaseException, method: Method[Any, Any]) -> RemoteError:
    """Return what one of `_FAILURES` means for the caller; raises it again if this task was cancelled."""
    if isinstance(error, grpc.aio.AioRpcError):
        text = error.details() or ""
        if "Deadline Exceeded" in text:  # grpcio's words, in several forms, for a deadline that passed here
            text = "context deadline exceeded"
        return RemoteError(_GO_NAMES[error.code()], text)
    if isinstance(error, MalformedMessageError):
        return RemoteError("Internal", f"cannot decode the answer to {method.name}: {error}")
    # A channel closed by its owner cancels its calls; that is an answer, not a cancellation of this task.
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return RemoteError("Canceled", "grpc: the client connection is closing")


# ── serving ───────────────────────────────────────────────────────────────────────────────────────


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
    that nobody else uses; the socket is then linked to its real name and the hidden one removed.
    """

    path: Path
    bindings: tuple[Binding, ...]
    receive_limit_bytes: int = PLUGIN_RECEIVE_LIMIT_BYTES
    send_limit_bytes: int = KUBELET_RECEIVE_LIMIT_BYTES
    """A larger answer is refused here, with its size, before the other end chokes on it."""
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
            # A link and not a rename: watchers of the folder see a file made, as when a Go server binds.
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
                return self._encoded(method, await binding.handler(method.request.decode(request)))
            except Exception as error:  # noqa: BLE001 -- the table decides what of it may cross the wire
                code, text = _status_of(error, method)
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
                code, text = _status_of(error, method)
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


# ── calling ───────────────────────────────────────────────────────────────────────────────────────


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
        except _FAILURES as error:
            failure = _remote_error(error, method)
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
        except _FAILURES as error:
            failure = _remote_error(error, method)
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
) -> AsyncIterator[Peer]:
    """Open a connection to the socket at `path`, closed when the block is left.

    With `ready_within_seconds` wait until the other end speaks HTTP/2, as the kubelet does (client.go);
    raises `RemoteError` DeadlineExceeded if it does not. Without, the first call finds out.
    """
    channel = grpc.aio.insecure_channel(
        f"unix:{quote(os.fsencode(path))}",
        options=[
            ("grpc.default_authority", "localhost"),
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
