"""The exporter: a node's devices of all plugins, ours and others', as metrics at an address."""

from __future__ import annotations

import asyncio
import platform
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import devplug
from devplug.metrics import catalogue
from devplug.metrics.catalogue import DEVICE_SERIES_LIMIT
from devplug.metrics.devices import driver_families, pod_resources_families, resource_families
from devplug.metrics.families import Family, Sample
from devplug.metrics.probes import Probes
from devplug.monitor.collector import Collector
from devplug.status import text_of
from devplug.web.server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from devplug.status import NodeStatus
    from devplug.web.addresses import Address

_STARTED_AT: Final = time.time()
"""The start of the process, nearly: this module is imported when it starts to serve."""


def node_families(
    status: NodeStatus, *, started_at: float, limit: int, others_only: bool = False
) -> Iterator[Family]:
    """Yield the metric families of a node; at most `limit` devices get series of their own.

    `started_at` is a Unix time in seconds. With `others_only` the resources are left out that processes of
    ours serve: those serve their own metrics.
    """
    resources = [one for one in status.resources if not (others_only and one.is_registered is not None)]
    yield Family(catalogue.BUILD_INFO, [Sample((devplug.__version__, platform.python_version()), 1)])
    yield Family(catalogue.START_TIME, [Sample((), started_at)])
    yield from resource_families(resources, limit)
    if not others_only:
        drivers = [driver for process in status.processes for driver in process.drivers]
        yield from driver_families({one.name: one for one in drivers}.values(), status.at)
    yield from pod_resources_families(status.pod_resources, status.at)
    yield Family(catalogue.EXPORTER_PROCESSES, [Sample((), len(status.processes))])


class Exporter:
    """The metrics of a node at each scrape; lives as long as its collector.

    A scrape is answered whatever the kubelet does: its last answer stays, with the age of that answer.
    """

    def __init__(
        self,
        collector: Collector,
        *,
        device_series_limit: int = DEVICE_SERIES_LIMIT,
        others_only: bool = False,
    ) -> None:
        self._collector = collector
        self._limit = device_series_limit
        self._others_only = others_only

    def probes(self) -> Probes:
        """Return the pages about the node."""
        return Probes(
            status=lambda: text_of(self._collector.status()),
            faults=self._faults,
            notes=lambda: self._collector.status().problems,
            families=self._families,
            notifier=self._collector.notifier,
        )

    def _faults(self) -> tuple[str, ...]:
        pod_resources = self._collector.status().pod_resources
        if pod_resources.trouble:
            return (f"the kubelet does not tell who holds what: {pod_resources.trouble}",)
        return () if pod_resources.answered_at is not None else ("the kubelet has not answered yet",)

    def _families(self) -> Iterator[Family]:
        return node_families(
            self._collector.status(),
            started_at=_STARTED_AT,
            limit=self._limit,
            others_only=self._others_only,
        )


@asynccontextmanager
async def exporting(
    plugin_dir: Path,
    pod_resources: Path,
    *,
    listen: Address,
    node_name: str,
    device_series_limit: int = DEVICE_SERIES_LIMIT,
    others_only: bool = False,
) -> AsyncIterator[Address]:
    """Collect and serve a node's metrics while the block lasts; yield the address with its port resolved.

    `plugin_dir` is the folder with `kubelet.sock`, `pod_resources` the kubelet's socket for monitors; both
    absolute. `others_only` leaves out what processes of ours serve. Raises `ListenError`.
    """
    collector = Collector(plugin_dir, pod_resources, node_name=node_name)
    exporter = Exporter(collector, device_series_limit=device_series_limit, others_only=others_only)
    async with (
        serving(listen, exporter.probes().answer, name="exporter") as address,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(collector.run())
        try:
            yield address
        finally:
            running.cancel()
