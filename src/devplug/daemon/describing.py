"""What the daemon adds to what its plugins say of their devices: nodes, attributes, holders, times. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devplug.daemon.responses import found_name
from devplug.plugin.statuses import health_word
from devplug.status.values import DeviceStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.daemon.grammar.config import Resource
    from devplug.daemon.sources.found import Found
    from devplug.daemon.unplugged import Known
    from devplug.devices import Device
    from devplug.status.values import Holder, ResourceStatus

__all__ = ["ATTRIBUTE_PREFIX", "Answered", "Knowledge", "described", "device_statuses"]

ATTRIBUTE_PREFIX = "attr."
"""Facts that are read from sysfs one file each; there are dozens of them, so status leaves them out."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the container that holds a device was told of it."""

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
    holders: Mapping[str, tuple[Holder, ...]]
    """Of each device that a container may hold, by ID; empty where nobody has named any."""
    since_boot_to_unix_seconds: float
    """What a time of `known` lacks to be a Unix time."""
    is_retired: bool = False
    is_waiting: bool = False
    """Whether it is not advertised because the file says so: `whenNone: wait`."""
    answered: Mapping[str, Answered] = field(default_factory=dict)
    """By device ID."""


def described(status: ResourceStatus, knowledge: Knowledge) -> ResourceStatus:
    """Return a resource's status with what the daemon knows of it as a whole."""
    return replace(
        status,
        fault="" if knowledge.is_waiting else status.fault,
        replicas=knowledge.resource.share.replicas,
        is_retired=knowledge.is_retired,
    )


def device_statuses(
    devices: Iterable[Device], since: Mapping[str, float], knowledge: Knowledge
) -> tuple[DeviceStatus, ...]:
    """Return the statuses of a resource's devices; `since` says since when each has its health."""
    replicas = knowledge.resource.share.replicas
    told: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}

    def status(device: Device) -> DeviceStatus:
        is_held = device.id in knowledge.holders
        name = found_name(device.id, replicas)
        known = knowledge.known.get(name)
        if name not in told:  # once for all replicas
            told[name] = _nodes_and_attributes(known)
        device_nodes, attributes = told[name]
        return DeviceStatus(
            id=device.id,
            health=health_word(device),
            reason=device.health.reason,
            since=since.get(device.id),
            numa_nodes=device.numa_nodes,
            device_nodes=device_nodes,
            attributes=attributes,
            is_held=is_held,
            holders=knowledge.holders.get(device.id, ()),
            leaves_at=None if known is None or is_held else _leaves_at(known, knowledge),
            is_outdated=is_held and known is not None and _is_outdated(device.id, known, knowledge),
        )

    return tuple(map(status, devices))


def _nodes_and_attributes(known: Known | None) -> tuple[tuple[str, ...], dict[str, str]]:
    if known is None:
        return (), {}
    facts = known.found.facts
    attributes = {name: str(facts[name]) for name in facts if not name.startswith(ATTRIBUTE_PREFIX)}
    return _node_paths(known.found) if known.is_present else (), attributes


def _is_outdated(device_id: str, known: Known, knowledge: Knowledge) -> bool:
    answered = knowledge.answered.get(device_id)
    return answered is not None and answered.is_outdated(knowledge.resource, known.found)


def _node_paths(found: Found) -> tuple[str, ...]:
    return tuple(node.real_path or node.host_path for node in found.nodes)


def _leaves_at(known: Known, knowledge: Knowledge) -> float | None:
    keep_seconds = knowledge.resource.when_unplugged.keep_unhealthy_for_seconds
    if known.gone_at is None or keep_seconds == float("inf"):
        return None
    return known.gone_at + keep_seconds + knowledge.since_boot_to_unix_seconds
