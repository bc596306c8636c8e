"""The state file of claims: which were in use, and after it one line for each use that began or ended since.

1. A use that begins is on the disk before `note` returns: one line, and one sync. What ends is not waited
   for: if the machine dies before the disk has it, the use is ended once more, as after a process that died.
2. A line that was cut off, and what follows it, does not count. Lines are put together when they are many, or
   the last write has failed: then the file is replaced as a whole.
3. Only who holds the lock of the claims writes. Lines that wait for one sync share the next.
"""

# Without `from __future__ import annotations`: msgspec would evaluate every text at each start.

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from devplug.driver.claim_uses import ClaimUse
from devplug.linux.durable_file import read_state, write_whole

LINES_LEAST: Final = 64
"""Fewer lines than these are never put together."""


class _Start(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    claims: tuple[ClaimUse, ...]


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line: a use that began, or has other devices now, or the UID of one that ended."""

    begun: ClaimUse | None = None
    ended: str = ""


def state_text(claims: Mapping[str, ClaimUse]) -> str:
    """Return the content of a file without further lines."""
    return msgspec.json.encode(_Start(1, tuple(claims.values()))).decode() + "\n"


def claims_in(content: bytes) -> tuple[dict[str, ClaimUse], int | None]:
    """Return the claims by UID, and the number of lines after the first; None if there is one cut off.

    Raises `msgspec.DecodeError` for a first line that is none.
    """
    first, *lines = content.split(b"\n")
    try:
        claims = {use.uid: use for use in msgspec.json.decode(first, type=_Start).claims}
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    for line in lines[:-1]:
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return claims, None
        if entry.begun is not None:
            claims[entry.begun.uid] = entry.begun
        claims.pop(entry.ended, None)
    return claims, len(lines) - 1 if lines and not lines[-1] else None


class ClaimLog:
    """The owner of the file; lives as long as the driver."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = asyncio.Lock()
        self._lines: int | None = None
        """How many there are after the first; None if the next write has to replace the file."""
        self._waiting: list[Entry] = []
        self._is_sync_due = False
        self._noted = 0
        self._written = 0
        """How many entries were noted, and how many of them the file has."""
        self._read: tuple[int, int, int, int] | None = None
        """The identity of the file as it was read or written last."""

    def is_current(self) -> bool:
        """Whether the file is as it was read or written last. Raises `OSError`."""
        return self._read is not None and self._identity() == self._read

    def read(self) -> dict[str, ClaimUse]:
        """Return the claims by UID, none without a file.

        Raises `OSError`, and `msgspec.DecodeError` for a file that is damaged.
        """
        self._lines = None
        self._read = self._identity()
        try:
            content = read_state(self._path)
        except FileNotFoundError:
            return {}
        claims, self._lines = claims_in(content)
        return claims

    async def note(self, entry: Entry, claims: Mapping[str, ClaimUse], *, is_durable: bool) -> None:
        """Note what has become of `claims`, which has it already. Raises `OSError`: it may be noted or not.

        With `is_durable` the disk has it when this returns.
        """
        self._waiting.append(entry)
        self._is_sync_due |= is_durable
        self._noted += 1
        number = self._noted
        async with self._writing:
            if self._written >= number:
                return  # with another one
            entries, self._waiting = self._waiting, []
            is_sync_due, self._is_sync_due = self._is_sync_due, False
            number = self._noted
            lines = None if self._lines is None else self._lines + len(entries)
            # Best put together where nobody waits for the disk.
            limit = (2 if is_sync_due else 1) * (LINES_LEAST + 2 * len(claims))
            is_whole = lines is None or lines > limit
            content = state_text(claims) if is_whole else _text_of(entries)
            self._lines = self._read = None  # for as long as it is not sure how this ends
            if is_whole:
                await asyncio.to_thread(write_whole, self._path, content)
            else:
                await asyncio.to_thread(_append, self._path, content, is_sync_due)
            self._lines = 0 if is_whole else lines
            self._written = number
            self._read = self._identity()

    def _identity(self) -> tuple[int, int, int, int]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return (0, 0, 0, 0)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _text_of(entries: list[Entry]) -> str:
    return "".join(msgspec.json.encode(entry).decode() + "\n" for entry in entries)


def _append(path: Path, content: str, is_sync_due: bool) -> None:  # noqa: FBT001 -- called by to_thread
    with path.open("ab", buffering=0) as file:
        data = content.encode()
        if file.write(data) != len(data):
            raise OSError(28, os.strerror(28), str(path))  # the disk is full
        if is_sync_due:
            os.fdatasync(file.fileno())
