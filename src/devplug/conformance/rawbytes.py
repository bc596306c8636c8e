"""Bytes that no right caller sends: requests that are no message, and HTTP/2 frames made by hand. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from devplug.wire.codecs import Codec
from devplug.wire.methods import ALLOCATE, LIST_AND_WATCH, Method

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MALFORMED",
    "NOT_HTTP2",
    "UNKNOWN_METHODS",
    "Malformed",
    "allocate_request",
    "cut_request",
    "headers_of",
    "huge_headers",
    "raw",
]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _CONTINUATION = 0, 1, 4, 9
_END_HEADERS: Final = 4
_FRAME_LIMIT_BYTES: Final = 16384
"""What every server takes in one frame (RFC 9113, SETTINGS_MAX_FRAME_SIZE)."""

_BYTES: Final[Codec[bytes]] = Codec("bytes", lambda content: content, lambda content: content)


def raw(method: Method[Any, Any]) -> Method[bytes, bytes]:
    """Return the method as one that takes and gives bytes as they are."""
    return replace(method, request=_BYTES, response=_BYTES)


UNKNOWN_METHODS: Final[Sequence[Method[bytes, bytes]]] = (
    Method(ALLOCATE.service, "DevplugVerifyNoSuchCall", _BYTES, _BYTES),
    Method("v9.DevicePlugin", LIST_AND_WATCH.name, _BYTES, _BYTES),
    Method("devplug.verify.NoSuchService", "NoSuchCall", _BYTES, _BYTES),
)
"""A method that no version of the API has, a version that there is not, and a service of nobody."""


# ── requests ──


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request that a careful server does not take."""

    name: str
    content: bytes
    must_be_refused: bool
    """Whether it is wrong to every decoder; the others differ in how strict they may be."""


MALFORMED: Final[Sequence[Malformed]] = (
    Malformed("a number without end", b"\xff" * 11, must_be_refused=True),
    Malformed("a message that is cut off", b"\x0a\x20\x0a\x05dev", must_be_refused=True),
    Malformed("a length of 2 GiB", b"\x0a\xff\xff\xff\xff\x07", must_be_refused=True),
    Malformed("a field without a number", b"\x00\x00", must_be_refused=False),
    Malformed("an ID that is not UTF-8", b"\x0a\x04\x0a\x02\xff\xfe", must_be_refused=False),
    Malformed("20,000 groups in each other", b"\x13" * 20_000 + b"\x14" * 20_000, must_be_refused=False),
)


def allocate_request(ids: bytes, *, count: int = 1) -> bytes:
    """Return a request of one container for `count` devices that are all called `ids`."""
    one = b"\x0a" + _varint(len(ids)) + ids
    return b"\x0a" + _varint(len(one) * count) + one * count


def _varint(number: int) -> bytes:
    content = b""
    while number > 0x7F:
        content += bytes([number & 0x7F | 0x80])
        number >>= 7
    return content + bytes([number])


# ── connections ──


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def headers_of(method: Method[Any, Any], **more: str) -> bytes:
    """Return the header block of a call: every field literal, none of them indexed (RFC 7541, 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method.path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        **more,
    }
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    """Return a string as HPACK has it, its length a number with a prefix of 7 bits."""
    content = text.encode()
    length = bytes([len(content)]) if len(content) < 0x7F else b"\x7f" + _varint(len(content) - 0x7F)
    return length + content


def cut_request(method: Method[Any, Any], request: bytes) -> bytes:
    """Return what a caller has sent of a call when its process is killed in the middle of the message."""
    message = b"\x00" + len(request).to_bytes(4, "big") + request
    data = _frame(_DATA, 0, 1, message)
    call = _frame(_HEADERS, _END_HEADERS, 1, headers_of(method))
    return _PREFACE + _frame(_SETTINGS, 0, 0, b"") + call + data[: len(data) - len(request) // 2 - 1]


def huge_headers(method: Method[Any, Any], size_bytes: int) -> bytes:
    """Return the begin of a call with more headers than fit into one frame."""
    block = headers_of(method, x="x" * size_bytes)
    first, rest = block[:_FRAME_LIMIT_BYTES], block[_FRAME_LIMIT_BYTES:]
    frames = _frame(_HEADERS, 0 if rest else _END_HEADERS, 1, first)
    while rest:
        part, rest = rest[:_FRAME_LIMIT_BYTES], rest[_FRAME_LIMIT_BYTES:]
        frames += _frame(_CONTINUATION, 0 if rest else _END_HEADERS, 1, part)
    return _PREFACE + _frame(_SETTINGS, 0, 0, b"") + frames


NOT_HTTP2: Final[Sequence[tuple[str, bytes]]] = (
    ("bytes without sense", bytes((number * number * 167 + 13 * number) % 251 for number in range(4096))),
    ("an HTTP/1 request", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("a greeting that is cut off", _PREFACE[:11]),
    ("settings of the wrong size", _PREFACE + _frame(_SETTINGS, 0, 0, b"\x00" * 5)),
)
"""What a stranger may say on the socket."""
