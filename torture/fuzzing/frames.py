"""HTTP/2 by hand: frames and header blocks (RFC 9113, RFC 7541), right ones and others.

Pure; who sends them is in `raw_clients`.
"""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_LIMIT_BYTES: Final = 16_384
"""What every server takes in one frame, unless it says more (SETTINGS_MAX_FRAME_SIZE)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8


def frame(kind: int, flags: int = 0, stream: int = 0, content: bytes = b"", *, lie: int = 0) -> bytes:
    """Return one frame; `lie` is added to the length that it states."""
    length = (len(content) + lie) % (1 << 24)
    return (
        length.to_bytes(3, "big")
        + bytes([kind % 256, flags % 256])
        + (stream % (1 << 32)).to_bytes(4, "big")
        + content
    )


def setting(number: int, value: int) -> bytes:
    """Return one setting of a SETTINGS frame."""
    return number.to_bytes(2, "big") + (value % (1 << 32)).to_bytes(4, "big")


def greeting(*settings: bytes) -> bytes:
    """Return what a client begins with."""
    return PREFACE + frame(SETTINGS, content=b"".join(settings))


def hpack_number(number: int, prefix_bits: int, first: int = 0) -> bytes:
    """Return a number as HPACK has it, its first byte with the bits of `first`."""
    most = (1 << prefix_bits) - 1
    if number < most:
        return bytes([first | number])
    content = bytearray([first | most])
    number -= most
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)


def _text(content: bytes) -> bytes:
    return hpack_number(len(content), 7) + content


def literal(name: bytes, value: bytes, *, indexed: bool = False) -> bytes:
    """Return a header with its name and value as they are; `indexed`: the other end has to keep it."""
    return (b"\x40" if indexed else b"\x00") + _text(name) + _text(value)


def headers_of(path: str, **changed: bytes | None) -> bytes:
    """Return the header block of a gRPC call; `changed` by names with `_` for `-` and for a leading colon."""
    fields: dict[str, bytes | None] = {
        "_method": b"POST",
        "_scheme": b"http",
        "_path": path.encode(),
        "_authority": b"localhost",
        "content_type": b"application/grpc",
        "te": b"trailers",
        **changed,
    }
    return b"".join(
        literal((":" + name[1:] if name[0] == "_" else name).replace("_", "-").encode(), value)
        for name, value in fields.items()
        if value is not None
    )


def message(content: bytes, *, flag: int = 0, lie: int = 0) -> bytes:
    """Return a message of gRPC; `lie` is added to the length that it states."""
    return bytes([flag]) + ((len(content) + lie) % (1 << 32)).to_bytes(4, "big") + content


def call(path: str, content: bytes, stream: int = 1) -> bytes:
    """Return a whole call, as a right client sends it after its greeting."""
    return frame(HEADERS, END_HEADERS, stream, headers_of(path)) + frame(
        DATA, END_STREAM, stream, message(content)
    )
