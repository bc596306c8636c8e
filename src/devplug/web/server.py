"""The server: it takes connections, no more than its limits allow, and owns all of their tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from devplug.linux.acceptor import Acceptor
from devplug.linux.shares import first_to_go
from devplug.linux.unix_sockets import may_call, peer_of
from devplug.web.addresses import TcpAddress, UnixAddress
from devplug.web.messages import Limits
from devplug.web.sockets import listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

    from devplug.web.addresses import Address
    from devplug.web.connection import Connection
    from devplug.web.messages import Handler

_log: Final = logging.getLogger(__name__)

_USUAL: Final = Limits()
_REFUSED_LIMIT: Final = 16
"""How many refused users are logged, each once."""

_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A reader of a stream whose machine has gone without a word is noticed after a minute (tcp(7))."""


@asynccontextmanager
async def serving(
    address: Address,
    handle: Handler,
    *,
    name: str,
    limits: Limits = _USUAL,
) -> AsyncIterator[Address]:
    """Serve `handle` at `address` while the block lasts; yield the address with its port resolved.

    It is bound when the block is entered, and gone half a second after it is left, at the latest: answers
    under way get `limits.closing_seconds`, streams end in order. `name` is what the log calls the server.
    Raises `ListenError`.
    """
    failure: BaseException | None = None
    async with listening(address) as (listener, actual), asyncio.TaskGroup() as group:
        server = _Server(group, listener, actual, handle, limits, name)
        server.open()
        _log.debug("serving", extra={"server": name, "address": str(actual)})
        try:
            yield actual
        except BaseException as error:  # noqa: BLE001 -- raised below: the group would wrap it
            failure = error
        await server.end()
    if failure is not None:
        raise failure


class _Server:
    """A listening socket and the connections that came over it; lasts as long as the group."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        listener: socket.socket,
        address: Address,
        handle: Handler,
        limits: Limits,
        name: str,
    ) -> None:
        self._group = group
        self._listener = listener
        self._address = address
        self._handle = handle
        self._limits = limits
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(listener, self._take, name)
        self._open: dict[Connection, asyncio.Task[None]] = {}
        self._refused_users: set[int] = set()

    def open(self) -> None:
        """Take connections from now on."""
        self._acceptor.open()

    async def end(self) -> None:
        """Take no more, and bring those that are open to their end."""
        self._acceptor.close()
        self._listener.close()
        for connection in self._open:
            connection.end()
        if tasks := [*self._open.values()]:
            _, late = await asyncio.wait(tasks, timeout=self._limits.closing_seconds)
            for task in late:
                task.cancel()

    def _take(self, opened: socket.socket, address: Any) -> None:  # noqa: ANN401 -- as sockets have it
        peer = self._peer(opened, address)
        if peer is None:
            opened.close()
            return
        try:
            # HTTP itself: 6 ms that the first registration of a daemon does not wait for.
            from devplug.web.connection import Connection
        except (ImportError, OSError) as error:  # no descriptor is left for it, not even to say so
            opened.close()
            _log.warning("cannot accept a connection", extra={"server": self._name, "error": str(error)})
            return
        if isinstance(self._address, TcpAddress):
            _tune(opened)
        connection = Connection(
            opened,
            self._handle,
            self._limits,
            peer=peer,
            may_stream=self._may_stream,
            is_local=isinstance(self._address, UnixAddress),
            is_loopback=isinstance(self._address, TcpAddress) and self._address.is_loopback,
        )
        if len(self._open) >= self._limits.connections:
            out = first_to_go({one: one.standing for one in self._open}, peer)
            self._open.pop(out).cancel()
            # After the task has left the socket; also when it is cancelled before its first step.
            self._loop.call_soon(out.close)
        self._open[connection] = self._group.create_task(self._run(connection))

    def _may_stream(self) -> bool:
        return sum(one.is_streaming for one in self._open) < self._limits.streams

    def _peer(self, opened: socket.socket, address: Any) -> Hashable | None:  # noqa: ANN401 -- as above
        """Return the address or the process at the other end; None for a user who may not ask."""
        if isinstance(self._address, TcpAddress):
            return str(address[0])
        try:
            peer = peer_of(opened)
        except OSError:
            return None
        user = peer.user
        if may_call(user, os.geteuid()):
            return peer
        if user not in self._refused_users and len(self._refused_users) < _REFUSED_LIMIT:
            self._refused_users.add(user)
            _log.warning(
                "a connection of another user was refused, although the socket's file permits it",
                extra={"server": self._name, "user": user, "address": str(self._address)},
            )
        return None

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._open.pop(connection, None)
            self._acceptor.retry_now()


def _tune(opened: socket.socket) -> None:
    with suppress(OSError):  # it is gone already, as the next read will say
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
