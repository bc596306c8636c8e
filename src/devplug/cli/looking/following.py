"""Nodes that are followed: the status of each, whatever changes, until nobody looks any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.monitor.collecting import Collector
from devplug.pulse import Pulse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.cli.looking.places import NodeFolders
    from devplug.status.values import NodeStatus

__all__ = ["Follower"]

FIRST_SECONDS: Final = 3.0
"""How long the first table waits for those who do not answer."""


class Follower:
    """Follows nodes; lives as long as `run`, and `pulse` beats when the status of one may have changed."""

    def __init__(self, nodes: Sequence[NodeFolders]) -> None:
        self.nodes = tuple(nodes)
        self.pulse = Pulse()
        self._collectors = [
            Collector(one.plugin_dir, one.pod_resources, node_name=one.name) for one in self.nodes
        ]

    def statuses(self) -> tuple[NodeStatus, ...]:
        """Return how the nodes are, in their order."""
        return tuple(one.status() for one in self._collectors)

    async def run(self) -> None:
        """Follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._collectors:
                group.create_task(one.run())
                group.create_task(self._relay(one))

    async def wait_first(self) -> None:
        """Wait until everybody has been asked, in `run`; but not long for one who does not answer."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                for one in self._collectors:
                    await one.wait_first()
        except TimeoutError:
            return

    async def _relay(self, collector: Collector) -> None:
        while True:
            await collector.pulse.next.wait()
            self.pulse.beat()
