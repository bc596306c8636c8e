"""Unix sockets: paths that are too long for the kernel, and the process at the other end.

The files of our sockets have mode 0600, so nobody else gets as far as a connection. Whether a peer may call
is asked for a file whose mode somebody has changed: the one rule for all sockets of ours.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# ── peer credentials ──

_CREDENTIALS: Final = struct.Struct("iII")
"""struct ucred (unix(7)): process, user and group."""


class Peer(Struct, frozen=True):
    """A process at the other end, as the kernel knew it when it connected, or began to listen."""

    process: int
    """Its process ID as seen from here; 0 if it is in a container whose processes have none here."""
    user: int
    """Its effective user ID, as it is called here: in a user namespace 65534 for one from outside."""


def peer_of(connected: socket.socket) -> Peer:
    """Return who is at the other end of a connected Unix socket; raises `OSError`."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return Peer(process, user)


def may_call(user: int, own_user: int) -> bool:
    """Whether this user may call a server that runs as `own_user`: root may, and the same user."""
    return user in {0, own_user}


# ── paths ──

SOCKET_PATH_LIMIT_BYTES: Final = 107
"""The longest that `bind` and `connect` take: `sun_path` holds 108 bytes with its end mark (unix(7))."""


@contextmanager
def within_reach(path: Path) -> Iterator[bytes]:
    """Yield what to bind or connect for the socket at `path`; good while the block lasts.

    A long path is reached through an open descriptor of its folder, by /proc/self/fd (proc(5)). Raises
    `OSError` if the folder cannot be opened.
    """
    name = os.fsencode(path)
    if len(name) <= SOCKET_PATH_LIMIT_BYTES:
        yield name
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield os.fsencode(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
