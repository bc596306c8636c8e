"""Flow control: how much may be under way, on a stream or on a connection, in one direction (5.2, 6.9)."""

from __future__ import annotations

from typing import Final

__all__ = ["FIRST_WINDOW", "WINDOW_LIMIT", "ReceiveWindow", "SendWindow"]

FIRST_WINDOW: Final = 0xFFFF
"""What a connection begins with, and a stream without settings (6.9.2)."""

WINDOW_LIMIT: Final = 0x7FFFFFFF
"""No window grows beyond it (6.9.1)."""


class SendWindow:
    """How many bytes the other end takes yet; below zero when it has lowered the first value (6.9.2)."""

    __slots__ = ("room",)

    def __init__(self, room: int = FIRST_WINDOW) -> None:
        self.room = room

    def grow(self, increment: int) -> bool:
        """Take a WINDOW_UPDATE or a new first value; tell whether it may be so (6.9.1)."""
        self.room += increment
        return self.room <= WINDOW_LIMIT


class ReceiveWindow:
    """How many bytes we take yet. They are given back when somebody has read them, by halves of it."""

    __slots__ = ("_owed", "_room", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = size
        self._owed = 0
        """What was read and not yet given back."""

    def take(self, size: int) -> bool:
        """Note that `size` bytes have come; tell whether they were allowed to."""
        self._room -= size
        return self._room >= 0

    def give_back(self, size: int) -> int:
        """Note that `size` bytes were read; return by how much to let the window grow now, mostly by nothing.

        Small ones are collected, or each frame would have an answer (RFC 9113 leaves it open, 5.2.2).
        """
        self._owed += size
        if 2 * self._owed < self._size:
            return 0
        increment, self._owed = self._owed, 0
        self._room += increment
        return increment
