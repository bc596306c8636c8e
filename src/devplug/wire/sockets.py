"""Unix sockets for the layers above: a server and a client of the API's methods, and an interface for tests.

`transport` chooses what carries the calls.
"""

from __future__ import annotations

import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from devplug.wire.client import Peer, authority_of, connected
from devplug.wire.handlers import Binding, stream, unary
from devplug.wire.limits import CONNECTIONS_LIMIT, PLUGIN_RECEIVE_LIMIT_BYTES
from devplug.wire.listener import Listener
from devplug.wire.socketfiles import socket_identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

__all__ = [
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


class Sockets(Protocol):
    """The interface to Unix sockets: listen, connect, identify, remove. It holds no socket open itself."""

    def listener(
        self,
        path: Path,
        bindings: tuple[Binding, ...],
        *,
        receive_limit_bytes: int = PLUGIN_RECEIVE_LIMIT_BYTES,
        connections_limit: int = CONNECTIONS_LIMIT,
    ) -> Listener:
        """Return a listener for `path` that does not listen yet."""

    def connected(
        self,
        path: Path,
        *,
        ready_within_seconds: float | None = None,
        connect_within_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Peer]:
        """Return a context with a connection to the socket at `path`, as `wire.sockets.connected` does."""

    def identity(self, path: Path) -> tuple[int, int, int] | None:
        """Return what tells the file at `path` from earlier ones at that path; None without a file."""

    def refusing(self, folder: Path, pattern: str) -> Iterator[Path]:
        """Yield the sockets of a folder with matching names at which nobody listens."""

    def remove(self, path: Path) -> None:
        """Remove a file. Raises `OSError`."""


class _UnixSockets:
    """The sockets of this machine."""

    def listener(
        self,
        path: Path,
        bindings: tuple[Binding, ...],
        *,
        receive_limit_bytes: int = PLUGIN_RECEIVE_LIMIT_BYTES,
        connections_limit: int = CONNECTIONS_LIMIT,
    ) -> Listener:
        return Listener(
            path,
            bindings,
            receive_limit_bytes=receive_limit_bytes,
            connections_limit=connections_limit,
        )

    def connected(
        self,
        path: Path,
        *,
        ready_within_seconds: float | None = None,
        connect_within_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Peer]:
        return connected(
            path, ready_within_seconds=ready_within_seconds, connect_within_seconds=connect_within_seconds
        )

    def identity(self, path: Path) -> tuple[int, int, int] | None:
        return socket_identity(path)

    def refusing(self, folder: Path, pattern: str) -> Iterator[Path]:
        for path in sorted(folder.glob(pattern)):
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if not stat.S_ISSOCK(path.lstat().st_mode):
                    continue
                probe.settimeout(0)
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    yield path

    def remove(self, path: Path) -> None:
        path.unlink()


UNIX_SOCKETS: Final[Sockets] = _UnixSockets()
