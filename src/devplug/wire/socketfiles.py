"""The file of a Unix socket: its mode, which only its owner and root pass, and its identity."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.wire.values import SocketIdentity


def bound_socket(path: Path) -> socket.socket:
    """Make a socket at `path`, where nothing may be, that does not listen yet. Raises `OSError`.

    Until it listens nobody can connect; then only its owner and root can.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.bind(os.fsencode(path))
        keep_private(path)
    except BaseException:
        made.close()
        raise
    return made


def keep_private(path: Path) -> None:
    """Let nobody but root and the owner reach the socket at `path`."""
    path.chmod(0o600)


def discard(path: Path) -> None:
    """Remove a file, if there is one and it can be."""
    with suppress(OSError):
        path.unlink()


def socket_identity(path: Path) -> SocketIdentity | None:
    """Return the identity of the file at `path`, which no earlier file at the path had; None without a file.

    Device, inode and modification time: most file systems use an inode number again at once.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def why_not(folder: Path, error: OSError) -> str:
    """Return why no socket can be made in a folder, where that failed with `error`."""
    if not folder.is_dir():
        return (
            "the folder does not exist; mount it from the machine, or name the kubelet's with --kubelet-root"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        return "no right to write there; run as uid 0, or mount it writable"
    return error.strerror or str(error)
