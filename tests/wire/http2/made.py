"""Frames made by hand, right and wrong, and read again: nothing here uses what it is to judge."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = range(5, 10)
ENHANCE_YOUR_CALM = 11


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def block(*fields: tuple[str, str]) -> bytes:
    """Fields as literals that no table is needed for."""
    return hpack.Encoder().encode([(*field, True) for field in fields], huffman=False)


CALL = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1beta1.DevicePlugin/GetDevicePluginOptions"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
EMPTY_MESSAGE = bytes(5)


def head(stream_id: int, fields: tuple[tuple[str, str], ...] = CALL, *, ends: bool = False) -> bytes:
    flags = END_HEADERS | (END_STREAM if ends else 0)
    return frame(HEADERS, flags, stream_id, block(*fields))


def data(stream_id: int, content: bytes = EMPTY_MESSAGE, *, ends: bool = True) -> bytes:
    return frame(DATA, END_STREAM if ends else 0, stream_id, content)


def call(stream_id: int) -> bytes:
    """A whole call that is answered."""
    return head(stream_id) + data(stream_id)


def settings(*pairs: tuple[int, int], ack: bool = False) -> bytes:
    return frame(SETTINGS, ACK if ack else 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, struct.pack(">I", increment))


def reset(stream_id: int, code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream_id, struct.pack(">I", code))


def ping(content: bytes = b"12345678", *, ack: bool = False) -> bytes:
    return frame(PING, ACK if ack else 0, 0, content)


HELLO = PREFACE + settings()


@dataclass(frozen=True)
class Seen:
    """One frame that was sent by what is judged."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def code(self) -> int:
        """Of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[4:8] if self.kind == GOAWAY else self.payload[:4], "big")


def frames_in(content: bytes) -> list[Seen]:
    found = []
    while len(content) >= 9:
        size = int.from_bytes(content[:3], "big")
        stream_id = int.from_bytes(content[5:9], "big") & 0x7FFFFFFF
        found.append(Seen(content[3], content[4], stream_id, content[9 : 9 + size]))
        content = content[9 + size :]
    assert not content
    return found
