"""The server of our own transport: which connections it admits, how many, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from devplug.linux.notifier import within
from devplug.linux.unix_sockets import may_call, peer_of
from devplug.wire.http2.connection import Limits
from devplug.wire.limits import CALLS_AT_ONCE_LIMIT
from devplug.wire.server_connection import ServerConnection
from devplug.wire.socketfiles import bound_socket, discard, why_not

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.wire.handlers import Handlers

__all__ = ["UnixServer", "least_missed", "start"]

logger = logging.getLogger(__name__)

ACCEPTING_TURNS: Final = 4
"""Turns of the loop from a connection that was accepted to its end, if it is refused."""

_LIMITS: Final = Limits(streams=CALLS_AT_ONCE_LIMIT)


async def start(path: Path, handlers: Handlers) -> UnixServer:
    """Listen at a path where nothing may be. Raises `KubeletError`."""
    server = UnixServer(handlers)
    try:
        await server.listen(path)
    except BaseException as error:
        await server.stop(0)
        discard(path)
        if isinstance(error, OSError):
            raise KubeletError(f"cannot listen in {path.parent}: {why_not(path.parent)}") from error
        raise
    return server


class UnixServer:
    """A server on one socket; lives until it is stopped, and owns its connections and all of their tasks."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._connections: dict[ServerConnection, None] = {}
        """In the order of their coming."""
        self._listening: asyncio.Server | None = None
        self._stack = AsyncExitStack()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_stopping = False
        self.open_calls = 0

    async def listen(self, path: Path) -> None:
        """Take connections from now on."""
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        bound = bound_socket(path)

        def new() -> ServerConnection:
            return ServerConnection(self, self._handlers, group, _LIMITS)

        loop = asyncio.get_running_loop()
        backlog = 2 * self._handlers.connections_limit
        # In two steps, as the first waits for nothing: cancelled in the second, we have what is to be closed.
        self._listening = await loop.create_unix_server(new, sock=bound, backlog=backlog, start_serving=False)
        await self._listening.start_serving()

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let calls in flight end within the grace, and end the others. Safe to repeat."""
        self._is_stopping = True
        try:
            if self._listening is not None:
                await self._turn_away()
                self._listening.close()
            for connection in tuple(self._connections):
                connection.leave()
            if grace_seconds > 0 and self.open_calls:
                await within(grace_seconds, self._is_idle.wait())
        finally:
            if self._listening is not None:
                self._listening.close()
            connections = tuple(self._connections)
            for connection in connections:
                connection.end()
            await self._stack.aclose()
            for connection in connections:
                await connection.lost.wait()

    async def _turn_away(self) -> None:
        """Take no more connections, and refuse those that asyncio has just accepted.

        asyncio begins them in tasks of their own, and leaks their sockets if the server is closed by then.
        """
        assert self._listening is not None
        for listening in self._listening.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)

    # ── called by the connections ──

    def admit(self, connection: ServerConnection, transport: asyncio.Transport) -> bool:
        """Let a new connection in, or say that it may not be."""
        uid = peer_of(transport.get_extra_info("socket")).user
        if self._is_stopping or not may_call(uid, os.geteuid()):
            if not self._is_stopping:
                logger.warning("a connection of another user was refused", extra={"uid": uid})
            return False
        if len(self._connections) >= self._handlers.connections_limit:
            out = least_missed(tuple(self._connections))
            if out is None:
                logger.warning(
                    "a connection was refused: too many are open",
                    extra={"connections": len(self._connections)},
                )
                return False
            self._connections.pop(out)
            out.abort()
        self._connections[connection] = None
        return True

    def forget(self, connection: ServerConnection) -> None:
        """Note that a connection is gone."""
        self._connections.pop(connection, None)

    def call_begun(self) -> bool:
        """Count a call, unless there are too many."""
        if self.open_calls >= CALLS_AT_ONCE_LIMIT:
            return False
        self.open_calls += 1
        self._is_idle.clear()
        return True

    def call_ended(self) -> None:
        """Count a call as over."""
        self.open_calls -= 1
        if not self.open_calls:
            self._is_idle.set()


def least_missed(connections: tuple[ServerConnection, ...]) -> ServerConnection | None:
    """Return the connection to close for a new one: the oldest that has sent nothing, or has no call."""
    silent = (one for one in connections if not one.http.has_settings)
    idle = (one for one in connections if not one.calls)
    return next(silent, None) or next(idle, None)
