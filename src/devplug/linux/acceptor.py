"""Accepting the connections of one listening socket, for all servers of ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from devplug.linux.exhaustion import RETRY_SECONDS, Shortage

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_AT_ONCE: Final = 64
"""Connections that are accepted before the loop gets its turn."""

_CANNOT_ACCEPT: Final = Shortage("cannot accept connections; trying again")


class Acceptor:
    """Accepts connections from `open` to `close`; where descriptors or memory lack, it tries again.

    asyncio's own servers then log a traceback for each place of their backlog at each try.
    """

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[socket.socket, Any], None],
        name: str,
        *,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.listener = listener
        self._take = take
        self._name = name
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        """Set while none are accepted."""
        self._is_closed = False

    def open(self) -> None:
        """Accept from now on."""
        self._retry = None
        self._loop.add_reader(self.listener, self._accept)

    def retry_now(self) -> None:
        """Try again now if a try has failed: a descriptor was closed.

        Those that wait longest may be gone, and are through at once.
        """
        if self._retry is not None and not self._is_closed:
            self._retry.cancel()
            self.open()

    def close(self) -> None:
        """Accept no more. The listening socket is the caller's. Safe to repeat."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self.listener.fileno() >= 0:
            self._loop.remove_reader(self.listener)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                opened, address = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # The socket stays readable, and the loop would do nothing else.
                self._loop.remove_reader(self.listener)
                self._retry = self._loop.call_later(RETRY_SECONDS, self.open)
                _CANNOT_ACCEPT.report(error, server=self._name)
                self._make_room()
                return
            opened.setblocking(False)  # noqa: FBT003 -- the standard library's
            self._take(opened, address)
