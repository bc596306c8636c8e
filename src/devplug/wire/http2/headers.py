"""Header fields: their blocks as bytes, in any number of frames, and what makes a message malformed (8).

The library hpack does the compression (RFC 7541). What we write keeps no state: every field is a literal
that is never indexed, or an entry of the static table. So blocks are constants, and their lengths tell
nothing about earlier ones (RFC 7541, 7.1.3).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple, OversizedHeaderListError

from devplug.wire.http2.errors import ConnectionFaultError, ErrorCode
from devplug.wire.http2.frames import Continuation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devplug.wire.http2.events import Field
    from devplug.wire.http2.frames import Frame, Headers


# ── what a message may have ───────────────────────────────────────────────────────────────────────


_KEPT_HEADS: Final = 8
"""How many lists of fields are remembered with their result: callers send the same few with each call."""

_NAME: Final = re.compile(rb":?[!-9;-@\[-~]+").fullmatch
"""Visible characters without upper case, and a colon only at the start (8.2.1)."""

_VALUE: Final = re.compile(rb"(?![ \t])[^\0\r\n]*(?<![ \t])").fullmatch
"""No NUL, no line end, no blank at either end (8.2.1)."""

_STATUS_TEXT: Final = re.compile(rb"[^\0\r\n]*").fullmatch
"""Go's gRPC does not strip blanks of a `grpc-message`, and one of the kubelet ends in "desc = "."""

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
"""The pseudo-header fields of a request, and whether they are required (8.3.1)."""

_CONNECT: Final[Mapping[bytes, bool]] = {b":method": True, b":authority": True}
"""Those of a CONNECT (8.5)."""

_RESPONSE: Final[Mapping[bytes, bool]] = {b":status": True}
"""Those of a response (8.3.2)."""


def list_bytes(fields: Sequence[Field]) -> int:
    """Return how large a list is, as SETTINGS_MAX_HEADER_LIST_SIZE counts (6.5.2)."""
    return sum(32 + len(name) + len(value) for name, value in fields)


@lru_cache(maxsize=_KEPT_HEADS)
def wrong_in_request(fields: tuple[Field, ...]) -> str:
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


@lru_cache(maxsize=_KEPT_HEADS)
def content_length(fields: tuple[Field, ...]) -> int | None:
    """Return the content length in bytes (8.1.1), None if no field says it. Raises `ValueError`."""
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


# ── blocks ────────────────────────────────────────────────────────────────────────────────────────


HEADER_LIST_LIMIT_BYTES: Final = 1 << 14
"""The limit that we announce (6.5.2); a longer list is for the user to refuse."""

HEADER_BLOCK_LIMIT_BYTES: Final = 1 << 16
"""The most bytes of a block, and of its fields; a larger one ends the connection (10.5.1).

A few bytes can repeat a long field of the table many times (RFC 7541, 7.3).
"""

CONTINUATIONS_LIMIT: Final = 16
"""The most frames of a block: more than its bytes need in frames of any usual size (10.5.1)."""

NO_TABLE: Final = b"\x20"
"""The start of our first block: it sets the size of our dynamic table to 0 (RFC 7541, 6.3)."""

_KEPT_BLOCKS: Final = 16
_KEPT_BLOCK_BYTES: Final = 1 << 10

_ENCODER: Final = Encoder()
"""One for all connections: it keeps no state as long as all fields are never indexed."""


def header_block(fields: Iterable[Field]) -> bytes:
    """Return fields as a block; joined blocks are a block of all their fields."""
    return _ENCODER.encode([NeverIndexedHeaderTuple(*field) for field in fields], huffman=False)


class BlockReader:
    """A reader of the other end's blocks, in their order; lives as long as the connection."""

    def __init__(self) -> None:
        self._decoder = Decoder(HEADER_BLOCK_LIMIT_BYTES)
        self._known: dict[bytes, tuple[Field, ...]] = {}
        self.head: Headers | None = None
        """The frame that began a block whose end has not come yet."""
        self._parts: list[bytes] = []

    def check_order(self, frame: Frame) -> None:
        """Raise for a frame in the wrong place: nothing comes between the frames of a block (4.3, 6.10)."""
        if self.head is not None:
            if not (isinstance(frame, Continuation) and frame.stream_id == self.head.stream_id):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a frame amid header fields")
        elif isinstance(frame, Continuation):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")

    def begin(self, head: Headers) -> tuple[Field, ...] | None:
        """Take the first frame of a block; return its fields if it is also the last one."""
        if head.ends_headers:
            return self._read(head.fragment)  # one frame is within the limits
        self.head = head
        return self._add(head.fragment, ends_headers=head.ends_headers)

    def go_on(self, frame: Continuation) -> tuple[Field, ...] | None:
        """Take a further frame; return the fields if it is the last one."""
        return self._add(frame.fragment, ends_headers=frame.ends_headers)

    def _add(self, fragment: bytes, *, ends_headers: bool) -> tuple[Field, ...] | None:
        self._parts.append(fragment)
        if len(self._parts) > CONTINUATIONS_LIMIT or sum(map(len, self._parts)) > HEADER_BLOCK_LIMIT_BYTES:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "header fields without an end")
        if not ends_headers:
            return None
        block, self.head, self._parts = b"".join(self._parts), None, []
        return self._read(block)

    def _read(self, block: bytes) -> tuple[Field, ...]:
        """Return the fields of a block; one that cannot be read ends the connection (4.3)."""
        fields = self._known.get(block)
        if fields is not None:
            return fields
        try:
            fields = tuple((field[0], field[1]) for field in self._decoder.decode(block, raw=True))
        except OversizedHeaderListError:
            text = f"more than {HEADER_BLOCK_LIMIT_BYTES} bytes of header fields"
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, text) from None
        except HPACKError as error:
            raise ConnectionFaultError(ErrorCode.COMPRESSION_ERROR, f"a bad header block: {error}") from None
        self._keep(block, fields)
        return fields

    def _keep(self, block: bytes, fields: tuple[Field, ...]) -> None:
        """Keep the fields of a block as long as the table does not change.

        Callers send the same few blocks with each call.
        """
        if len(block) <= _KEPT_BLOCK_BYTES and len(self._known) < _KEPT_BLOCKS and _leaves_table(block):
            self._known[block] = fields
        else:
            self._known.clear()


def _leaves_table(block: bytes) -> bool:
    """Whether a valid block leaves the dynamic table unchanged."""
    at = 0
    while at < len(block):
        first = block[at]
        if first >= 0x80:  # a field of the table (RFC 7541, 6.1)
            at, _ = _integer(block, at, 0x7F)
        elif first >= 0x20:  # one that goes in (6.2.1), or another size of the table (6.3)
            return False
        else:  # one that does not go in (6.2.2, 6.2.3), with a name of the table or its own
            at, name = _integer(block, at, 0x0F)
            for _ in range(1 if name else 2):
                at, size = _integer(block, at, 0x7F)
                at += size
    return True


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """Return where an integer ends, and its value (RFC 7541, 5.1)."""
    value = block[at] & prefix
    at += 1
    if value < prefix:
        return at, value
    shift = 0
    while True:
        value += (block[at] & 0x7F) << shift
        at += 1
        shift += 7
        if block[at - 1] < 0x80:
            return at, value
