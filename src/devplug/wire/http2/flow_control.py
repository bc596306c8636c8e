"""The limits of each end: windows in one direction (5.2, 6.9), settings (6.5), and floods (10.5).

In a flood each frame is allowed, and their number is the attack: requests that are reset at once, PING and
SETTINGS that have to be answered, frames without content.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.wire.http2.errors import ConnectionFaultError, ErrorCode
from devplug.wire.http2.frames import LEAST_FRAME_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


# ── windows ───────────────────────────────────────────────────────────────────────────────────────


FIRST_WINDOW: Final = 0xFFFF
"""The first window of a connection, and of a stream without settings (6.9.2)."""

WINDOW_LIMIT: Final = 0x7FFFFFFF
"""The largest window (6.9.1)."""


class SendWindow:
    """The bytes that the other end still accepts; negative if it has lowered the first value (6.9.2)."""

    __slots__ = ("room",)

    def __init__(self, room: int = FIRST_WINDOW) -> None:
        self.room = room

    def grow(self, increment: int) -> bool:
        """Apply a WINDOW_UPDATE or a new first value; return whether it is allowed (6.9.1)."""
        self.room += increment
        return self.room <= WINDOW_LIMIT


class ReceiveWindow:
    """The bytes that we still accept. What was read is given back when it is half of the window."""

    __slots__ = ("_owed", "_room", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = size
        self._owed = 0
        """The bytes that were read and are not given back yet."""

    def take(self, size: int) -> bool:
        """Note that `size` bytes have come; return whether they were allowed."""
        self._room -= size
        return self._room >= 0

    def give_back(self, size: int) -> int:
        """Note that `size` bytes were read; return by how many bytes to open the window now, mostly 0.

        Small sizes are added up, or we would answer each frame (5.2.2 leaves it open).
        """
        self._owed += size
        if 2 * self._owed < self._size:
            return 0
        increment, self._owed = self._owed, 0
        self._room += increment
        return increment


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


class Setting(IntEnum):
    """The identifiers of settings (6.5.2)."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class _Range(Struct, frozen=True):
    least: int
    most: int
    code: ErrorCode


_RANGES: Final[Mapping[int, _Range]] = {
    Setting.ENABLE_PUSH: _Range(0, 1, ErrorCode.PROTOCOL_ERROR),
    Setting.INITIAL_WINDOW_SIZE: _Range(0, WINDOW_LIMIT, ErrorCode.FLOW_CONTROL_ERROR),
    Setting.MAX_FRAME_SIZE: _Range(LEAST_FRAME_LIMIT_BYTES, (1 << 24) - 1, ErrorCode.PROTOCOL_ERROR),
}
"""The values that a setting may have, and the error code for others (6.5.2). Other settings have any."""


class PeerSettings:
    """The settings of the other end, at first the defaults; lives as long as the connection."""

    def __init__(self) -> None:
        self.initial_window = 0xFFFF
        self.frame_limit_bytes = LEAST_FRAME_LIMIT_BYTES
        self.streams_limit: int | None = None
        """How many streams we may have open at once; None for any number."""

    def read(self, pairs: Iterable[tuple[int, int]], *, from_server: bool) -> int:
        """Apply new values; return by how much the windows of all streams grow (6.9.2).

        Raises `ConnectionFaultError` for a value that is not allowed. Unknown settings are ignored, as
        are the limits of header fields: ours are few, and none is put into the other end's table.
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
"""A frame every ten milliseconds is more than any correct caller needs over a long time."""


class FloodGuard:
    """A counter of useless frames; it falls with time and with each call that ends normally."""

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
        """Subtract for a useful frame: gRPC's clients send a PING for each answer that they get."""
        self._strikes = max(0.0, self._strikes - worth)
