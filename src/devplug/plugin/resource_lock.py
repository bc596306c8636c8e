"""The lock of a resource name in a plugin folder, and the sockets that its owner makes there."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from devplug.holds.ledger_store import resource_mark
from devplug.wire.sockets import UNIX_SOCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from devplug.wire.sockets import Sockets


LOCK_FOLDER: Final = ".devplug"
"""Beside the sockets: the kubelet removes sockets from its folder at start, never folders (manager.go)."""

_RANDOM: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
"""What the random part of a socket's name is made of; in a container each daemon has the same PID."""

# A pattern as text: `re` compiles and keeps it at its first use, which most daemons never have.
_MADE: Final = r"devplug-[0-9a-f]{12}-[0-9]+-[0-9a-z]{5}\.sock"


def _mark(resource_name: str) -> str:
    return f"devplug-{resource_mark(resource_name)}"


def has_file_of(file_names: Iterable[str], resource_name: str) -> bool:
    """Whether a file in the lock folder is about this resource: then a devplug process has served it."""
    mark = resource_mark(resource_name)
    return any(mark in name for name in file_names)


def new_socket_name(resource_name: str) -> str:
    """Return a file name that no other process has used: a successor never inherits a path.

    At most 40 bytes, whatever the resource name (kubernetes/kubernetes#139338 tells why it is unique).
    """
    random = "".join(_RANDOM[byte % len(_RANDOM)] for byte in os.urandom(5))
    return f"{_mark(resource_name)}-{os.getpid()}-{random}.sock"


def is_made_here(file_name: str) -> bool:
    """Whether a socket's file name is one that devplug makes."""
    return re.fullmatch(_MADE, file_name) is not None


class ResourceLock:
    """The right to serve one resource name in one folder: a file lock, which also ends with the process."""

    def __init__(self, folder: Path, resource_name: str) -> None:
        self.path = folder / LOCK_FOLDER / f"{_mark(resource_name)}.lock"
        self.wanted_path = self.path.with_suffix(".wanted")
        """A file that a process keeps locked while it waits for the lock."""
        self._fd = -1
        self._wanted_fd = -1

    def take(self) -> str | None:
        """Try to take the lock; return its holder, or None if it is ours now. Raises `OSError`."""
        self.release()
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 64, 0).decode(errors="replace").strip() or "another process"
            os.close(fd)
            self._want()
            return holder
        self._fd = fd
        self._stop_wanting()
        if not self.is_held():  # its former owner removed the file between our open and our lock
            self.release()
            return "another process"
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()}\n".encode(), 0)
        return None

    def _want(self) -> None:
        """Show the owner of the lock that we wait for it. Each try makes a new file, which wakes it."""
        with suppress(OSError):
            self._wanted_fd = os.open(self.wanted_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._wanted_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _stop_wanting(self) -> None:
        if self._wanted_fd >= 0:
            with suppress(OSError):
                self.wanted_path.unlink()
            os.close(self._wanted_fd)
            self._wanted_fd = -1

    def is_wanted(self) -> bool:
        """Whether another process waits for the lock; false where that cannot be known."""
        return _is_locked(self.wanted_path) is True

    def is_left(self) -> bool:
        """Whether a process that held the lock was killed: one that ends well removes the file."""
        return os.path.exists(self.path) and self.is_free()  # noqa: PTH110 -- raises nothing without rights

    def is_free(self) -> bool:
        """Whether no process holds the lock; false where that cannot be known."""
        return _is_locked(self.path) is False

    def is_held(self) -> bool:
        """Whether we hold the lock and its file is still at its path."""
        if self._fd < 0:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return False
        ours = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """Give the lock back and remove its file, if it is ours. Safe to repeat."""
        self._stop_wanting()
        if self._fd < 0:
            return
        if self.is_held():
            with suppress(OSError):
                self.path.unlink()
            with suppress(OSError):
                self.path.parent.rmdir()  # only succeeds for the last owner
        os.close(self._fd)
        self._fd = -1


def _is_locked(path: Path) -> bool | None:
    """Whether a process keeps a file locked; None if that cannot be known, as without descriptors."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return False if isinstance(error, FileNotFoundError) else None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove_stale_sockets(folder: Path, resource_name: str, sockets: Sockets = UNIX_SOCKETS) -> list[str]:
    """Remove the sockets that dead owners of this name left behind, and return their file names.

    Call it with the lock held: then nobody of ours serves the name, and a socket of ours that refuses
    connections has no owner. Sockets of anybody else are never touched.
    """
    removed = []
    mark = _mark(resource_name)
    # A socket is made under a hidden name, which stays if its maker is killed just then.
    for path in chain(sockets.refusing(folder, f"{mark}-*.sock"), sockets.refusing(folder, f".{mark}-*")):
        with suppress(OSError):
            sockets.remove(path)
            removed.append(path.name)
    return removed
