"""How a call ends: its status and text, in trailers, which may be all of an answer ("Responses")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.wire.http2.blocks import header_block
from devplug.wire.rpc.faults import STATUSES, RpcError, status_of_http
from devplug.wire.rpc.metadata import percent_decoded, percent_encoded
from devplug.wire.rpc.requests import check_size, is_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.wire.http2.events import Field

__all__ = [
    "ANSWER_HEAD",
    "OK_TRAILERS",
    "check_head",
    "check_trailers",
    "http_refusal",
    "trailers",
    "trailers_only",
]

_NUMBERS: Final = {status: number for number, status in enumerate(STATUSES)}

_HEAD_FIELDS: Final = [
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity"),
]

ANSWER_HEAD: Final = header_block(_HEAD_FIELDS)
"""What an answer begins with, unless it is a refusal alone."""

OK_TRAILERS: Final = header_block([(b"grpc-status", b"0")])


def trailers(status: str, text: str) -> bytes:
    """Return the end of an answer."""
    return header_block(_status_fields(status, text))


def trailers_only(status: str, text: str) -> bytes:
    """Return an answer without a message, in one block."""
    return header_block([*_HEAD_FIELDS, *_status_fields(status, text)])


def http_refusal(http_status: int, text: str) -> bytes:
    """Return the answer to what is no call; a client of gRPC understands it, too."""
    return header_block(
        [
            (b":status", str(http_status).encode()),
            (b"content-type", b"application/grpc"),
            *_status_fields(status_of_http(http_status), text),
        ]
    )


def _status_fields(status: str, text: str) -> list[Field]:
    fields = [(b"grpc-status", str(_NUMBERS[status]).encode())]
    if text:
        fields.append((b"grpc-message", percent_encoded(text)))
    return fields


def check_head(fields: Sequence[Field]) -> str:
    """Read the head of an answer; return how its messages are compressed. Raises `RpcError` if it is none."""
    check_size(fields)
    found = dict(fields)
    http_status = int(found[b":status"])
    content_type = found.get(b"content-type", b"")
    if http_status != 200:
        if b"grpc-status" in found:
            check_trailers(fields)
        text = f"unexpected HTTP status code received from server: {http_status}"
        raise RpcError(status_of_http(http_status), text)
    if not is_grpc(content_type):
        text = f"received unexpected content-type {content_type.decode('latin-1')!r}"
        raise RpcError("Unknown", text)
    return found.get(b"grpc-encoding", b"identity").decode("latin-1")


def check_trailers(fields: Sequence[Field]) -> None:
    """Read the end of an answer; raises `RpcError` if its status is not OK."""
    check_size(fields)
    found = dict(fields)
    code = found.get(b"grpc-status", b"")
    text = percent_decoded(found.get(b"grpc-message", b""))
    if not (code.isdigit() and len(code) < 10):
        raise RpcError("Internal", "the answer ends without a status")
    number = int(code)
    if number:
        raise RpcError(STATUSES[number] if number < len(STATUSES) else "Unknown", text)
