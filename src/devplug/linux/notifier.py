"""The notifier of changes: all who wait are woken; what has changed, they look at themselves."""

from __future__ import annotations

import asyncio

__all__ = ["Notifier"]


class Notifier:
    """A change that any number of tasks of one loop wait for; lives as long as what it tells of.

    Take `next` before the look: a change that comes between the look and the wait is not lost then.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """Set at the next change from now."""
        return self._event

    def notify(self) -> None:
        """Wake all who wait."""
        self._event.set()
        self._event = asyncio.Event()
