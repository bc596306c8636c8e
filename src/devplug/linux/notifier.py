"""The notifier of changes: it wakes all waiters, which then check themselves what has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["Notifier", "within"]


class Notifier:
    """A change that any number of tasks of one loop wait for; lives as long as what changes.

    Take `next` before the look: a change that comes between the look and the wait is not lost then.
    """

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        """That of the next change, if somebody has asked for it."""

    @property
    def next(self) -> asyncio.Event:
        """Set at the next change from now."""
        if self._event is None:
            self._event = asyncio.Event()
        return self._event

    def notify(self) -> None:
        """Wake all waiters."""
        if self._event is not None:
            self._event.set()
            self._event = None


async def within(seconds: float | None, change: Awaitable[object]) -> bool:
    """Wait for a change at most so long, for ever with None; return whether it came in time."""
    try:
        async with asyncio.timeout(seconds):
            await change
    except TimeoutError:
        return False
    return True
