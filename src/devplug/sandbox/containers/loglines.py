"""Lines of a container's log: how they stand in the file, and what of them is told to whom. Pure.

They stand there as container runtimes write them: time, stream, F for the end of a line or P for a part of
it, text (kubernetes/design-proposals-archive node/kubelet-cri-logging.md). The stream is always stdout: both
share one pipe, so that what was printed first stands first.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.requests.podlogs import LogOptions

__all__ = ["LINE_LIMIT_BYTES", "LogTeller", "blocks", "nano_stamp", "records", "tail"]

LINE_LIMIT_BYTES: Final = 16 * 1024
"""The longest text of one row; longer lines have several (containerd internal/cri/config: 16 KiB)."""

_BLOCK_BYTES: Final = 64 * 1024
_NANOSECONDS: Final = 1_000_000_000


def nano_stamp(nanoseconds: int) -> str:
    """Return a moment since 1970 to the nanosecond, in UTC (kubelet types RFC3339NanoFixed)."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def records(line: bytes, stamp: str, *, is_complete: bool) -> bytes:
    """Return a line without its end, or a part of one, as rows of the file."""
    parts = [line[start : start + LINE_LIMIT_BYTES] for start in range(0, len(line), LINE_LIMIT_BYTES)]
    last = max(len(parts) - 1, 0)
    return b"".join(
        b"%s stdout %s %s\n" % (stamp.encode(), b"F" if is_complete and number == last else b"P", text)
        for number, text in enumerate(parts or [b""])
        if parts or is_complete
    )


def tail(rows: bytes, count: int) -> bytes:
    """Return the last `count` rows."""
    position = len(rows)
    for _ in range(count + 1):
        if position <= 0:
            return rows
        position = rows.rfind(b"\n", 0, position)
    return rows[position + 1 :]


def blocks(rows: bytes) -> Iterator[bytes]:
    """Yield rows in pieces that can be told without keeping others waiting."""
    start = 0
    while start < len(rows):
        end = rows.find(b"\n", min(start + _BLOCK_BYTES, len(rows) - 1)) + 1 or len(rows)
        yield rows[start:end]
        start = end


class LogTeller:
    """Turns rows into what one reader gets; lives as long as the reading (kubelet logs.go logWriter)."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        since = options.since
        # To the microsecond, that is all that a datetime has; texts of one form sort as the times do.
        self._since = f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z".encode() if since else b""
        self._left_bytes = options.limit_bytes
        self._is_new_line = True

    @property
    def is_done(self) -> bool:
        """Whether the reader has had all the bytes that it asked for."""
        return self._left_bytes is not None and self._left_bytes <= 0

    def tell(self, rows: bytes) -> bytes:
        """Return what the reader gets of these rows."""
        told = b"".join(map(self._told, rows.removesuffix(b"\n").split(b"\n")))
        if self._left_bytes is not None:
            told = told[: max(self._left_bytes, 0)]
            self._left_bytes -= len(told)
        return told

    def _told(self, row: bytes) -> bytes:
        stamp, _, rest = row.partition(b" ")
        _, _, rest = rest.partition(b" ")
        kind, _, line = rest.partition(b" ")
        starts_line, self._is_new_line = self._is_new_line, kind == b"F"
        if stamp < self._since:
            return b""
        prefix = stamp + b" " if self._options.timestamps and starts_line else b""
        return prefix + line + (b"\n" if kind == b"F" else b"")
