"""The placement of resources: which of them a Node serves, by its name and its labels. Pure."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from devplug.daemon.config.types import Config, Resource

__all__ = ["Placement", "claimed_twice", "placement_of"]


class Placement(Struct, frozen=True):
    """The resources of a file for one Node, each in one of three lists, in file order."""

    here: list[Resource]
    """Those that this Node serves by `nodeNames` and `nodeSelector`."""
    elsewhere: list[Resource]
    """Those for other Nodes."""
    waiting: list[Resource]
    """Those whose `nodeSelector` waits for the labels of this Node, which are not read yet."""


def placement_of(config: Config, node_name: str, labels: Mapping[str, str] | None) -> Placement:
    """Return the placement; `labels` are those of the Node by key, or None before they are read."""
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
    """Return the resource names in `names` that a DRA DeviceClass has as well (`claimed`), sorted.

    A Node may serve a resource name by a device plugin or by DRA, not by both (KEP-5004): each side counts
    all devices, and the scheduler allocates more than there are.
    """
    return tuple(sorted(set(names).intersection(claimed)))
