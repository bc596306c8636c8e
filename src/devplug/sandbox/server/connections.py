"""The connections of the API server: how many there may be, who makes room, and how long each step may take.

The HTTP of one connection is uvicorn's. It accepts without end and waits without end, so that a client which
sends half a request, or nothing, would hold a descriptor for ever. A connection is counted here from its
accept on, before any handshake.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from devplug.linux.acceptor import Acceptor
from devplug.linux.shares import Standing, first_to_go

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Hashable, Mapping

    from uvicorn import Config
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle
    from uvicorn.server import ServerState

logger = logging.getLogger(__name__)

TIME_WAIT: Final = "06"
"""The state of a TCP socket that is closed and has no process any more (include/net/tcp_states.h)."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each step of one may take."""

    connections: int = 512
    """A sandbox of 100 nodes with a driver on each takes about 300. Half of the descriptors at most."""
    handshake_seconds: float = 10.0
    head_seconds: float = 10.0
    """From the connection, or from the first byte of a later request; the real API server waits 32 s."""
    body_seconds: float = 30.0
    reader_seconds: float = 30.0
    """How long a client may leave an answer unread that does not fit into the buffers."""


class HttpConnection(H11Protocol):
    """One connection, after its handshake: uvicorn's protocol, with a time for each step of a request."""

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], limits: ConnectionLimits
    ) -> None:
        super().__init__(config, state, app_state)
        self.limits = limits
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.is_answered = False
        """Whether it has had an answer."""
        self.since = self.loop.time()
        """When it last came a step further."""
        self._deadline: asyncio.TimerHandle | None = None
        self._awaited = ""
        self._expect("head", self.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self.lost.set()
        self._expect("", 0)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the socket at once. Safe to repeat, also after the connection is lost.

        A transport of Python 3.11 that was closed with unsent bytes and has sent them has no event loop any
        more: its own `abort` then raises `AttributeError`.
        """
        if not self.lost.is_set():
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came, and wait for the rest of the request, if there is any."""
        super().data_received(data)
        if self._sends == "SEND_BODY":
            self._expect("body", self.limits.body_seconds)
        elif self._sends == "IDLE" and self.conn.trailing_data[0]:
            self._expect("head", self.limits.head_seconds)
        else:
            self._expect("", 0)

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def on_response_complete(self) -> None:
        """Note an answer; another request may have come meanwhile."""
        self.is_answered, self.since = True, self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for a client that does not read, but not for ever."""
        super().pause_writing()
        self._expect("reader", self.limits.reader_seconds)

    def resume_writing(self) -> None:
        """Go on."""
        self._expect("", 0)
        super().resume_writing()

    @property
    def rank(self) -> int:
        """0 without a whole request, 1 between two requests, 2 while an answer is sent."""
        if self._sends == "SEND_BODY":
            return 0
        if self.is_answering:
            return 2
        return 1 if self.is_answered and not self.conn.trailing_data[0] else 0

    @property
    def _sends(self) -> str:
        """What the client has to send next, by the name of h11's state."""
        return str(self.conn.their_state)

    def _expect(self, what: str, seconds: float) -> None:
        """Abort the connection if `what` is not there in time. The time of one step is not prolonged."""
        if what == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited, self.since = what, self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.abort) if what else None


class _Opened:
    """An accepted connection; `http` is there once its handshake is over."""

    def __init__(self, opened: socket.socket, address: Any) -> None:  # noqa: ANN401 -- as sockets have it
        self.socket = opened
        self.port: int = address[1]
        self.since = asyncio.get_running_loop().time()
        self.http: HttpConnection | None = None

    def standing(self, users: Mapping[int, int]) -> Standing:
        """Return what decides whether it makes room; its peer is the user of the process that connected."""
        peer: Hashable = users.get(self.port, -1)
        if self.http is None:
            return Standing(peer, 0, self.since)
        return Standing(peer, self.http.rank, self.http.since)


class Connections:
    """The connections of one listening socket; they are accepted from `open` to `close`.

    A full server lets the connection go that `first_to_go` names: of the user who has most, first what is
    unfinished.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], HttpConnection],
        tls: ssl.SSLContext | None,
        tasks: asyncio.TaskGroup,
        limits: ConnectionLimits,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._tls = tls
        self._tasks = tasks
        self._limits = limits
        self._limit = min(limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._open: dict[_Opened, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(listener, self._take, "API server", make_room=self._make_any_room)

    def open(self) -> None:
        """Accept from now on."""
        self._listener.setblocking(False)  # noqa: FBT003 -- the standard library's
        self._acceptor.open()

    def close(self) -> None:
        """Accept no more, and end handshakes; what is connected stays. Safe to repeat."""
        self._acceptor.close()
        for one, task in list(self._open.items()):
            if one.http is None:
                task.cancel()

    async def wait_closed(self) -> None:
        """Return at once: as the server of asyncio has it, for uvicorn."""

    def abort(self) -> None:
        """Cut all connections."""
        for one, task in list(self._open.items()):
            task.cancel()
            self._drop(one)

    def _take(self, opened: socket.socket, address: Any) -> None:  # noqa: ANN401 -- as sockets have it
        if len(self._open) >= self._limit:
            self._make_room(address[1])
        one = _Opened(opened, address)
        self._open[one] = self._tasks.create_task(self._serve(one))

    def _make_any_room(self) -> None:
        """Make room for the next connection, whoever opens it: there are no descriptors."""
        if self._open:
            self._make_room(-1)

    def _make_room(self, port: int) -> None:
        users = users_of_ports(_tcp_table(), self._listener.getsockname()[1])
        out = first_to_go({one: one.standing(users) for one in self._open}, users.get(port, -1))
        task = self._open.pop(out)
        task.cancel()
        self._drop(out)

    async def _serve(self, one: _Opened) -> None:
        """Have a connection shake hands, and hold its place until it is closed."""
        try:
            _, one.http = await self._loop.connect_accepted_socket(
                self._protocol,
                one.socket,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.handshake_seconds if self._tls else None,
            )
            await one.http.lost.wait()
        except OSError:
            pass  # no handshake: it is gone, too slow, or speaks something else
        except Exception:
            logger.exception("a connection was dropped because of a bug in devplug")
        finally:
            self._open.pop(one, None)
            self._drop(one)

    def _drop(self, one: _Opened) -> None:
        """Cut a connection; also that of a task which was cancelled before its first step."""
        if one.http is not None:
            one.http.abort()
        else:
            self._loop.call_soon(one.socket.close)  # after the loop has left it


def _tcp_table() -> str:
    """Return the kernel's table of TCP sockets; empty where it cannot be read."""
    try:
        return Path("/proc/net/tcp").read_text(encoding="ascii")
    except OSError:
        return ""


def users_of_ports(table: str, server_port: int) -> dict[int, int]:
    """Return the users of the processes that are connected to a server's port, by their own port. Pure.

    `table` is as in /proc/net/tcp (kernel, Documentation/networking/proc_net_tcp.rst). Another socket may
    have the same port, connected to elsewhere, or wait for late packets, with 0 for its user.
    """
    users: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        words = line.split()
        port, remote = (int(address.rpartition(":")[2], 16) for address in words[1:3])
        if remote == server_port and words[3] != TIME_WAIT:
            users[port] = int(words[7])
    return users
