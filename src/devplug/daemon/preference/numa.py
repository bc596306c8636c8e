"""The NUMA nodes of a machine, and how far they are from each other, as its firmware says."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.daemon.sources.host import Host

__all__ = ["numa_distances", "numa_nodes"]

_NODES: Final = "/sys/devices/system/node"
_NODE: Final = re.compile(r"node(\d+)")


def numa_nodes(host: Host) -> tuple[int, ...]:
    """Return the numbers of the machine's NUMA nodes in order; some may be missing. None if unknown."""
    try:
        names = os.listdir(host.inside(_NODES))  # noqa: PTH208
    except OSError:
        return ()
    return tuple(sorted(int(found.group(1)) for name in names if (found := _NODE.fullmatch(name))))


def numa_distances(host: Host) -> Mapping[tuple[int, int], int]:
    """Return the distance of each pair of NUMA nodes; 10 is the node itself, empty where nothing is known.

    Each line of a node's `distance` goes over the nodes in the order of their numbers
    (Documentation/ABI/stable/sysfs-devices-node).
    """
    numbers = numa_nodes(host)
    distances: dict[tuple[int, int], int] = {}
    for number in numbers:
        try:
            with open(host.inside(f"{_NODES}/node{number}/distance"), encoding="ascii") as file:  # noqa: PTH123
                row = [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            continue
        distances.update(((number, other), away) for other, away in zip(numbers, row, strict=False))
    return distances
