"""The log of one run of a container: a file that is written as the program prints, and is bounded."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from devplug.sandbox.containers.loglines import LINE_LIMIT_BYTES, nano_stamp, records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["LOG_LIMIT_BYTES", "LogFile", "rows_of"]

logger = logging.getLogger(__name__)

LOG_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""How much of a run is kept (the kubelet's default containerLogMaxSize, apis/config/v1beta1/defaults.go)."""


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.older")


def rows_of(path: Path) -> bytes:
    """Return all rows that are kept of a run; none if it has no log."""
    rows = b""
    for file in (_older(path), path):
        try:
            rows += file.read_bytes()
        except FileNotFoundError:
            continue
    return rows


class LogFile:
    """The log of a run that goes on; `close` ends it. Its file stays.

    When half of what may be kept is written, the file becomes the older half, and a new one is begun; so at
    least that much can always be read, where the kubelet's own rotation lets a reader begin with nothing.
    """

    def __init__(
        self,
        path: Path,
        limit_bytes: int = LOG_LIMIT_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Begin the file; `clock` has nanoseconds since 1970."""
        path.parent.mkdir(parents=True, exist_ok=True)
        _older(path).unlink(missing_ok=True)
        self._path = path
        self._half_bytes = limit_bytes // 2
        self._clock = clock
        self._file = path.open("wb", buffering=0)
        self._size_bytes = 0
        self._rest = b""
        self._is_failing = False
        self.written_bytes = 0
        """Of all rows since the beginning, kept or not."""
        self.is_closed = False
        self.news = asyncio.Event()
        """Set, and replaced by another, when something was written, and at the end."""

    def feed(self, printed: bytes) -> None:
        """Write down what the program has printed; the start of a line waits for its end."""
        whole, newline, rest = (self._rest + printed).rpartition(b"\n")
        stamp = nano_stamp(self._clock())
        rows = b""
        if newline:
            rows = b"".join(records(line, stamp, is_complete=True) for line in whole.split(b"\n"))
        if len(rest) >= LINE_LIMIT_BYTES:
            rows += records(rest, stamp, is_complete=False)
            rest = b""
        self._rest = rest
        self._write(rows)

    def close(self) -> None:
        """End the log, with what there is of a last line. Safe to repeat."""
        if self.is_closed:
            return
        if self._rest:
            self._write(records(self._rest, nano_stamp(self._clock()), is_complete=False))
            self._rest = b""
        self.is_closed = True
        self._file.close()
        self._wake()

    def newest(self, count_bytes: int) -> bytes:
        """Return the last rows, so many bytes of them, or as many as are kept."""
        rows = rows_of(self._path)
        return rows[max(len(rows) - count_bytes, 0) :]

    def _write(self, rows: bytes) -> None:
        if not rows:
            return
        try:
            if self._size_bytes and self._size_bytes + len(rows) > self._half_bytes:
                self._path.replace(_older(self._path))
                self._file.close()
                self._file = self._path.open("wb", buffering=0)
                self._size_bytes = 0
            self._file.write(rows)
        except OSError as error:
            if not self._is_failing:
                logger.warning("a container's log cannot be written", extra={"error": str(error)})
            self._is_failing = True
            return
        self._size_bytes += len(rows)
        self.written_bytes += len(rows)
        self._wake()

    def _wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()
