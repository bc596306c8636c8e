"""The state of the page, made from statuses, history and time: boards, their tiles, and details. Pure."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby, islice, zip_longest
from typing import TYPE_CHECKING, Final

from devplug.devices import UNHEALTHY
from devplug.errors import one_line
from devplug.monitor.history import WINDOW_SECONDS, slots
from devplug.monitor.node_view import is_unanswered
from devplug.monitor.words import driver_sentence, is_stale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from devplug.monitor.history import Change, History, Segment
    from devplug.monitor.node_view import PhysicalDevice
    from devplug.monitor.page.state import (
        Board,
        ChangeLine,
        ClaimUse,
        Details,
        Driver,
        Member,
        NodeView,
        Process,
        Resource,
        State,
        Tile,
        TileGroup,
    )
    from devplug.status import (
        DeviceClaim,
        DeviceStatus,
        DriverStatus,
        Holder,
        NodeStatus,
        ProcessStatus,
        ResourceStatus,
    )


TEXT_LIMIT_BYTES: Final = 300
"""Of a text that somebody else wrote; on the page there is little room, and an event has to stay small."""

_HOLDERS_SHOWN: Final = 3
_CLAIMS_SHOWN: Final = 16
_FILES_SHOWN: Final = 3
_NAMES_SHOWN: Final = 3
_NUMBER: Final = re.compile(r"([0-9]+)")

_Place = tuple[tuple[int, ...], str]
"""NUMA nodes and resource name."""

_RANKS: Final[tuple[Callable[[PhysicalDevice], bool], ...]] = (
    lambda device: not device.worst.is_healthy,
    lambda device: device.worst.is_healthy and device.held > 0,
    lambda device: device.worst.is_healthy and device.held == 0,
)
"""The order in which tiles are drawn where there is no room for all."""

TILES_LIMIT: Final = 600
"""Of all nodes together: what a person can look at, and a browser draws at once."""

CHANGES_SHOWN: Final = 40
_LEAST_TILES: Final = 24
"""Of each node, however many there are."""

_LINES_SHOWN: Final = 20
_MEMBERS_SHOWN: Final = 256


# ── tiles ─────────────────────────────────────────────────────────────────────────────────────────


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return what sorts `tty10` after `tty9`."""
    return tuple(
        (int(part[:18]), part) if part.isascii() and part.isdigit() else (-1, part)
        for part in _NUMBER.split(text)
    )


def _holder_text(holder: Holder) -> str:
    """Return a holder as people write it."""
    return f"{holder.namespace}/{holder.pod} ({holder.container})"


def _claims(devices: Iterable[DeviceStatus]) -> list[str]:
    """Return the claims that use devices, each once."""
    named = (f"claim {claim.namespace}/{claim.name}" for device in devices for claim in device.claims)
    return [*dict.fromkeys(named)]


def _boards(
    devices: Mapping[str, Sequence[PhysicalDevice]],
    strips: Mapping[tuple[str, str], tuple[Segment, ...]],
    now: float,
    *,
    limit: int,
    wanted: str = "",
) -> tuple[list[Board], int]:
    """Return the boards of a node with at most `limit` tiles, and how many more there would be.

    `devices` are by resource name. Where not all can be drawn, the unhealthy ones come first, then those that
    are held, and each resource has its turn. On its board a resource with an unhealthy device stands before
    the others, and in it that device. `wanted` leaves tiles out in which it does not stand, whatever
    the case of its letters.
    """
    found = {
        resource: [one for one in those if not wanted or wanted.casefold() in _searched(resource, one)]
        for resource, those in devices.items()
    }
    drawn: dict[_Place, list[PhysicalDevice]] = {}
    for resource, device in _chosen(found, limit):
        drawn.setdefault((_numa_nodes(device), resource), []).append(device)
    counts = Counter((_numa_nodes(one), resource) for resource, those in found.items() for one in those)
    made: list[Board] = []
    unwell = {place for place, those in drawn.items() if not all(one.worst.is_healthy for one in those)}
    ordered = sorted(
        counts, key=lambda place: (not place[0], len(place[0]), place[0], place not in unwell, place[1])
    )
    for numa_nodes, places in groupby(ordered, key=lambda place: place[0]):
        groups: list[TileGroup] = []
        for place in places:
            resource = place[1]
            shown = sorted(drawn.get(place, ()), key=lambda one: (one.worst.is_healthy, natural(one.id)))
            tiles = [_tile(resource, one, strips.get((resource, one.id), ()), now) for one in shown]
            groups.append({"resource": resource, "tiles": tiles, "hidden": counts[place] - len(tiles)})
        made.append({"numa_nodes": list(numa_nodes), "title": _title(numa_nodes), "groups": groups})
    return made, counts.total() - sum(map(len, drawn.values()))


def _chosen(
    found: Mapping[str, Sequence[PhysicalDevice]], limit: int
) -> Iterator[tuple[str, PhysicalDevice]]:
    """Yield what is drawn, with its resource's name."""
    left = limit
    for is_of_rank in _RANKS:
        of_rank = [[(name, one) for one in those if is_of_rank(one)] for name, those in sorted(found.items())]
        turns = (one for turn in zip_longest(*of_rank) for one in turn if one is not None)
        for one in islice(turns, left):
            left -= 1
            yield one


def _numa_nodes(device: PhysicalDevice) -> tuple[int, ...]:
    numa_nodes = device.worst.numa_nodes
    return numa_nodes if len(numa_nodes) < 2 else tuple(sorted({*numa_nodes}))


def _title(numa_nodes: Sequence[int]) -> str:
    match [str(node) for node in numa_nodes]:
        case []:
            return "No NUMA node"
        case [one]:
            return f"NUMA node {one}"
        case [*first, last]:
            return f"NUMA nodes {', '.join(first)} and {last}"
    return ""


