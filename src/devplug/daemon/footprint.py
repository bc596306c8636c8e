"""The memory that a daemon needs for its resources and devices, measured and bounded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.daemon.config.types import Config, Resource

LIMIT_MEBIBYTES: Final = 192
"""The memory limit of the DaemonSet (`resources` in the chart's values)."""

_STEP_MEBIBYTES: Final = 64
_MEBIBYTE: Final = 1 << 20

_DAEMON_BYTES: Final = 36_000_000
_RESOURCE_BYTES: Final = 130_000
"""At rest 85 kB of the process and 9 kB of its sockets in the kernel; the rest are pages, edits of all
resources at once, and kubelets that restart."""
_DEVICE_BYTES: Final = 2_500
"""At rest 1.3 kB, for a replica 0.5 kB; the rest are lists and pages."""


def advised_mebibytes(resources: int, devices: int) -> int:
    """Return the memory limit for so many resources with so many devices together, replicas counted."""
    needed = _DAEMON_BYTES + resources * _RESOURCE_BYTES + devices * _DEVICE_BYTES
    if needed <= LIMIT_MEBIBYTES * _MEBIBYTE:
        return LIMIT_MEBIBYTES
    return -(-needed // (_STEP_MEBIBYTES * _MEBIBYTE)) * _STEP_MEBIBYTES


def devices_of(resource: Resource) -> int:
    """Return how many devices a resource has at least, as its configuration alone shows."""
    return max(1, sum(len(one.ids) for one in resource.discover.static)) * resource.share.replicas


def advised_for(config: Config) -> int:
    """Return the memory limit for what a configuration alone shows, in MiB."""
    return advised_mebibytes(len(config.resources), sum(map(devices_of, config.resources)))
