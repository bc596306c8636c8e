"""What all plugins of a program share on the machine."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.plugin.registration import Way

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Surroundings"]

logger = logging.getLogger(__name__)

REGISTRATIONS_AT_ONCE: Final = 16


@dataclass(slots=True)
class Surroundings:
    """The folder with the sockets, how plugins get known there, and how many of them call at once."""

    folder: Path
    way: Way = Way.SOCKET
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REGISTRATIONS_AT_ONCE))
    _said: set[str] = field(default_factory=set)

    def say_once(self, message: str, **facts: object) -> None:
        """Log a warning about the node, once for all plugins until `unsay`."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message, extra=facts)

    def unsay(self, message: str) -> None:
        """Let a warning be given again, because its reason went away."""
        self._said.discard(message)