def _searched(resource: str, device: PhysicalDevice) -> str:
    worst = device.worst
    texts: Iterable[str] = (
        device.id,
        resource,
        worst.health,
        worst.reason,
        *map(_holder_text, device.holders),
        *_claims(device.devices),
        *worst.device_nodes,
    )
    return "\n".join(texts).casefold()


def _tile(resource: str, found: PhysicalDevice, segments: Sequence[Segment], now: float) -> Tile:
    worst = found.worst
    holders = [*map(_holder_text, found.holders)] or _claims(found.devices)
    leaving = [device.leaves_at for device in found.devices if device.leaves_at is not None]
    return {
        "id": found.id,
        "resource": resource,
        "health": worst.health,
        "reason": one_line(worst.reason, TEXT_LIMIT_BYTES),
        "since": worst.since,
        "leaves_at": min(leaving, default=None),
        "is_outdated": any(device.is_outdated for device in found.devices),
        "replicas": len(found.devices),
        "held": found.held,
        "holders": holders[:_HOLDERS_SHOWN],
        "more_holders": max(0, len(holders) - _HOLDERS_SHOWN),
        "files": [one_line(file, TEXT_LIMIT_BYTES) for file in worst.device_nodes[:_FILES_SHOWN]],
        "strip": slots(segments, now),
    }


# ── page ──────────────────────────────────────────────────────────────────────────────────────────


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
        "changes": _changes(history.changes),
    }


def _node(node: NodeStatus, history: History, now: float, limit: int, wanted: str) -> NodeView:
    devices = [device for resource in node.resources for device in resource.devices]
    healthy = sum(device.is_healthy for device in devices)
    unhealthy = sum(device.health == UNHEALTHY for device in devices)
    found, strips = history.found[node.name], history.strips[node.name]
    made, hidden = _boards(found, strips, now, limit=limit, wanted=wanted)
    return {
        "name": node.name,
        "at": node.at,
        "healthy": healthy,
        "unhealthy": unhealthy,
        "not_known": len(devices) - healthy - unhealthy,
        "held": sum(device.is_held for device in devices),
        "resources": [_resource(one, len(found.get(one.name, ()))) for one in node.resources],
        "drivers": [_driver(one, now) for process in node.processes for one in process.drivers],
        "boards": made,
        "processes": [_process(one) for one in node.processes],
        "problems": _lines([*node.problems, *_unanswered(node), *_takeovers(node)]),
        "kubelet_trouble": one_line(node.pod_resources.trouble, TEXT_LIMIT_BYTES),
        "hidden": hidden,
    }


def _unanswered(node: NodeStatus) -> Iterator[str]:
    """Yield one sentence on all resources whose daemon does not answer, and what to do."""
    names = [one.name for one in node.resources if is_unanswered(one)]
    if names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        yield (
            f"No devplug daemon answers for {', '.join(names[:_NAMES_SHOWN])}{more}: health and free devices "
            "are not known, and new pods get none. Pods keep the devices that they hold. Start the daemon: "
            f"see kubectl -n devplug get pods, or the service of devplug run on {node.name}"
        )


def _takeovers(node: NodeStatus) -> Iterator[str]:
    """Yield a sentence for each resource that another plugin took over, unless it is among the faults."""
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
        "fault": "not known" if is_unanswered(resource) else one_line(resource.fault, TEXT_LIMIT_BYTES),
        "is_retired": resource.is_retired,
        "is_ours": resource.process is not None,
        "driver": resource.driver,
    }


def _driver(driver: DriverStatus, now: float) -> Driver:
    return {
        "text": one_line(driver_sentence(driver, now), TEXT_LIMIT_BYTES),
        "is_well": driver.is_registered and not driver.fault and not is_stale(driver, now),
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


def _changes(changes: Sequence[tuple[str, Change]]) -> list[ChangeLine]:
    """Return the last changes, the newest first; equal ones and those of several devices are one line."""
    shown: list[ChangeLine] = []
    line_of: dict[tuple[object, ...], int] = {}
    devices: list[set[str]] = []
    looks: list[set[float]] = []
    for node, change in reversed(changes):
        same = (node, change.kind, change.resource_name, change.text)
        number = line_of.get((*same, change.at), line_of.get((*same, change.device_id)))
        if number is None:
            if len(shown) == CHANGES_SHOWN:
                continue
            number = len(shown)
            shown.append(_change(node, change))
            devices.append(set())
            looks.append(set())
        devices[number].add(change.device_id)
        looks[number].add(change.at)
        line_of[*same, change.at] = line_of[*same, change.device_id] = number
    for line, those, times in zip(shown, devices, looks, strict=True):
        line["more_devices"], line["times"] = len(those) - 1, len(times)
    return shown


def _change(node: str, change: Change) -> ChangeLine:
    return {
        "times": 1,
        "more_devices": 0,
        "at": change.at,
        "node": node,
        "kind": change.kind.value,
        "resource": change.resource_name,
        "device": change.device_id,
        "text": one_line(change.text, TEXT_LIMIT_BYTES),
    }


# ── one device ────────────────────────────────────────────────────────────────────────────────────


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
        "holders": [_holder_text(holder) for holder in device.holders],
        "claims": [_claim_use(claim, device) for claim in device.claims[:_CLAIMS_SHOWN]],
    }


def _claim_use(claim: DeviceClaim, device: DeviceStatus) -> ClaimUse:
    words = [f"claim {claim.namespace}/{claim.name}", claim.request and f"request {claim.request}"]
    if claim.device != device.id:
        words.append(f"device {claim.device}")
    return {"text": ", ".join(filter(None, words)), "since": claim.since}
