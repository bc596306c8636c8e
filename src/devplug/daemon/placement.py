"""The placement of resources: which a machine has, by its name and its labels. Pure.

Also which resource names others claim.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from devplug.daemon.config.types import Config, Resource

__all__ = [
    "claimed_twice",
    "needs_labels",
    "resources_elsewhere",
    "resources_here",
    "resources_of",
]


def resources_here(config: Config, node_name: str, labels: Mapping[str, str] | None) -> list[Resource]:
    """Return the resources that `nodeNames` and `nodeSelector` give to this machine, in file order.

    `labels` are those of its Node, or None as long as nobody knows them: then no resource with a
    `nodeSelector` is here.
    """
    return [
        resource
        for resource in resources_of(config, node_name)
        if not resource.node_selector or (labels is not None and _is_selected(resource, labels))
    ]


def resources_elsewhere(config: Config, node_name: str, labels: Mapping[str, str] | None) -> list[Resource]:
    """Return the resources that are not this machine's, in file order; none that `labels` still decide on."""
    ours = resources_of(config, node_name) if labels is None else resources_here(config, node_name, labels)
    return [resource for resource in config.resources if resource not in ours]


def resources_of(config: Config, node_name: str) -> list[Resource]:
    """Return the resources that `nodeNames` gives to the machine of this name, whatever its labels."""
    return [
        resource
        for resource in config.resources
        if not resource.node_names
        or any(fnmatch.fnmatchcase(node_name, pattern) for pattern in resource.node_names)
    ]


def needs_labels(config: Config, node_name: str) -> bool:
    """Whether the labels of this machine decide on any resource."""
    return any(resource.node_selector for resource in resources_of(config, node_name))


def _is_selected(resource: Resource, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in resource.node_selector.items())


def claimed_twice(names: Iterable[str], claimed: Collection[str]) -> tuple[str, ...]:
    """Return those of our resource names that a DeviceClass claims too, sorted.

    A machine may serve a name by device plugin or by DRA, not both (KEP-5004): of two such sides, each
    counts all devices, and the scheduler gives out more than there are.
    """
    return tuple(sorted({name for name in names if name in claimed}))
