"""A node as metric families, as the exporter tells it. Pure."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import devplug
from devplug.metrics import catalogue
from devplug.metrics.devices import pod_resources_families, resource_families
from devplug.metrics.families import Family, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.status.values import NodeStatus

__all__ = ["node_families"]


def node_families(
    status: NodeStatus, *, started_at: float, limit: int, others_only: bool = False
) -> Iterator[Family]:
    """Yield what there is to tell of a node; at most `limit` devices get series of their own.

    `started_at` is a Unix time in seconds. With `others_only` the resources are left out that processes of
    ours serve: those tell of them at an address of their own.
    """
    resources = [one for one in status.resources if not (others_only and one.is_registered is not None)]
    yield Family(catalogue.BUILD_INFO, [Sample((devplug.__version__, platform.python_version()), 1)])
    yield Family(catalogue.START_TIME, [Sample((), started_at)])
    yield from resource_families(resources, limit)
    yield from pod_resources_families(status.pod_resources, status.at)
    yield Family(catalogue.EXPORTER_PROCESSES, [Sample((), len(status.processes))])
