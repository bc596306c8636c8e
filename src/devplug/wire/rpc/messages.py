"""Messages on a stream: each with a length before it, and none compressed ("Length-Prefixed-Message")."""

from __future__ import annotations

import struct
from typing import Final

from devplug.wire.rpc.faults import RpcError

__all__ = ["MESSAGE_HEAD_BYTES", "MessageReader", "framed", "message_head"]

_HEAD: Final = struct.Struct(">BI")
MESSAGE_HEAD_BYTES: Final = _HEAD.size


def message_head(content: bytes) -> bytes:
    """Return what stands before a message on a stream."""
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

        The length is judged as soon as it is there, and not when all the rest is.
        """
        self._kept.append(content)
        self._size += len(content)
        if self._size < self._wanted:
            return []
        content = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
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
