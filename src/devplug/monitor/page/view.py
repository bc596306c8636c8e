"""From what is known of the nodes to what the page shows: a pure function of statuses, history and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.errors import one_line
from devplug.monitor.history import WINDOW_SECONDS
from devplug.monitor.page.tiles import TEXT_LIMIT_BYTES, boards, holder_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devplug.monitor.differences import Change
    from devplug.monitor.history import History
    from devplug.monitor.page.state import ChangeLine, Details, Member, NodeView, Process, Resource, State
    from devplug.status.values import DeviceStatus, NodeStatus, ProcessStatus, ResourceStatus

__all__ = ["CHANGES_SHOWN", "TILES_LIMIT", "details", "state"]

TILES_LIMIT: Final = 600
"""Of all nodes together: what a person can look at, and a browser draws at once."""

CHANGES_SHOWN: Final = 40

_LEAST_TILES: Final = 24
"""Of each node, however many there are."""

_LINES_SHOWN: Final = 20
_MEMBERS_SHOWN: Final = 256


def state(
    names: Sequence[str],
    history: History,
    now: float,
    *,
    began_at: float,
    wanted: str = "",
    tiles_limit: int = TILES_LIMIT,
) -> State:
    """Return what the page shows of the nodes with these names at `now`, in their order.

    Its size is bounded whatever the number of devices. `wanted` leaves out tiles in which that text does not
    stand; counts and summaries stay.
    """
    limit = max(_LEAST_TILES, tiles_limit // max(1, len(names)))
    return {
        "at": now,
        "began_at": began_at,
        "window_seconds": WINDOW_SECONDS,
        "filter": wanted,
        "nodes": [
            _node(history.latest[name], history, now, limit, wanted)
            for name in names
            if name in history.latest
        ],
        "waiting": [name for name in names if name not in history.latest],
        "changes": [_change(node, change) for node, change in reversed(history.changes[-CHANGES_SHOWN:])],
    }


def _node(node: NodeStatus, history: History, now: float, limit: int, wanted: str) -> NodeView:
    devices = [device for resource in node.resources for device in resource.devices]
    healthy = sum(device.is_healthy for device in devices)
    found, strips = history.found[node.name], history.strips[node.name]
    made, hidden = boards(found, strips, now, limit=limit, wanted=wanted)
    return {
        "name": node.name,
        "at": node.at,
        "healthy": healthy,
        "unhealthy": len(devices) - healthy,
        "held": sum(device.is_held for device in devices),
        "resources": [_resource(one, len(found.get(one.name, ()))) for one in node.resources],
        "boards": made,
        "processes": [_process(one) for one in node.processes],
        "problems": _lines([*node.problems, *_takeovers(node)]),
        "kubelet_trouble": one_line(node.pod_resources.trouble, TEXT_LIMIT_BYTES),
        "hidden": hidden,
    }


def _takeovers(node: NodeStatus) -> Iterator[str]:
    """Yield what tells of other plugins of our names, unless it stands among the faults."""
    for one in node.resources:
        if one.takeover is not None and not one.fault:
            yield f"{one.name}: {one.takeover.reason}"


def _resource(resource: ResourceStatus, found: int) -> Resource:
    return {
        "name": resource.name,
        "capacity": resource.capacity,
        "found": found,
        "allocatable": resource.allocatable,
        "held": resource.held,
        "replicas": resource.replicas,
        "is_registered": resource.is_registered,
        "registered_at": resource.registered_at,
        "fault": one_line(resource.fault, TEXT_LIMIT_BYTES),
        "is_retired": resource.is_retired,
        "is_ours": resource.process is not None,
    }


def _process(process: ProcessStatus) -> Process:
    config = process.config
    return {
        "process": process.process,
        "version": process.version,
        "started_at": process.started_at,
        "faults": _lines(process.faults),
        "file": "" if config is None else config.file,
        "applied_at": None if config is None else config.applied_at,
        "problems": [] if config is None else _lines(config.lines()),
    }


def _lines(texts: Sequence[str]) -> list[str]:
    shown = [one_line(text, TEXT_LIMIT_BYTES) for text in texts[:_LINES_SHOWN]]
    more = len(texts) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _change(node: str, change: Change) -> ChangeLine:
    return {
        "at": change.at,
        "node": node,
        "kind": change.kind.value,
        "resource": change.resource_name,
        "device": change.device_id,
        "text": one_line(change.text, TEXT_LIMIT_BYTES),
    }


# ── one device ──


def details(history: History, node: str, resource: str, found: str) -> Details | None:
    """Return all there is to know of one device, or None for one that is not remembered."""
    segments = history.strip(node, resource, found)
    devices_of_resource = history.found.get(node, {}).get(resource, ())
    listed = next((one for one in devices_of_resource if one.id == found), None)
    if listed is None and not segments:
        return None
    devices: Sequence[DeviceStatus] = () if listed is None else listed.devices
    worst = None if listed is None else listed.worst
    leaving = [device.leaves_at for device in devices if device.leaves_at is not None]
    return {
        "node": node,
        "id": found,
        "resource": resource,
        "is_listed": listed is not None,
        "health": segments[-1].health if worst is None else worst.health,
        "reason": "" if worst is None else worst.reason,
        "since": segments[-1].since if worst is None else worst.since,
        "leaves_at": min(leaving, default=None),
        "is_outdated": any(device.is_outdated for device in devices),
        "numa_nodes": [] if worst is None else list(worst.numa_nodes),
        "files": [] if worst is None else list(worst.device_nodes),
        "attributes": {} if worst is None else dict(worst.attributes),
        "members": [_member(device) for device in _held_first(devices)[:_MEMBERS_SHOWN]],
        "more_members": max(0, len(devices) - _MEMBERS_SHOWN),
        "segments": [
            {"since": one.since, "health": one.health, "reason": one.reason} for one in reversed(segments)
        ],
    }


def _held_first(devices: Iterable[DeviceStatus]) -> list[DeviceStatus]:
    return sorted(devices, key=lambda device: not device.is_held)


def _member(device: DeviceStatus) -> Member:
    return {
        "id": device.id,
        "health": device.health,
        "reason": device.reason,
        "is_held": device.is_held,
        "holders": [holder_text(holder) for holder in device.holders],
    }
