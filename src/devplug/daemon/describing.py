"""What the daemon adds to what its plugins say of their devices: nodes, attributes, holders, times. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devplug.daemon.responses import found_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from devplug.daemon.grammar.config import Resource
    from devplug.daemon.sources.found import Found
    from devplug.daemon.unplugged import Known
    from devplug.status.values import DeviceStatus, Holder, ResourceStatus

__all__ = ["ATTRIBUTE_PREFIX", "Answered", "Knowledge", "described", "waits_for_devices"]

ATTRIBUTE_PREFIX = "attr."
"""Facts that are read from sysfs one file each; there are dozens of them, so status leaves them out."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the last container that got a device was told of it."""

    resource: Resource
    found: Found

    def is_outdated(self, resource: Resource, found: Found) -> bool:
        """Whether a container would be told something else now."""
        return self.resource.expose != resource.expose or self.found.nodes != found.nodes


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that the daemon knows of one resource's devices at one moment."""

    resource: Resource
    known: Mapping[str, Known]
    """By found name."""
    held_ids: Collection[str]
    holders_of: Callable[[str], Sequence[Holder]]
    """By device ID."""
    since_boot_to_unix_seconds: float
    """What a time of `known` lacks to be a Unix time."""
    is_retired: bool = False
    is_waiting: bool = False
    """Whether it is not advertised because the file says so: `whenNone: wait`."""
    answered: Mapping[str, Answered] = field(default_factory=dict)
    """By found name."""


def described(status: ResourceStatus, knowledge: Knowledge, process: int) -> ResourceStatus:
    """Return a resource's status with all that the daemon knows of it."""
    return replace(
        status,
        devices=tuple(_device(device, knowledge) for device in status.devices),
        fault="" if knowledge.is_waiting else status.fault,
        replicas=knowledge.resource.share.replicas,
        is_retired=knowledge.is_retired,
        process=process,
    )


def waits_for_devices(resource: Resource, status: ResourceStatus, found: Collection[Found] | None) -> bool:
    """Whether a resource keeps quiet until its first device comes, as its `whenNone` says."""
    return resource.when_none == "wait" and found is not None and not found and not status.devices


def _device(device: DeviceStatus, knowledge: Knowledge) -> DeviceStatus:
    is_held = device.id in knowledge.held_ids
    known = knowledge.known.get(found_name(device.id, knowledge.resource.share.replicas))
    if known is None:
        return replace(device, is_held=is_held, holders=tuple(knowledge.holders_of(device.id)))
    found = known.found
    answered = knowledge.answered.get(found.name)
    return replace(
        device,
        device_nodes=_node_paths(found) if known.is_present else (),
        attributes={
            name: str(value) for name, value in found.facts.items() if not name.startswith(ATTRIBUTE_PREFIX)
        },
        is_held=is_held,
        holders=tuple(knowledge.holders_of(device.id)) if is_held else (),
        leaves_at=_leaves_at(known, knowledge, is_held=is_held),
        is_outdated=is_held and answered is not None and answered.is_outdated(knowledge.resource, found),
    )


def _node_paths(found: Found) -> tuple[str, ...]:
    return tuple(node.real_path or node.host_path for node in found.nodes)


def _leaves_at(known: Known, knowledge: Knowledge, *, is_held: bool) -> float | None:
    keep_seconds = knowledge.resource.when_unplugged.keep_unhealthy_for_seconds
    if known.gone_at is None or is_held or keep_seconds == float("inf"):
        return None
    return known.gone_at + keep_seconds + knowledge.since_boot_to_unix_seconds
