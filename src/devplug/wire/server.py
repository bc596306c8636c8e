"""The server of our own transport: which connections it admits, how many, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from devplug.linux.acceptor import Acceptor
from devplug.linux.notifier import Event, within
from devplug.linux.shares import Standing, first_to_go
from devplug.linux.unix_sockets import may_call, peer_of
from devplug.wire.http2.connection import Limits
from devplug.wire.limits import CALLS_AT_ONCE_LIMIT, STREAMS_LIMIT
from devplug.wire.server_connection import Call, ServerConnection
from devplug.wire.socketfiles import bound_socket, discard, why_not
from devplug.wire.statuses import RpcError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from devplug.linux.unix_sockets import Peer
    from devplug.wire.handlers import Handlers

logger = logging.getLogger(__name__)

TOO_MANY_CALLS: Final = "too many calls at once"
TOO_MANY_STREAMS: Final = f"{STREAMS_LIMIT} streams are open, which is the limit"

ACCEPTING_TURNS: Final = 4
"""Turns of the loop from a connection that was accepted to its end, if it is refused."""

_REFUSED_LIMIT: Final = 16
"""How many refused users are logged, each once."""

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
            raise KubeletError(f"cannot listen in {path.parent}: {why_not(path.parent, error)}") from error
        raise
    return server


class UnixServer:
    """A server on one socket; lives until it is stopped, and owns its connections and all of their tasks."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._connections: dict[ServerConnection, Peer] = {}
        """With the process at the other end, in the order of their coming."""
        self._calls: dict[Call, ServerConnection] = {}
        self._streams: dict[Call, ServerConnection] = {}
        """The open calls, in the order of their coming."""
        self._refused_users: set[int] = set()
        self._acceptor: Acceptor | None = None
        self._stack = AsyncExitStack()
        self._is_idle = Event()
        self._is_idle.set()
        self._is_stopping = False

    @property
    def open_calls(self) -> int:
        """How many calls and streams it serves now."""
        return len(self._calls) + len(self._streams)

    async def listen(self, path: Path) -> None:
        """Take connections from now on."""
        group = await self._stack.enter_async_context(asyncio.TaskGroup())

        def new() -> ServerConnection:
            return ServerConnection(self, self._handlers, group, _LIMITS)

        def take(opened: socket.socket, _: object) -> None:
            group.create_task(_begin(new, opened))

        listener = self._stack.enter_context(bound_socket(path))
        listener.listen(2 * self._handlers.connections_limit)
        self._acceptor = Acceptor(listener, take, path.name)
        self._acceptor.open()

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let calls in flight end within the grace, and end the others. Safe to repeat."""
        self._is_stopping = True
        try:
            if self._acceptor is not None:
                await self._turn_away(self._acceptor)
                self._acceptor.listener.close()
            for connection in tuple(self._connections):
                connection.leave()
            if grace_seconds > 0 and self.open_calls:
                await within(grace_seconds, self._is_idle.wait())
        finally:
            connections = tuple(self._connections)
            for connection in connections:
                connection.end()
            await self._stack.aclose()
            for connection in connections:
                await connection.lost.wait()

    async def _turn_away(self, acceptor: Acceptor) -> None:
        """Take no more connections, and refuse those that were just accepted."""
        acceptor.close()
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)

    # ── called by the connections ──

    def admit(self, connection: ServerConnection, transport: asyncio.Transport) -> bool:
        """Let a new connection in, or say that it may not be; close another one if there are too many."""
        if self._is_stopping:
            return False
        peer = peer_of(transport.get_extra_info("socket"))
        if not may_call(peer.user, os.geteuid()):
            self._refuse_user(peer.user)
            return False
        if len(self._connections) >= self._handlers.connections_limit:
            standings = {
                one: Standing(held_by, one.rank, number)
                for number, (one, held_by) in enumerate(self._connections.items())
            }
            out = first_to_go(standings, peer)
            self._connections.pop(out)
            out.abort()
        self._connections[connection] = peer
        return True

    def _refuse_user(self, user: int) -> None:
        """Log a refused user, once: it may try again without end."""
        if user not in self._refused_users and len(self._refused_users) < _REFUSED_LIMIT:
            self._refused_users.add(user)
            logger.warning("a connection of another user was refused", extra={"uid": user})

    def forget(self, connection: ServerConnection) -> None:
        """Note that a connection is gone."""
        self._connections.pop(connection, None)

    def call_begun(self, call: Call, connection: ServerConnection) -> None:
        """Count a call; end another one if there are too many. Raises `RpcError` if none makes room."""
        is_stream = call.binding.method.is_stream
        held, limit = (self._streams, STREAMS_LIMIT) if is_stream else (self._calls, CALLS_AT_ONCE_LIMIT)
        if len(held) >= limit:
            out = _call_to_end(held, connection)
            if held[out] is connection and out.reader is None:
                # The connection of the new call has most itself, and all of them are being answered.
                raise RpcError("ResourceExhausted", TOO_MANY_STREAMS if is_stream else TOO_MANY_CALLS)
            held[out].end_call(out, TOO_MANY_STREAMS if is_stream else TOO_MANY_CALLS)
        held[call] = connection
        self._is_idle.clear()

    def call_ended(self, call: Call) -> None:
        """Count a call as over."""
        self._calls.pop(call, None)
        self._streams.pop(call, None)
        if not self.open_calls:
            self._is_idle.set()


async def _begin(new: Callable[[], ServerConnection], opened: socket.socket) -> None:
    """Have a connection served that was accepted."""
    try:
        await asyncio.get_running_loop().connect_accepted_socket(new, opened)
    except OSError:
        opened.close()  # no descriptor or memory to watch it with; the other end tries again
    except Exception:
        opened.close()
        logger.exception("a connection was dropped because of a bug in devplug")
    except BaseException:
        opened.close()
        raise


def _call_to_end(held: Mapping[Call, ServerConnection], newcomer: ServerConnection) -> Call:
    standings = {
        call: Standing(connection, 0 if call.reader is not None else 1, number)
        for number, (call, connection) in enumerate(held.items())
    }
    return first_to_go(standings, newcomer)
