"""Serve and call the API's methods on Unix sockets: the names by which the layers above use gRPC.

What carries the calls is chosen in `transports`.
"""

from __future__ import annotations

from devplug.wire.answering import Binding, stream, unary
from devplug.wire.dialling import Peer, authority_of, connected
from devplug.wire.face import UNIX_SOCKETS, Sockets
from devplug.wire.limits import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.listening import Listener
from devplug.wire.socketfiles import socket_identity

__all__ = [
    "SOCKET_PATH_LIMIT_BYTES",
    "UNIX_SOCKETS",
    "Binding",
    "Listener",
    "Peer",
    "Sockets",
    "authority_of",
    "connected",
    "socket_identity",
    "stream",
    "unary",
]
