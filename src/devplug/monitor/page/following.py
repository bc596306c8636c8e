"""Keep the history of several nodes while somebody may want to see it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

from devplug.monitor.history import History
from devplug.monitor.page.view import details, state
from devplug.pulse import Pulse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.monitor.page.state import Details, State
    from devplug.status.values import NodeStatus

__all__ = ["Follower", "Source"]

_FIRST_SECONDS: Final = 3.0
"""How long a node's first status may take; what comes later is a change."""

_SETTLE_SECONDS: Final = 0.1
"""A burst of changes is one look."""

_FRESH_SECONDS: Final = 1.0
_MADE_LIMIT: Final = 16


class Source(Protocol):
    """Where a node's status comes from: a `Collector`."""

    node_name: str
    pulse: Pulse

    def status(self) -> NodeStatus:
        """Return how the node is."""

    async def run(self) -> None:
        """Keep it so, until cancelled."""

    async def wait_first(self) -> None:
        """Wait until everybody has been asked once; in `run`."""


class Follower:
    """What is known of the nodes and was in the last hour; it grows while `run` lasts.

    `pulse` beats when there is something new to see.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.pulse = Pulse()
        self._sources = sources
        self._history = History()
        self._began_at = time.time()
        self._made: dict[str, tuple[History, State]] = {}
        """What was returned last, by filter: many readers ask for the same."""

    async def run(self) -> None:
        """Follow all nodes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(source.run())
                group.create_task(self._follow(source))

    async def _follow(self, source: Source) -> None:
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await source.wait_first()
        except TimeoutError:
            pass  # what is known so far is shown, and says what is missing
        while True:
            changed = source.pulse.next
            self._history = self._history.after(source.status())
            self.pulse.beat()
            await changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)

    def state(self, wanted: str = "") -> State:
        """Return what the page shows now; with `wanted`, only tiles in which that stands."""
        now = time.time()
        made = self._made.get(wanted)
        if made is None or made[0] is not self._history or now - made[1]["at"] > _FRESH_SECONDS:
            names = [source.node_name for source in self._sources]
            made = self._history, state(names, self._history, now, began_at=self._began_at, wanted=wanted)
            if len(self._made) >= _MADE_LIMIT:
                self._made.clear()
            self._made[wanted] = made
        return made[1]

    def details(self, node: str, resource: str, found: str) -> Details | None:
        """Return all that is known of one device, or None."""
        return details(self._history, node, resource, found)
