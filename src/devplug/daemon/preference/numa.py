"""How far the NUMA nodes of a machine are from each other, as its firmware says."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.daemon.sources.host import Host

__all__ = ["numa_distances"]

_NODES: Final = "/sys/devices/system/node"
_NODE: Final = re.compile(r"node(\d+)")


def numa_distances(host: Host) -> Mapping[tuple[int, int], int]:
    """Return the distance of each pair of NUMA nodes; 10 is the node itself, empty where nothing is known.

    Each line of a node's `distance` goes over the nodes in the order of their numbers, of which some may be
    missing (Documentation/ABI/stable/sysfs-devices-node).
    """
    try:
        names = os.listdir(host.inside(_NODES))  # noqa: PTH208
    except OSError:
        return {}
    numbers = sorted(int(found.group(1)) for name in names if (found := _NODE.fullmatch(name)))
    distances: dict[tuple[int, int], int] = {}
    for number in numbers:
        try:
            with open(host.inside(f"{_NODES}/node{number}/distance"), encoding="ascii") as file:  # noqa: PTH123
                row = [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            continue
        distances.update(((number, other), away) for other, away in zip(numbers, row, strict=False))
    return distances
