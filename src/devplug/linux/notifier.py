"""The notifier of changes: it wakes all waiters, which then check themselves what has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Event:
    """An event that works as `asyncio.Event`, at an eighth of its memory: that one has a deque of 760 bytes.

    A daemon has 17 for each resource.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake all tasks that wait for it."""
        self._is_set = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Have tasks wait for the next `set`."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the event is set; return at once if it is."""
        if self._is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)


class Notifier:
    """A change that any number of tasks of one loop wait for; lives as long as what changes.

    Take `next` before the look: a change that comes between the look and the wait is not lost then.
    """

    def __init__(self) -> None:
        self._event: Event | None = None
        """That of the next change, if somebody has asked for it."""

    @property
    def next(self) -> Event:
        """Set at the next change from now."""
        if self._event is None:
            self._event = Event()
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
