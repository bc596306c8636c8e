"""Which devices of a node are shown, as rows of a table: replicas of one device are one row. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

from devplug.cli.looking.views.words import holder
from devplug.devices import HEALTHY
from devplug.monitor.found import found_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.status.values import DeviceStatus, NodeStatus, ResourceStatus

__all__ = ["Group", "chosen", "groups", "is_chosen", "only_unhealthy"]


@dataclass(frozen=True)
class Group:
    """A device as it was found: itself, or all replicas that stand for it."""

    resource_name: str
    name: str
    replicas: int
    devices: tuple[DeviceStatus, ...]

    @cached_property
    def is_healthy(self) -> bool:
        """Whether all of it is."""
        return all(device.is_healthy for device in self.devices)

    @cached_property
    def is_held(self) -> bool:
        """Whether any of it is held, or may be."""
        return any(device.is_held for device in self.devices)

    @cached_property
    def health(self) -> str:
        """The word that all of it has, or how many have the worse one."""
        words = {device.health for device in self.devices}
        if len(words) == 1:
            return words.pop()
        sick = [device.health for device in self.devices if not device.is_healthy]
        return f"{len(sick)} of {len(self.devices)} {'/'.join(sorted({*sick}))}"

    @cached_property
    def since(self) -> float | None:
        """Since when it is as it is, as a Unix time: its last change."""
        return max((device.since for device in self.devices if device.since is not None), default=None)

    @cached_property
    def first_holder(self) -> str:
        """What it is sorted by among the held ones."""
        return min((holder(one) for device in self.devices for one in device.holders), default="")

    @property
    def title(self) -> str:
        """Its name, with the number of its replicas beside it."""
        return f"{self.name} x {self.replicas} replicas" if self.replicas > 1 else self.name


def groups(resource: ResourceStatus) -> list[Group]:
    """Return the devices of a resource as they were found, in the order in which they are listed."""
    return [
        Group(resource.name, one.id, len(one.devices) if one.devices[0].id != one.id else 1, one.devices)
        for one in found_devices(resource)
    ]


def is_chosen(resource_name: str, globs: Sequence[str]) -> bool:
    """Whether a resource is asked for: by its whole name or by its kind; every one is without globs."""
    kind = resource_name.rpartition("/")[2]
    return not globs or any(fnmatchcase(resource_name, one) or fnmatchcase(kind, one) for one in globs)


def chosen(node: NodeStatus, globs: Sequence[str]) -> NodeStatus:
    """Return a node with the resources that are asked for, and with all that is said of the node itself."""
    if not globs:
        return node
    return replace(node, resources=tuple(one for one in node.resources if is_chosen(one.name, globs)))


def only_unhealthy(resources: Iterable[ResourceStatus]) -> tuple[ResourceStatus, ...]:
    """Return resources with those of their devices that are not healthy."""
    return tuple(
        replace(one, devices=tuple(device for device in one.devices if device.health != HEALTHY))
        for one in resources
    )
