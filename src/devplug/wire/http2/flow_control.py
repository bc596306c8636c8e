"""The limits of each end: windows in one direction (5.2, 6.9), settings (6.5), and floods (10.5).

Each single frame of a flood is allowed; that there are very many is the attack: requests that are reset at
once, PING and SETTINGS that want answers, frames without content.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from devplug.wire.http2.errors import ConnectionFaultError, ErrorCode
from devplug.wire.http2.frames import LEAST_FRAME_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "FIRST_WINDOW",
    "WINDOW_LIMIT",
    "FloodGuard",
    "PeerSettings",
    "ReceiveWindow",
    "SendWindow",
    "Setting",
]


# ── windows ───────────────────────────────────────────────────────────────────────────────────────


FIRST_WINDOW: Final = 0xFFFF
"""What a connection begins with, and a stream without settings (6.9.2)."""

WINDOW_LIMIT: Final = 0x7FFFFFFF
"""No window grows beyond it (6.9.1)."""


class SendWindow:
    """The bytes that the other end still takes; negative when it has lowered the first value (6.9.2)."""

    __slots__ = ("room",)

    def __init__(self, room: int = FIRST_WINDOW) -> None:
        self.room = room

    def grow(self, increment: int) -> bool:
        """Take a WINDOW_UPDATE or a new first value; return whether it is allowed (6.9.1)."""
        self.room += increment
        return self.room <= WINDOW_LIMIT


class ReceiveWindow:
    """The bytes that we still take. They are given back when somebody has read them, by halves of it."""

    __slots__ = ("_owed", "_room", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = size
        self._owed = 0
        """What was read and not yet given back."""

    def take(self, size: int) -> bool:
        """Note that `size` bytes have come; return whether they were allowed."""
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


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


class Setting(IntEnum):
    """The identifiers (6.5.2)."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class _Range(NamedTuple):
    least: int
    most: int
    code: ErrorCode


_RANGES: Final[Mapping[int, _Range]] = {
    Setting.ENABLE_PUSH: _Range(0, 1, ErrorCode.PROTOCOL_ERROR),
    Setting.INITIAL_WINDOW_SIZE: _Range(0, WINDOW_LIMIT, ErrorCode.FLOW_CONTROL_ERROR),
    Setting.MAX_FRAME_SIZE: _Range(LEAST_FRAME_LIMIT_BYTES, (1 << 24) - 1, ErrorCode.PROTOCOL_ERROR),
}
"""What a value may be, and the fault that another one is (6.5.2); the rest may be anything."""


class PeerSettings:
    """The settings of the other end, from its first values on; lives as long as the connection."""

    def __init__(self) -> None:
        self.initial_window = 0xFFFF
        self.frame_limit_bytes = LEAST_FRAME_LIMIT_BYTES
        self.streams_limit: int | None = None
        """How many streams we may have at once; None for any number."""

    def read(self, pairs: Iterable[tuple[int, int]], *, from_server: bool) -> int:
        """Take new values; return by how much the windows of all streams grow (6.9.2).

        Raises `ConnectionFaultError` for a value that may not be. What is unknown is ignored, and so are the
        limits of header fields: ours are few, and none goes into the other end's table.
        """
        before = self.initial_window
        for identifier, value in pairs:
            allowed = _RANGES.get(identifier)
            if allowed and not allowed.least <= value <= allowed.most:
                raise ConnectionFaultError(allowed.code, f"{Setting(identifier).name} of {value}")
            if identifier == Setting.INITIAL_WINDOW_SIZE:
                self.initial_window = value
            elif identifier == Setting.MAX_FRAME_SIZE:
                self.frame_limit_bytes = value
            elif identifier == Setting.MAX_CONCURRENT_STREAMS:
                self.streams_limit = value
            elif identifier == Setting.ENABLE_PUSH and value and from_server:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a server that enables push")
        return self.initial_window - before


# ── floods ────────────────────────────────────────────────────────────────────────────────────────


STRIKES_LIMIT: Final = 1000
FORGIVEN_PER_SECOND: Final = 100.0
"""More than any right caller makes over a long time: a frame that is answered every ten milliseconds."""


class FloodGuard:
    """Counts strikes, which wear off with time and with calls that were brought to their end."""

    __slots__ = ("_since", "_strikes")

    def __init__(self) -> None:
        self._strikes = 0.0
        self._since = 0.0

    def strike(self, now: float) -> bool:
        """Count one useless frame, at a time in seconds; return whether the limit still allows it."""
        forgiven = (now - self._since) * FORGIVEN_PER_SECOND
        self._since = now
        self._strikes = max(0.0, self._strikes - forgiven) + 1
        return self._strikes <= STRIKES_LIMIT

    def reward(self, worth: float = 1.0) -> None:
        """Count a useful frame: gRPC's clients send a PING for each answer that they get."""
        self._strikes = max(0.0, self._strikes - worth)
