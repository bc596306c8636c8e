"""Whose turn it is to publish, of the instances of a driver that run side by side on a node.

While a DaemonSet is updated there are two, maybe with different files: if both wrote slices, each would undo
what the other one writes. An instance takes a place behind all others as soon as it is ready, and keeps it
for its life; the last place publishes. So does an instance without a place while nobody has one.

A place is one byte of a file, locked for as long as its owner lives: the kernel lets go of it however the
process ends (fcntl(2), open file description locks). Who does not know this rule takes no place.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_LOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of fcntl(2), as Python is built: type, whence, start, length, process."""


class Turns:
    """The place of one instance in the file at `path`; kept until `close`, and good for another one after."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._place = 0
        """The byte that is locked; 0 without one."""
        self._was_ours = True
        self._has_failed = False

    def is_ours(self, *, is_ready: bool) -> bool:
        """Whether this instance publishes; one that is ready takes a place if it has none.

        If the file cannot be locked, all of them do: as bad as without it.
        """
        try:
            is_ours = self._is_ours(is_ready=is_ready)
        except OSError as error:
            self.close()
            is_ours = True
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "cannot lock the file that says which instance of a driver publishes; two may write "
                    "slices against each other",
                    extra={"path": str(self._path), "reason": error.strerror or str(error)},
                )
        if is_ours != self._was_ours:
            self._was_ours = is_ours
            logger.info(
                "this instance of the driver publishes the slices now"
                if is_ours
                else "another instance of the driver publishes the slices now",
                extra={"path": str(self._path)},
            )
        return is_ours

    def close(self) -> None:
        """Give the place back. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._place = -1, 0

    def _is_ours(self, *, is_ready: bool) -> bool:
        if self._fd >= 0 and not self._is_found():
            self.close()
        if self._fd < 0:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while is_ready and not self._place:
            last = 0
            while following := self._taken_after(last):
                last = following
            if self._try(last + 1):
                self._place = last + 1
        return not self._taken_after(self._place)

    def _is_found(self) -> bool:
        """Whether others find the file that is open here: somebody may have removed it."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def _taken_after(self, place: int) -> int:
        """Return the first place after this one that another instance has; 0 if there is none."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place + 1, 0, 0)
        type_, _, start, _, _ = _LOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, asked))
        return 0 if type_ == fcntl.F_UNLCK else start

    def _try(self, place: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
        except BlockingIOError:
            return False
        return True
