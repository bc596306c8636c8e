"""The placement of resources: which of them a Node serves, by its name and its labels. Pure."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.daemon.config.types import Config, Resource


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
