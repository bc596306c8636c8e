"""A listener: the server on one Unix socket, and the file that it owns."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError, PluginError
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.wire.handlers import Binding, Handlers
from devplug.wire.limits import CONNECTIONS_LIMIT, KUBELET_RECEIVE_LIMIT_BYTES, PLUGIN_RECEIVE_LIMIT_BYTES
from devplug.wire.socketfiles import socket_identity
from devplug.wire.transport import server_transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.wire.transport import Server
    from devplug.wire.values import SocketIdentity

SERVERS_KEPT: Final = 8
"""The most servers of lost files that wait for `tidy`, if the socket is removed again and again."""

SUCCESSOR_SECONDS: Final = 0.02
"""How long another process's socket is left at our path: that process may be about to end this one."""


class Listener:
    """A server on one Unix socket, and the owner of the socket's file.

    `bind` makes the file, and makes it again when somebody removed or replaced it; calls and streams that
    came over the lost file go on meanwhile. `close` ends it all and removes the file only if it is still
    ours.

    A transport binds a hidden name that nobody else uses; the socket is then linked to its real name and the
    hidden one removed, or renamed. So the name exists only when it can be called, and never replaces
    another's socket unnoticed.

    Only the four methods `_start`, `_identity_at`, `_move_in` and `_remove` touch the machine; a listener for
    simulations overrides them.
    """

    def __init__(
        self,
        path: Path,
        bindings: tuple[Binding, ...],
        *,
        receive_limit_bytes: int = PLUGIN_RECEIVE_LIMIT_BYTES,
        send_limit_bytes: int = KUBELET_RECEIVE_LIMIT_BYTES,
        admit_call: Callable[[], None] | None = None,
        by_rename: bool = False,
        connections_limit: int = CONNECTIONS_LIMIT,
    ) -> None:
        self.path = path
        self.bindings = bindings
        self.by_rename = by_rename
        """Whether watchers of the folder see the socket moved in, as the kubelet does with that of
        pod-resources (cri-client util_unix.go), and not made."""
        self._handlers = Handlers(
            bindings, receive_limit_bytes, send_limit_bytes, admit_call, connections_limit
        )
        self._servers: list[Server] = []
        self._identity: SocketIdentity | None = None

    def is_bound(self) -> bool:
        """Whether the file at `path` is the socket that this listener made last."""
        return self._identity is not None and self._identity_at(self.path) == self._identity

    def is_replaced(self) -> bool:
        """Whether another program has put a file at `path` in the place of this listener's socket."""
        return self._identity is not None and self._identity_at(self.path) not in {self._identity, None}

    async def bind(self) -> None:
        """Listen at `path` from now on.

        Raises `KubeletError` if the folder does not take the socket, `PluginError` if the path is too long.
        """
        hidden = self.path.with_name(_hidden_name(self.path.name))
        length = max(len(os.fsencode(self.path)), len(os.fsencode(hidden)))
        if length > SOCKET_PATH_LIMIT_BYTES:
            raise PluginError(
                f"socket path {self.path} is {length} bytes; Unix sockets take {SOCKET_PATH_LIMIT_BYTES}: "
                "use a shorter folder",
            )
        if self.is_replaced():
            await asyncio.sleep(SUCCESSOR_SECONDS)
        server = await self._start(hidden)
        try:
            identity = self._identity_at(hidden)
            self._move_in(hidden)
        except OSError as error:
            await server.stop(0)
            raise KubeletError(f"cannot make the socket {self.path}: {error.strerror}") from error
        self._identity = identity
        self._servers.append(server)
        # Those that were replaced may be between two calls of a caller that they still have: see `tidy`.
        await self._drop_idle(self._servers[:-SERVERS_KEPT])

    async def tidy(self) -> None:
        """Stop the servers of lost files that have no calls; call it when nobody can be just connecting."""
        await self._drop_idle(self._servers[:-1])

    async def _drop_idle(self, servers: list[Server]) -> None:
        for server in servers:
            if not server.open_calls:
                self._servers.remove(server)
                await server.stop(0)

    async def close(self, grace_seconds: float = 0, *, keep_file: bool = False) -> None:
        """Stop listening, let calls in flight end within `grace_seconds`, remove our file. Safe to repeat.

        With `keep_file` the socket stays and refuses connections, as after the end of a process.
        """
        if self.is_bound() and not keep_file:
            self._remove()
        self._identity = None
        servers, self._servers = self._servers, []
        try:
            async with asyncio.TaskGroup() as group:
                for server in servers:
                    group.create_task(server.stop(grace_seconds))
        except asyncio.CancelledError:
            # A task that was cancelled before it began has stopped nothing.
            for server in servers:
                await server.stop(0)
            raise

    async def _start(self, path: Path) -> Server:
        """Listen at `path`. Raises `KubeletError` if the folder does not take the socket."""
        return await server_transport().serve(path, self._handlers)

    def _identity_at(self, path: Path) -> SocketIdentity | None:
        """Return the identity of the file at `path`; None if there is none."""
        return socket_identity(path)

    def _move_in(self, hidden: Path) -> None:
        """Give the socket at `hidden` its real name, in place of what has it now.

        Raises `OSError`, and then nothing of it is left.
        """
        try:
            self.path.unlink(missing_ok=True)
            if self.by_rename:
                hidden.rename(self.path)
            else:
                # Watchers of the folder see a file made, as when a Go server binds.
                self.path.hardlink_to(hidden)
                hidden.unlink()
        except OSError:
            hidden.unlink(missing_ok=True)
            raise

    def _remove(self) -> None:
        """Remove the file, if it can be removed."""
        with suppress(OSError):
            self.path.unlink()


def _hidden_name(name: str) -> str:
    """Return a name that no other listener of the folder takes at the same time, in this process or another.

    It is no longer than `name`, and begins as that does: who clears up after a process that was killed half
    way knows whose it was.
    """
    token = os.urandom(3).hex()
    return f".{name[: max(0, len(name) - len(token) - 1)]}{token}"
