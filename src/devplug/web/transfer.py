"""Bytes over a connected socket, within a time: what the server's end and the client's end have in common."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["linger", "send"]

_PIECE_BYTES: Final = 64 * 1024
_DRAIN_BYTES: Final = 4096


async def send(connected: socket.socket, parts: Sequence[bytes], *, seconds: float) -> None:
    """Send all parts, each 64 KiB of them within `seconds`; raises `TimeoutError` and other `OSError`."""
    loop = asyncio.get_running_loop()
    if sum(map(len, parts)) <= _PIECE_BYTES:
        parts = [b"".join(parts)]
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE_BYTES):
            async with asyncio.timeout(seconds):
                await loop.sock_sendall(connected, view[start : start + _PIECE_BYTES])


async def linger(connected: socket.socket, *, seconds: float) -> None:
    """Say that no more will be sent, and wait until the other end closes too.

    What it sent and nobody read would make the kernel reset the connection when it is closed, and the last
    answer may be lost with that (RFC 9112, 9.6).
    """
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # a TimeoutError is one
        connected.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(seconds):
            while await loop.sock_recv(connected, _DRAIN_BYTES):  # noqa: ASYNC110 -- nothing is polled
                await asyncio.sleep(0)  # else a fast sender has the loop for itself
