"""Which resources a machine has, by its name and its labels, and which names others claim. No I/O."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from devplug.daemon.grammar.config import Config, Resource

__all__ = [
    "claimed_twice",
    "needs_labels",
    "resources_elsewhere",
    "resources_here",
    "resources_of",
    "selector_faults",
]

# Kubernetes: apimachinery, pkg/util/validation/validation.go, IsQualifiedName and IsValidLabelValue.
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LIMIT: Final = 63
_DOMAIN_LIMIT: Final = 253


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


def selector_faults(selector: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each label that no machine can have: its key, and what is wrong with that or with the value."""
    for key, value in selector.items():
        if fault := _key_fault(key):
            yield key, fault
        if fault := _value_fault(value):
            yield key, fault


def _key_fault(key: str) -> str:
    domain, slash, name = key.rpartition("/")
    if slash and (len(domain) > _DOMAIN_LIMIT or not _DOMAIN.fullmatch(domain)):
        return (
            f"{quoted(domain)} cannot stand before the / of a label; "
            f"write a domain in small letters, at most {_DOMAIN_LIMIT} of them"
        )
    if len(name) > _NAME_LIMIT or not _NAME.fullmatch(name):
        return (
            f"{quoted(name)} is not the name of a label; write 1 to {_NAME_LIMIT} letters, digits and -_. "
            "that begin and end with a letter or digit"
        )
    return ""


def _value_fault(value: str) -> str:
    if value and (len(value) > _NAME_LIMIT or not _NAME.fullmatch(value)):
        return (
            f"{quoted(value)} is not a value that a label can have, and no glob; write at most {_NAME_LIMIT} "
            "letters, digits and -_. that begin and end with a letter or digit"
        )
    return ""


def claimed_twice(names: Iterable[str], claimed: Collection[str]) -> tuple[str, ...]:
    """Return those of our resource names that a DeviceClass claims too, sorted.

    A machine may serve a name by device plugin or by DRA, not both (KEP-5004): of two such sides, each
    counts all devices, and the scheduler gives out more than there are.
    """
    return tuple(sorted({name for name in names if name in claimed}))
