"""How a test notices that something has changed at its kubelet."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from devplug.kubelet.changes import ChangeKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from devplug.kubelet.manager import Kubelet

__all__ = ["ChangeCount"]


class ChangeCount:
    """Counts a kubelet's changes, on its loop, for waiters on other threads. Lives as long as the kubelet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lists: Counter[str] = Counter()
        self.count = 0

    @asynccontextmanager
    async def counting(self, kubelet: Kubelet) -> AsyncIterator[None]:
        """Count for as long as the block lasts, and wake whoever waits."""
        with kubelet.changes() as changes:

            async def count() -> None:
                async for change in changes:
                    with self._changed:
                        self.count += 1
                        self._lists[change.resource_name] += change.kind is ChangeKind.LISTED
                        self._changed.notify_all()

            async with asyncio.TaskGroup() as group:
                counting = group.create_task(count())
                yield
                counting.cancel()

    def wait_for_next(self, seen: int, timeout_seconds: float) -> None:
        """Wait until there were more changes than `seen`, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != seen, timeout_seconds)

    def lists(self) -> Mapping[str, int]:
        """Return how many lists have come, by resource name."""
        with self._changed:
            return Counter(self._lists)

    def lists_since(self, before: Mapping[str, int]) -> set[str]:
        """Return the resource names for which lists have come since."""
        return {name for name, count in self.lists().items() if count > before.get(name, 0)}
