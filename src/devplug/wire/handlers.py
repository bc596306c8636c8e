"""The handlers of a server: methods bound to functions, bytes in and bytes out, for any transport."""

from __future__ import annotations

import logging
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from devplug.errors import AnswerTooLargeError, IncidentError, KubeletError, RemoteError, one_line
from devplug.wire.codecs import Encoded
from devplug.wire.decoder import decoded
from devplug.wire.limits import CONNECTIONS_LIMIT, REQUEST_ELEMENTS_LIMIT
from devplug.wire.statuses import STATUS_OF_ERROR, STATUSES, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from devplug.wire.deviceplugin import Method

logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Binding(Struct, frozen=True):
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
    handler: Callable[[Request], AsyncIterator[Response | Encoded]]
    | Callable[[Request], AsyncIterator[Response]],
) -> Binding:
    """Bind `handler` to a method that answers with a stream."""
    return Binding(method, handler)


class Handlers:
    """All methods of a server; servers that follow each other on one path share it.

    An answer over `send_limit_bytes` is refused here, with its size; the other end could not receive it.
    `admit_call` is called before each call with one answer, and raises to refuse it. Streams, unknown methods
    and requests that cannot be decoded never get there, as in Go's gRPC, where the kubelet's limit is a unary
    interceptor.
    """

    def __init__(
        self,
        bindings: tuple[Binding, ...],
        receive_limit_bytes: int,
        send_limit_bytes: int,
        admit_call: Callable[[], None] | None,
        connections_limit: int = CONNECTIONS_LIMIT,
    ) -> None:
        self.bindings = bindings
        self.receive_limit_bytes = receive_limit_bytes
        self.send_limit_bytes = send_limit_bytes
        self.admit_call = admit_call
        self.connections_limit = connections_limit
        self._by_path = {binding.method.path: binding for binding in bindings}

    def find(self, path: str) -> Binding | None:
        """Return the binding of a path; None if there is none."""
        return self._by_path.get(path)

    def not_served(self, path: str) -> str:
        """Return the error for a path that nothing serves, in Go's words: the kubelet repeats them."""
        service, _, method = path.removeprefix("/").rpartition("/")
        if any(binding.method.service == service for binding in self.bindings):
            return f"unknown method {method} for service {service}"
        return f"unknown service {service}"

    async def answer(self, binding: Binding, request: bytes) -> bytes:
        """Answer a call with one answer; raises `RpcError`, and nothing else but a cancellation."""
        method = binding.method
        try:
            value = await decoded(method.request, request, REQUEST_ELEMENTS_LIMIT)
            del request
            if self.admit_call is not None:
                self.admit_call()
            return self._encoded(method, await binding.handler(value))
        except Exception as error:  # noqa: BLE001 -- the table decides what of it may cross the wire
            refusal = refusal_of(error, method)
        # Not where it was caught: whoever keeps the refusal would keep all frames of the handler.
        raise refusal

    async def answers(self, binding: Binding, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers of a stream; raises as `answer`. Closing it closes the handler's."""
        method = binding.method
        try:
            handled = binding.handler(await decoded(method.request, request, REQUEST_ELEMENTS_LIMIT))
            del request
            if hasattr(handled, "aclose"):
                async with aclosing(handled):
                    async for response in handled:
                        content = [self._encoded(method, response)]
                        del response  # it may be large, and the next one is long in coming
                        yield content.pop()
            else:
                async for response in handled:
                    yield self._encoded(method, response)
        except Exception as error:  # noqa: BLE001 -- as above
            refusal = refusal_of(error, method)
        else:
            return
        raise refusal

    def _encoded(self, method: Method[Any, Response], response: Response | Encoded) -> bytes:
        content = response.content if isinstance(response, Encoded) else method.response.encode(response)
        if len(content) > self.send_limit_bytes:
            raise AnswerTooLargeError(len(content), self.send_limit_bytes)
        return content


def refusal_of(error: Exception, method: Method[Any, Any]) -> RpcError:
    """Return what the other end gets for `error`: its own status and text, if it is a `RemoteError`."""
    if isinstance(error, RemoteError) and error.status in STATUSES[1:]:
        return RpcError(error.status, error.text)
    for error_class, status in STATUS_OF_ERROR:
        if isinstance(error, error_class):
            text = str(error)
            return RpcError(status, text if isinstance(error, KubeletError) else one_line(text))
    incident = IncidentError(os.urandom(3).hex())
    logger.error(
        "call failed inside the server",
        extra={"method": method.name, "incident": incident.incident},
        exc_info=error,
    )
    return RpcError("Internal", str(incident))
