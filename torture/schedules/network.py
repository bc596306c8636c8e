"""Unix sockets in memory: files with inodes, the processes that own them, and servers.

As on Linux: a connection is made to who listens at the file that has the name at that moment; it outlives
the file, and ends with either end.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.errors import RemoteError
    from devplug.wire.sockets import Binding
    from torture.schedules.connections import Call, Connection, MemoryPeer
    from torture.schedules.plan import Chance

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Owner:
    """A process: what it has open ends when it is killed."""

    name: str
    is_dead: bool = False
    transports: list[MemoryTransport] = field(default_factory=list)
    peers: list[MemoryPeer] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Node:
    """A file: an inode, which may be a socket that somebody listens at."""

    identity: tuple[int, int, int]
    is_socket: bool = True
    transport: MemoryTransport | None = None
    """Who listens; None for what only looks like a socket, or did once."""


class Network:
    """All sockets of one folder, by file name. Lives as long as its schedule."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: asyncio.TaskGroup, chance: Chance) -> None:
        self.loop = loop
        self.tasks = tasks
        self.chance = chance
        self.nodes: dict[str, Node] = {}
        self.watchers: list[Callable[[str], None]] = []
        """Told the name of each file that comes or goes."""
        self.connections: list[Connection] = []
        """The open ones."""
        self.on_call: Callable[[Owner, str, int], None] = lambda *_: None
        """Told who calls which method, with 1 at the beginning and -1 at the end; not of streams."""
        self.on_arrival: Callable[[Owner, str], None] = lambda *_: None
        """Told whose call of which method a server takes up; not of streams."""
        self.refused: dict[str, RemoteError] = {}
        """Methods that are refused, whoever serves them."""
        self.streams_cut_early = 0
        """How many streams their caller gave up before the server knew of them."""
        self.dials_in_vain = 0
        """How often a kubelet that lives has dialled a plugin, found nobody and waits to dial again."""
        self._free: list[int] = []
        self._next = 10

    # ── files ──

    def new_node(self, *, is_socket: bool = True) -> Node:
        """Return a file without a name. Like most file systems, it takes the last free inode number first."""
        if self._free:
            number = self._free.pop()
        else:
            number = self._next = self._next + 1
        return Node((1, number, int(self.loop.time() * 1e9)), is_socket)

    def note(self, text: str, *facts: object) -> None:
        """Log what happens, for who plays one schedule with its log."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%8.4f  %s", self.loop.time(), text % facts)

    def put(self, name: str, node: Node) -> None:
        """Give a file a name, as link(2) and rename(2) do; whatever had it has it no more."""
        self.note("file %s made, inode %s", name, node.identity[1])
        self.nodes[name] = node
        self.tell(name)

    def remove(self, name: str) -> Node | None:
        """Take the name away. Who listens there goes on, and can be reached no more."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self.note("file %s removed", name)
            if node not in self.nodes.values():
                self._free.append(node.identity[1])
            self.tell(name)
        return node

    def tell(self, name: str) -> None:
        """Tell all who watch that something happened to a name."""
        for watcher in self.watchers:
            watcher(name)

    def listening_at(self, name: str) -> MemoryTransport | None:
        """Return who can be reached at a name; None if a connection would be refused."""
        node = self.nodes.get(name)
        transport = None if node is None else node.transport
        return None if transport is None or transport.is_stopped or not transport.is_listening else transport

    def listens_late(self, transport: MemoryTransport) -> None:
        """Let connections be refused for a moment, as those of a Go server between bind(2) and listen(2)."""

        def listen() -> None:
            transport.is_listening = True

        transport.is_listening = False
        self.after(listen)

    # ── processes ──

    def kill(self, owner: Owner) -> None:
        """End a process at once: its files stay, all that it has open is closed."""
        self.note("%s killed", owner.name)
        owner.is_dead = True
        for transport in owner.transports:
            transport.fall()
        for peer in owner.peers:
            peer.close()

    def after(self, then: Callable[..., None], *arguments: object) -> None:
        """Call something after as long as a message takes."""
        self.loop.call_at(self.loop.time() + self.chance.message(), then, *arguments)


class MemoryTransport:
    """What stands behind a listener: it accepts connections and serves their calls until it is stopped."""

    def __init__(self, network: Network, owner: Owner, bindings: tuple[Binding, ...]) -> None:
        self.network = network
        self.owner = owner
        self.handlers = {binding.method.name: binding.handler for binding in bindings}
        self.open_calls = 0
        self.is_stopped = False
        self.is_listening = True
        self.calls: dict[Call, asyncio.Task[None]] = {}
        self.connections: list[Connection] = []
        self._idle: asyncio.Event | None = None
        owner.transports.append(self)

    async def stop(self, grace_seconds: float) -> None:
        """Accept nothing more, let calls end within the grace, and close all connections."""
        self.is_stopped = True
        if self in self.owner.transports:
            self.owner.transports.remove(self)
        if grace_seconds and self.calls:
            self._idle = asyncio.Event()
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._idle.wait()
            except TimeoutError:
                pass
        self.fall()
        await asyncio.sleep(0)

    def fall(self) -> None:
        """Close everything at once."""
        self.is_stopped = True
        for connection in tuple(self.connections):
            connection.close()

    def done(self, call: Call) -> None:
        """Forget a call that has been served."""
        self.calls.pop(call, None)
        if self._idle is not None and not self.calls:
            self._idle.set()
