"""What has changed from one status of a node to the next, as lines that people follow. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.status.values import DeviceStatus, Holder, NodeStatus, ResourceStatus

__all__ = ["Change", "ChangeKind", "differences"]


class ChangeKind(enum.StrEnum):
    """What has happened; the value is what programs read."""

    APPEARED = "appeared"
    """A device is in the list that was not."""
    VANISHED = "vanished"
    """It has left the list."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    HELD = "held"
    """A container got it."""
    RELEASED = "released"
    """A container let go of it."""
    LOST = "lost"
    """It became unhealthy, or left the list, while a container holds it."""
    REGISTERED = "registered"
    NOT_REGISTERED = "not-registered"
    ADDED = "added"
    """There is a resource that was not."""
    REMOVED = "removed"
    READY = "ready"
    NOT_READY = "not-ready"
    CONFIG_REFUSED = "config-refused"
    CONFIG_APPLIED = "config-applied"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that has happened."""

    at: float
    """When the later status was taken, as a Unix time in seconds."""
    kind: ChangeKind
    resource_name: str = ""
    device_id: str = ""
    text: str = ""
    """More about it: the reason, the holder."""

    @property
    def line(self) -> str:
        """It as a sentence without its time."""
        words = (self.resource_name, self.device_id, self.kind.value, self.text and f"({self.text})")
        return " ".join(word for word in words if word)


def differences(before: NodeStatus, after: NodeStatus) -> tuple[Change, ...]:
    """Return what has happened between two statuses of one node, by resource name and device ID."""
    return tuple(_changes(before, after))


def _changes(before: NodeStatus, after: NodeStatus) -> Iterator[Change]:
    old = {one.name: one for one in before.resources}
    new = {one.name: one for one in after.resources}
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield Change(after.at, ChangeKind.ADDED, name)
            yield from _device_changes(after.at, name, {}, _by_id(new[name]))
        elif name not in new:
            yield from _device_changes(after.at, name, _by_id(old[name]), {})
            yield Change(after.at, ChangeKind.REMOVED, name)
        elif old[name] != new[name]:
            yield from _registration(after.at, old[name], new[name])
            yield from _device_changes(after.at, name, _by_id(old[name]), _by_id(new[name]))
    yield from _process_changes(before, after)


def _by_id(resource: ResourceStatus) -> dict[str, DeviceStatus]:
    return {device.id: device for device in resource.devices}


def _registration(at: float, before: ResourceStatus, after: ResourceStatus) -> Iterator[Change]:
    if after.is_registered and (not before.is_registered or before.registered_at != after.registered_at):
        yield Change(at, ChangeKind.REGISTERED, after.name)
    elif before.is_registered and not after.is_registered:
        yield Change(at, ChangeKind.NOT_REGISTERED, after.name, text=after.fault)


def _device_changes(
    at: float, name: str, before: dict[str, DeviceStatus], after: dict[str, DeviceStatus]
) -> Iterator[Change]:
    for device_id in sorted(before.keys() | after.keys()):
        old, new = before.get(device_id), after.get(device_id)
        if old == new:
            continue
        if old is None and new is not None:
            yield Change(at, ChangeKind.APPEARED, name, device_id, new.reason)
        for holder in sorted({*(old.holders if old else ())} - {*(new.holders if new else ())}):
            yield Change(at, ChangeKind.RELEASED, name, device_id, _named(holder))
        for holder in sorted({*(new.holders if new else ())} - {*(old.holders if old else ())}):
            yield Change(at, ChangeKind.HELD, name, device_id, _named(holder))
        if old is not None and new is not None and old.health != new.health:
            kind = ChangeKind.HEALTHY if new.is_healthy else ChangeKind.UNHEALTHY
            yield Change(at, kind, name, device_id, new.reason)
            if new.holders and not new.is_healthy:
                yield Change(at, ChangeKind.LOST, name, device_id, ", ".join(map(_named, new.holders)))
        if old is not None and new is None:
            yield Change(at, ChangeKind.VANISHED, name, device_id)


def _named(holder: Holder) -> str:
    return f"{holder.namespace}/{holder.pod}/{holder.container}"


def _process_changes(before: NodeStatus, after: NodeStatus) -> Iterator[Change]:
    old = {(one.process, one.started_at): one for one in before.processes}
    for process in after.processes:
        was = old.get((process.process, process.started_at))
        if was is None:
            continue
        if was.faults and not process.faults:
            yield Change(after.at, ChangeKind.READY, text=f"process {process.process}")
        elif process.faults and not was.faults:
            yield Change(after.at, ChangeKind.NOT_READY, text="; ".join(process.faults))
        if was.config != process.config and process.config is not None:
            problems = process.config.problems
            if problems:
                yield Change(after.at, ChangeKind.CONFIG_REFUSED, text=problems[0])
            elif was.config is None or was.config.applied_at != process.config.applied_at:
                yield Change(after.at, ChangeKind.CONFIG_APPLIED, text=process.config.file)
