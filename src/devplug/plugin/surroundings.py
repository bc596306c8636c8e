"""What all plugins of a program share on the machine."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.plugin.ownership import new_socket_name
from devplug.plugin.registration import Way
from devplug.watching import shared_watcher
from devplug.wire.sockets import UNIX_SOCKETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from devplug.watching import Watcher
    from devplug.wire.sockets import Sockets

__all__ = ["Surroundings"]

logger = logging.getLogger(__name__)

REGISTRATIONS_AT_ONCE: Final = 16


@dataclass(slots=True)
class Surroundings:
    """The folder with the sockets, how plugins get known there, and how many of them call at once."""

    folder: Path
    way: Way = Way.SOCKET
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REGISTRATIONS_AT_ONCE))
    sockets: Sockets = UNIX_SOCKETS
    watching: Callable[[], AbstractAsyncContextManager[Watcher]] = shared_watcher
    name_socket: Callable[[str], str] = new_socket_name
    """Returns, for a resource name, a file name that no socket has had yet."""
    _said: set[str] = field(default_factory=set)

    def say_once(self, message: str, **facts: object) -> None:
        """Log a warning about the node, once for all plugins until `unsay`."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message, extra=facts)

    def unsay(self, message: str) -> None:
        """Let a warning be given again, because its reason went away."""
        self._said.discard(message)
