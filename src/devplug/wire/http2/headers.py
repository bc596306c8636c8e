"""What header fields a message may have, and what makes it malformed (8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.wire.http2.events import Field

__all__ = [
    "content_length",
    "list_bytes",
    "wrong_in_request",
    "wrong_in_response",
    "wrong_in_trailers",
]

_NAME: Final = re.compile(rb":?[!-9;-@\[-~]+").fullmatch
"""Visible characters without upper case, and a colon at the begin only (8.2.1)."""

_VALUE: Final = re.compile(rb"(?![ \t])[^\0\r\n]*(?<![ \t])").fullmatch
"""No zero, no line end, no blank at either end (8.2.1)."""

_STATUS_TEXT: Final = re.compile(rb"[^\0\r\n]*").fullmatch
"""Go's gRPC sends a `grpc-message` with its blanks, and the kubelet has one whose end is "desc = "."""

_OF_HTTP1: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
"""Fields about a connection of HTTP/1 (8.2.2)."""

_REQUEST: Final[Mapping[bytes, bool]] = {
    b":method": True,
    b":scheme": True,
    b":path": True,
    b":authority": False,
}
"""The pseudo-fields of a request, and whether it must have them (8.3.1)."""

_CONNECT: Final[Mapping[bytes, bool]] = {b":method": True, b":authority": True}
"""Those of a CONNECT (8.5)."""

_RESPONSE: Final[Mapping[bytes, bool]] = {b":status": True}
"""Those of a response (8.3.2)."""


def list_bytes(fields: Sequence[Field]) -> int:
    """Return how large a list is, as SETTINGS_MAX_HEADER_LIST_SIZE counts (6.5.2)."""
    return sum(32 + len(name) + len(value) for name, value in fields)


def wrong_in_request(fields: Sequence[Field]) -> str:
    """Return what makes a request malformed (8.1.1); empty if nothing does."""
    is_connect = (b":method", b"CONNECT") in fields
    wrong = _wrong_in_fields(fields, _CONNECT if is_connect else _REQUEST)
    if not wrong and (b":path", b"") in fields:
        wrong = "an empty :path"
    return wrong


def wrong_in_response(fields: Sequence[Field]) -> str:
    """Return what makes the head of a response malformed; empty if nothing does."""
    wrong = _wrong_in_fields(fields, _RESPONSE)
    if not wrong:
        status = next(value for name, value in fields if name == b":status")
        if not (len(status) == 3 and status.isdigit()):
            wrong = "a :status that is no number of three digits"
    return wrong


def wrong_in_trailers(fields: Sequence[Field]) -> str:
    """Return what makes trailers malformed (8.1); empty if nothing does."""
    return _wrong_in_fields(fields, {})


def content_length(fields: Sequence[Field]) -> int | None:
    """Return how much content is promised (8.1.1), None if that is not said; raises ValueError."""
    values = {value for name, value in fields if name == b"content-length"}
    if not values:
        return None
    (value,) = values
    if not (value.isdigit() and len(value) < 20):
        raise ValueError(value)
    return int(value)


def _wrong_in_fields(fields: Sequence[Field], pseudo: Mapping[bytes, bool]) -> str:
    seen: set[bytes] = set()
    has_regular = False
    for name, value in fields:
        is_value = _STATUS_TEXT if name == b"grpc-message" else _VALUE
        if not (_NAME(name) and is_value(value)):
            return "a field with bytes that may not be there"
        if name.startswith(b":"):
            if has_regular:
                return f"{name.decode()} after other fields"
            if name not in pseudo:
                return f"{name.decode()} in the wrong place"
            if name in seen:
                return f"{name.decode()} twice"
            seen.add(name)
            continue
        has_regular = True
        if name in _OF_HTTP1 or (name == b"te" and value != b"trailers"):
            return f"{name.decode()}, which is for HTTP/1"
    for name, is_needed in pseudo.items():
        if is_needed and name not in seen:
            return f"no {name.decode()}"
    return ""
