"""gRPC over HTTP/2, without I/O: requests, messages and outcomes on a stream, for both ends. Pure.

It follows gRPC's "PROTOCOL-HTTP2.md", the chapters of which stand in quotes. A request is a head of header
fields ("Requests"); a message has a length before it, and none is compressed ("Length-Prefixed-Message");
an outcome is a status with a text, in trailers, which may be all of an answer ("Responses").
"""

from __future__ import annotations

import math
import re
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from msgspec import Struct

from devplug.wire.http2.headers import HEADER_LIST_LIMIT_BYTES, header_block, list_bytes
from devplug.wire.statuses import STATUSES, RpcError, status_of_http

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.wire.http2.events import Field


# ── messages ──────────────────────────────────────────────────────────────────────────────────────


_HEAD: Final = struct.Struct(">BI")
MESSAGE_HEAD_BYTES: Final = _HEAD.size


def message_head(content: bytes) -> bytes:
    """Return the five bytes before a message on a stream."""
    return _HEAD.pack(0, len(content))


def framed(content: bytes) -> bytes:
    """Return a message as it stands on a stream."""
    return _HEAD.pack(0, len(content)) + content


class MessageReader:
    """Puts the pieces of a stream together to messages; holds one at most that is not complete."""

    __slots__ = ("_encoding", "_kept", "_limit_bytes", "_size", "_wanted")

    def __init__(self, limit_bytes: int, encoding: str = "identity") -> None:
        self._limit_bytes = limit_bytes
        self._encoding = encoding
        """What the other end said how its messages are compressed."""
        self._kept: list[bytes] = []
        self._size = 0
        self._wanted = MESSAGE_HEAD_BYTES
        """Below this size there is no message, nor a new length."""

    @property
    def held_bytes(self) -> int:
        """How much of an incomplete message is held."""
        return self._size

    def feed(self, content: bytes) -> list[bytes]:
        """Take a piece; return the messages that it completes. Raises `RpcError` for one that is not taken.

        The length is checked as soon as its bytes are there, and not only with the whole message.
        """
        self._kept.append(content)
        self._size += len(content)
        if self._size < self._wanted:
            return []
        content = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        self._kept = []  # else a large message is in memory three times
        found: list[bytes] = []
        start = 0
        while True:
            self._wanted = MESSAGE_HEAD_BYTES
            if len(content) - start < self._wanted:
                break
            self._wanted += self._message_size(content, start)
            if len(content) - start < self._wanted:
                break
            found.append(content[start + MESSAGE_HEAD_BYTES : start + self._wanted])
            start += self._wanted
        rest = content[start:] if start else content
        self._kept = [rest] if rest else []
        self._size = len(rest)
        return found

    def finish(self) -> None:
        """Take the end of the stream; raises `RpcError` if it cuts a message off."""
        if self._size:
            raise RpcError("Internal", "the stream ended within a message")

    def _message_size(self, content: bytes, start: int) -> int:
        flag, size = _HEAD.unpack_from(content, start)
        if flag > 1:
            raise RpcError("Internal", f"a message with the flags {flag:#x}")
        if flag:
            if self._encoding == "identity":
                raise RpcError("Internal", "a compressed message, though its encoding is identity")
            raise RpcError("Unimplemented", f"Compression algorithm '{self._encoding}' is disabled.")
        if size > self._limit_bytes:
            text = f"Received message larger than max ({size} vs. {self._limit_bytes})"
            raise RpcError("ResourceExhausted", text)
        return int(size)


# ── values in header fields: how long a call may last, and texts that are not ASCII ───────────────


_UNITS: Final = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])").fullmatch
_MOST: Final = 99_999_999
"""Eight digits, whatever the unit."""

