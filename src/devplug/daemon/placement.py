"""The placement of resources: which a machine has, by its name and its labels. Pure.

Also which resource names others claim.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from devplug.daemon.config.types import Config, Resource

__all__ = ["Placement", "claimed_twice", "placement_of"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The resources of a file as one machine sees them, each in one of three lists, in file order."""

    here: list[Resource]
    """Those that `nodeNames` and `nodeSelector` give to this machine."""
    elsewhere: list[Resource]
    """Those that are for other machines."""
    waiting: list[Resource]
    """Those that the labels of this machine decide on, as long as nobody knows them."""


def placement_of(config: Config, node_name: str, labels: Mapping[str, str] | None) -> Placement:
    """Return which resources a machine has; `labels` are those of its Node, or None if nobody knows them."""
    placement = Placement([], [], [])
    for resource in config.resources:
        patterns, selector = resource.node_names, resource.node_selector
        if patterns and not any(fnmatch.fnmatchcase(node_name, pattern) for pattern in patterns):
            placement.elsewhere.append(resource)
        elif selector and labels is None:
            placement.waiting.append(resource)
        elif labels is None or selector.items() <= labels.items():
            placement.here.append(resource)
        else:
            placement.elsewhere.append(resource)
    return placement


def claimed_twice(names: Iterable[str], claimed: Collection[str]) -> tuple[str, ...]:
    """Return those of our resource names that a DeviceClass claims too, sorted.

    A machine may serve a name by device plugin or by DRA, not both (KEP-5004): of two such sides, each
    counts all devices, and the scheduler gives out more than there are.
    """
    return tuple(sorted(set(names).intersection(claimed)))
