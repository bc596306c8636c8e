"""Who is at the other end of a Unix socket, and whether he may call: the one rule for all sockets of ours.

The files of our sockets have mode 0600, so nobody else gets that far. This is for a file whose mode somebody
has changed.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["Peer", "may_call", "peer_of"]

_CREDENTIALS: Final = struct.Struct("iII")
"""struct ucred (unix(7)): process, user and group."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process at the other end, as the kernel knew it when it connected, or began to listen."""

    process: int
    """Its number here; 0 if it is in a container whose processes have none here."""
    user: int
    """Its effective user ID, as it is called here: in a user namespace 65534 for one from outside."""


def peer_of(connected: socket.socket) -> Peer:
    """Return who is at the other end of a connected Unix socket; raises `OSError`."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return Peer(process, user)


def may_call(user: int, own_user: int) -> bool:
    """Whether this user may call a server that runs as `own_user`: root may, and the same user."""
    return user in {0, own_user}