_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def _timeout_text(seconds: float) -> str:
    """Return a time as `grpc-timeout` has it: in the finest unit that it fits into, never shorter.

    It has three digits and zeros, so that calls that may take equally long look alike to the other end. The
    caller counts the time for itself.
    """
    for unit, size in _UNITS.items():
        count = math.ceil(max(seconds, 0) / size)
        step = 10 ** max(0, len(str(count)) - 3)
        count = -(-count // step) * step
        if count <= _MOST:
            return f"{count}{unit}"
    return f"{_MOST}H"


def _timeout_seconds(text: str) -> float:
    """Return the time of a `grpc-timeout`; raises ValueError."""
    found = _TIMEOUT(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


def _percent_encoded(text: str) -> bytes:
    """Return a text as `grpc-message` has it: visible ASCII and blanks as they are, other bytes as %XX.

    A blank at either end is no part of a field's value (RFC 9113 8.2.1), so it is written as %20.
    """
    inner = text.strip(" ")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    written = quote_from_bytes(inner.encode(errors="replace"), safe=_PLAIN)
    return f"{'%20' * len(before)}{written}{'%20' * len(after)}".encode()


def _percent_decoded(value: bytes) -> str:
    """Return the text of a `grpc-message`; what is badly encoded stays as it is."""
    return unquote_to_bytes(value).decode(errors="replace")


# ── requests ──────────────────────────────────────────────────────────────────────────────────────


_CONTENT_TYPE: Final = b"application/grpc"


class NotGrpcError(Exception):
    """An HTTP request that is no gRPC call; `http_status` is the status to answer with."""

    def __init__(self, http_status: int, text: str) -> None:
        self.http_status = http_status
        self.text = text
        super().__init__(text)


class Request(Struct, frozen=True):
    """The head of a call: what a server knows before the message."""

    path: str
    timeout_seconds: float | None
    encoding: str


@lru_cache(maxsize=8)
def request_of(fields: tuple[Field, ...]) -> Request:
    """Read the head of a call; raises `NotGrpcError` if it is none, `RpcError` if it is refused at once."""
    found = dict(fields)
    content_type = found.get(b"content-type", b"")
    if not _is_grpc(content_type):
        raise NotGrpcError(415, f"not {_CONTENT_TYPE.decode()}")
    if found.get(b":method") != b"POST":
        raise NotGrpcError(405, "not POST")
    _check_size(fields)
    path = found[b":path"].decode(errors="replace")
    if (given := found.get(b"grpc-timeout")) is None:
        seconds = None
    else:
        try:
            seconds = _timeout_seconds(given.decode("latin-1"))
        except ValueError:
            raise RpcError("Internal", "a malformed grpc-timeout") from None
    return Request(path, seconds, found.get(b"grpc-encoding", b"identity").decode("latin-1"))


def _check_size(fields: Sequence[Field]) -> None:
    """Raise `RpcError` for more fields than we have said that we take."""
    size = list_bytes(fields)
    if size > HEADER_LIST_LIMIT_BYTES:
        text = f"received metadata size exceeds limit ({size} vs. {HEADER_LIST_LIMIT_BYTES})"
        raise RpcError("ResourceExhausted", text)


def _is_grpc(content_type: bytes) -> bool:
    """Whether a content is gRPC's: `application/grpc`, maybe with what is after a plus or a semicolon."""
    rest = content_type.removeprefix(_CONTENT_TYPE)
    return rest != content_type and (not rest or rest[:1] in b"+;")


def request_block(path: str, authority: str, timeout: float | None) -> bytes:
    """Return the header fields of a call."""
    return _request_block(path, authority, None if timeout is None else _timeout_text(timeout))


@lru_cache(maxsize=64)
def _request_block(path: str, authority: str, timeout: str | None) -> bytes:
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        (b"content-type", _CONTENT_TYPE),
        (b"te", b"trailers"),
        (b"user-agent", b"devplug"),
    ]
    return header_block(fields if timeout is None else [*fields, (b"grpc-timeout", timeout.encode())])


# ── outcomes ──────────────────────────────────────────────────────────────────────────────────────


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
        fields.append((b"grpc-message", _percent_encoded(text)))
    return fields


def check_head(fields: Sequence[Field]) -> str:
    """Read the head of an answer; return how its messages are compressed. Raises `RpcError` if it is none."""
    _check_size(fields)
    found = dict(fields)
    http_status = int(found[b":status"])
    content_type = found.get(b"content-type", b"")
    if http_status != 200:
        if b"grpc-status" in found:
            check_trailers(fields)
        text = f"unexpected HTTP status code received from server: {http_status}"
        raise RpcError(status_of_http(http_status), text)
    if not _is_grpc(content_type):
        text = f"received unexpected content-type {content_type.decode('latin-1')!r}"
        raise RpcError("Unknown", text)
    return found.get(b"grpc-encoding", b"identity").decode("latin-1")


def check_trailers(fields: Sequence[Field]) -> None:
    """Read the end of an answer; raises `RpcError` if its status is not OK."""
    _check_size(fields)
    found = dict(fields)
    code = found.get(b"grpc-status", b"")
    text = _percent_decoded(found.get(b"grpc-message", b""))
    if not (code.isdigit() and len(code) < 10):
        raise RpcError("Internal", "the answer ends without a status")
    number = int(code)
    if number:
        raise RpcError(STATUSES[number] if number < len(STATUSES) else "Unknown", text)
