"""Bytes for the wire: frames that are right, that are wrong, and that chance has spoilt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.wire.http2.frames import (
    PREFACE,
    Continuation,
    Data,
    GoAway,
    Headers,
    Ping,
    Reset,
    Settings,
    WindowUpdate,
)
from devplug.wire.http2.headers import header_block

if TYPE_CHECKING:
    from random import Random

HELLO: Final = PREFACE + Settings(()).to_bytes()

_CALL: Final = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/v1beta1.DevicePlugin/Allocate"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
_ANSWER: Final = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_TRAILERS: Final = [(b"grpc-status", b"0"), (b"grpc-message", b"fine")]
_STREAMS: Final = 24


def raw(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """Return a frame that nobody has judged."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def call(stream_id: int, message: bytes, *fields: tuple[bytes, bytes]) -> bytes:
    """Return a whole call of Allocate."""
    content = b"\0" + len(message).to_bytes(4, "big") + message
    head = Headers(stream_id, header_block([*_CALL, *fields]), ends_stream=False, ends_headers=True)
    return head.to_bytes() + Data(stream_id, content, ends_stream=True, size=0).to_bytes()


def frames(random: Random, *, of_client: bool) -> list[bytes]:
    """Return some thousands of frames to choose from: most are right in the right place."""
    head = header_block(_CALL if of_client else _ANSWER)
    blocks = [head, header_block(_TRAILERS), header_block([]), b"\x82", b"\x20" + head, b"\xbe", head[:20]]
    # Some that the table has to be read for, and some that no block is.
    blocks += [
        b"\x40\x01x\x01y" + head,
        b"\xff" * 8,
        b"\x3f\xff\xff\xff\x7f",
        b"\x0f\xff\xff\xff\xff\xff\x00",
    ]
    made: list[bytes] = []
    for _ in range(3000):
        stream_id = 2 * random.randrange(_STREAMS) + (random.random() < 0.98)
        block = random.choice(blocks[:3] if random.random() < 0.97 else blocks)
        ends = random.random() < 0.4
        size = random.choice((0, 1, 5, 100, random.randrange(3000)))
        right = (
            Headers(stream_id, block, ends_stream=ends, ends_headers=random.random() < 0.97).to_bytes(),
            Data(stream_id, bytes(size), ends_stream=ends, size=size).to_bytes(),
            Data(stream_id, random.randbytes(size), ends_stream=ends, size=size).to_bytes(),
            Reset(stream_id, random.randrange(20)).to_bytes(),
            WindowUpdate(stream_id, random.choice((1, 65_535))).to_bytes(),
            WindowUpdate(0, random.choice((1, 65_535))).to_bytes(),
            Settings(((random.randrange(9), random.choice((0, 1, 16_384))),)).to_bytes(),
            Settings((), is_ack=True).to_bytes(),
            Ping(random.randbytes(8), is_ack=ends).to_bytes(),
            GoAway(stream_id, 0, b"bye").to_bytes(),
        )
        wrong = (
            raw(0, 0x8, stream_id, bytes([random.randrange(8)]) + bytes(random.randrange(12))),
            Continuation(stream_id, block, ends_headers=True).to_bytes(),
            WindowUpdate(stream_id, random.choice((0, 0x7FFFFFFF))).to_bytes(),
            Settings(((random.randrange(9), random.choice((2, 1 << 31))),)).to_bytes(),
            raw(random.randrange(256), random.randrange(256), stream_id, random.randbytes(size % 50)),
        )
        made.append(random.choice(wrong if random.random() < 0.03 else right))
    return made


def chain(random: Random, of_client: bool) -> bytes:  # noqa: FBT001 -- said by name at each call
    """Return frames of one stream after another, as a right peer sends them."""
    pieces = []
    for number in range(1, 2 * _STREAMS, 2):
        head = header_block(_CALL if of_client else _ANSWER)
        pieces.append(Headers(number, head, ends_stream=False, ends_headers=True).to_bytes())
        pieces.append(Data(number, bytes(random.randrange(2000)), ends_stream=of_client, size=0).to_bytes())
        if not of_client:
            block = header_block(_TRAILERS)
            pieces.append(Headers(number, block, ends_stream=True, ends_headers=True).to_bytes())
    return b"".join(pieces)


def answers(content: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return what was sent as (kind, flags, stream, payload). Raises ValueError for half a frame."""
    found = []
    while content:
        size = int.from_bytes(content[:3], "big")
        if len(content) < 9 + size:
            raise ValueError(content)
        found.append((content[3], content[4], int.from_bytes(content[5:9], "big"), content[9 : 9 + size]))
        content = content[9 + size :]
    return found


def spoilt(random: Random, content: bytes) -> bytes:
    """Return bytes of which a few are others, missing, or twice there."""
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(content))
        content = content[:place] + random.choice(
            (random.randbytes(1) + content[place + 1 :], content[place + 1 :], content[place - 5 :])
        )
    return content
