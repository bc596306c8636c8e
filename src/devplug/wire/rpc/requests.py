"""The head of a call: what a client says with it, and what a server reads from it ("Requests")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from devplug.wire.http2.blocks import HEADER_LIST_LIMIT_BYTES, header_block
from devplug.wire.http2.headers import list_bytes
from devplug.wire.rpc.faults import RpcError
from devplug.wire.rpc.metadata import timeout_seconds, timeout_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.wire.http2.events import Field

__all__ = ["NotGrpcError", "Request", "check_size", "is_grpc", "request_block", "request_of"]

_CONTENT_TYPE: Final = b"application/grpc"


class NotGrpcError(Exception):
    """A request of HTTP that is no call: `http_status` is the answer."""

    def __init__(self, http_status: int, text: str) -> None:
        self.http_status = http_status
        self.text = text
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Request:
    """What a server has to know of a call before its message."""

    path: str
    timeout_seconds: float | None
    encoding: str


def request_of(fields: Sequence[Field]) -> Request:
    """Read the head of a call; raises `NotGrpcError` if it is none, `RpcError` if it is refused at once."""
    found = dict(fields)
    content_type = found.get(b"content-type", b"")
    if not is_grpc(content_type):
        raise NotGrpcError(415, f"not {_CONTENT_TYPE.decode()}")
    if found.get(b":method") != b"POST":
        raise NotGrpcError(405, "not POST")
    check_size(fields)
    path = found[b":path"].decode(errors="replace")
    if (given := found.get(b"grpc-timeout")) is None:
        seconds = None
    else:
        try:
            seconds = timeout_seconds(given.decode("latin-1"))
        except ValueError:
            raise RpcError("Internal", "a grpc-timeout that is no time") from None
    return Request(path, seconds, found.get(b"grpc-encoding", b"identity").decode("latin-1"))


def check_size(fields: Sequence[Field]) -> None:
    """Raise `RpcError` for more fields than we have said that we take."""
    size = list_bytes(fields)
    if size > HEADER_LIST_LIMIT_BYTES:
        text = f"received metadata size exceeds limit ({size} vs. {HEADER_LIST_LIMIT_BYTES})"
        raise RpcError("ResourceExhausted", text)


def is_grpc(content_type: bytes) -> bool:
    """Whether a content is gRPC's: `application/grpc`, maybe with what is after a plus or a semicolon."""
    rest = content_type.removeprefix(_CONTENT_TYPE)
    return rest != content_type and (not rest or rest[:1] in b"+;")


def request_block(path: str, authority: str, timeout: float | None) -> bytes:
    """Return the header fields of a call."""
    block = _constant_block(path, authority)
    if timeout is None:
        return block
    return block + header_block([(b"grpc-timeout", timeout_text(timeout).encode())])


@lru_cache(maxsize=64)
def _constant_block(path: str, authority: str) -> bytes:
    return header_block(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", authority.encode()),
            (b"content-type", _CONTENT_TYPE),
            (b"te", b"trailers"),
            (b"user-agent", b"devplug"),
        ]
    )
