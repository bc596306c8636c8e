"""What each end takes of the other: the settings, their first values, and what they may be (6.5)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from devplug.wire.http2.faults import ConnectionFaultError, ErrorCode
from devplug.wire.http2.frames import LEAST_FRAME_LIMIT_BYTES
from devplug.wire.http2.windows import WINDOW_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PeerSettings", "Setting"]


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
    """What the other end takes, from its first values on; lives as long as the connection."""

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
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a server that wants pushes")
        return self.initial_window - before
