"""Serve and call the API's methods on Unix sockets: the names by which the layers above use gRPC.

Only this package knows gRPC. Another transport takes its place by offering the same names.
"""

from __future__ import annotations

import grpc.aio

from devplug.wire.dialling import Peer, authority_of, connected
from devplug.wire.limits import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.listening import Binding, Listener, socket_identity, stream, unary

__all__ = [
    "SOCKET_PATH_LIMIT_BYTES",
    "Binding",
    "Listener",
    "Peer",
    "authority_of",
    "connected",
    "socket_identity",
    "stream",
    "unary",
]

# gRPC joins its poller thread when its last object is collected, wherever that happens to be, and now and
# then the thread never ends. One reference that is never given back keeps it for the life of the process.
grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it
