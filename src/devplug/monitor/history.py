"""The changes of a node between two statuses, and its history of an hour. Pure: times are arguments."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.monitor.node_view import is_unanswered, physical_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.monitor.node_view import PhysicalDevice
    from devplug.status import DeviceStatus, Holder, NodeStatus, ResourceStatus

WINDOW_SECONDS: Final = 3600.0
SEGMENTS_LIMIT: Final = 200
"""Of one device: one that flaps for longer loses its oldest."""

CHANGES_LIMIT: Final = 200
"""Of all nodes."""

_ALL_SEGMENTS_LIMIT: Final = 200_000
"""Of all devices of a node: each has its share where there are thousands, and 4 in any case."""

_GONE_LIMIT: Final = 2_000
"""Devices that are no longer listed, and remembered in case they come back."""

_LEAST: Final = 4
GONE: Final = "Gone"
"""The health of a device while it is in no list."""

_NOT_KNOWN: Final = "-"
_LETTERS: Final = {HEALTHY: "h", UNHEALTHY: "u", GONE: "."}
_OTHER: Final = "?"
_RANKS: Final = {letter: rank for rank, letter in enumerate("-h.?u")}
Key: TypeAlias = tuple[str, str]
"""Resource name and ID of the found device."""


# ── changes ───────────────────────────────────────────────────────────────────────────────────────


class ChangeKind(enum.StrEnum):
    """The kind of a change; the value is the word for programs."""

    APPEARED = "appeared"
    """A device is in the list that was not, or the node has a resource that it had not."""
    VANISHED = "vanished"
    """The device has left the list, or the node has the resource no longer."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    HELD = "held"
    """A container got it."""
    RELEASED = "released"
    """A container let go of it."""
    NOT_KNOWN = "not-known"
    """No program says any more whether the device is healthy: its plugin is away, or the kubelet is."""
    LOST = "lost"
    """It became unhealthy, or left the list, while a container holds it."""
    REGISTERED = "registered"
    NOT_REGISTERED = "not-registered"
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
            yield Change(after.at, ChangeKind.APPEARED, name)
            yield from _device_changes(after.at, name, {}, _by_id(new[name]))
        elif name not in new:
            yield from _device_changes(after.at, name, _by_id(old[name]), {})
            yield Change(after.at, ChangeKind.VANISHED, name)
        elif is_unanswered(new[name]) != is_unanswered(old[name]):
            # The kubelet lists held devices only: the others have neither gone nor come.
            is_away = is_unanswered(new[name])
            yield Change(after.at, ChangeKind.NOT_KNOWN if is_away else ChangeKind.READY, name)
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
            kinds = {HEALTHY: ChangeKind.HEALTHY, UNHEALTHY: ChangeKind.UNHEALTHY}
            yield Change(at, kinds.get(new.health, ChangeKind.NOT_KNOWN), name, device_id, new.reason)
            if new.holders and new.health == UNHEALTHY:
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


# ── history ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Segment:
    """A time during which a device's health was the same: from `since` to the next one's."""

    since: float
    """As a Unix time in seconds."""
    health: str
    """`Healthy`, `Unhealthy`, another word of the plugin, or `Gone`."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The last hour of all nodes, a value; `after` returns a newer one."""

    latest: Mapping[str, NodeStatus] = field(default_factory=dict)
    """Each node's last status, by its name."""
    found: Mapping[str, Mapping[str, tuple[PhysicalDevice, ...]]] = field(default_factory=dict)
    """The devices of that status, by node and resource name."""
    strips: Mapping[str, Mapping[Key, tuple[Segment, ...]]] = field(default_factory=dict)
    """By node: each device's segments, oldest first."""
    changes: tuple[tuple[str, Change], ...] = ()
    """The last ones, oldest first, each with its node's name."""

    def after(self, status: NodeStatus) -> History:
        """Return the history with one more status of one node; that must not be older than its last."""
        before = self.latest.get(status.name)
        changes = () if before is None else differences(before, status)[-CHANGES_LIMIT:]
        found = {resource.name: physical_devices(resource) for resource in status.resources}
        strips = _strips(self.strips.get(status.name, {}), found, status.at)
        return replace(
            self,
            latest={**self.latest, status.name: status},
            found={**self.found, status.name: found},
            strips={**self.strips, status.name: strips},
            changes=(*self.changes, *((status.name, change) for change in changes))[-CHANGES_LIMIT:],
        )

    def strip(self, node: str, resource: str, found: str) -> tuple[Segment, ...]:
        """Return the segments of one device, none for one that never was."""
        return self.strips.get(node, {}).get((resource, found), ())


def _strips(
    before: Mapping[Key, tuple[Segment, ...]], found: Mapping[str, Sequence[PhysicalDevice]], at: float
) -> dict[Key, tuple[Segment, ...]]:
    count = sum(map(len, found.values()))
    most = max(_LEAST, min(SEGMENTS_LIMIT, _ALL_SEGMENTS_LIMIT // max(1, count)))
    begin = at - WINDOW_SECONDS
    strips = {
        (resource, device.id): _bounded(_with(before.get((resource, device.id), ()), device, at), begin, most)
        for resource, devices in found.items()
        for device in devices
    }
    gone = [(key, _without(segments, at)) for key, segments in before.items() if key not in strips]
    kept = sorted(
        ((key, segments) for key, segments in gone if segments[-1].since > begin),
        key=lambda one: one[1][-1].since,
    )
    return strips | {key: _bounded(segments, begin, most) for key, segments in kept[-_GONE_LIMIT:]}


def _with(segments: tuple[Segment, ...], found: PhysicalDevice, at: float) -> tuple[Segment, ...]:
    worst = found.worst
    last = segments[-1] if segments else None
    if last is not None and (last.health, last.reason) == (worst.health, worst.reason):
        return segments
    since = at if worst.since is None else min(worst.since, at)
    if last is None:
        return (Segment(since, worst.health, worst.reason),)
    if last.health == worst.health:  # only the words have changed
        return (*segments[:-1], replace(last, reason=worst.reason))
    return (*segments, Segment(since if since > last.since else at, worst.health, worst.reason))


def _without(segments: tuple[Segment, ...], at: float) -> tuple[Segment, ...]:
    return segments if segments[-1].health == GONE else (*segments, Segment(at, GONE))


def _bounded(segments: tuple[Segment, ...], begin: float, most: int) -> tuple[Segment, ...]:
    """Leave out what ended before the window, and the oldest beyond the limit."""
    first = max(0, len(segments) - most)
    while first + 1 < len(segments) and segments[first + 1].since <= begin:
        first += 1
    return segments[first:] if first else segments


# ── drawn ─────────────────────────────────────────────────────────────────────────────────────────


def slots(segments: Sequence[Segment], now: float, *, count: int = 60) -> str:
    """Return the last hour in `count` letters, oldest first: the worst that happened in each slot.

    `u` Unhealthy, `?` another word, `.` in no list, `h` Healthy, `-` not known. Slots begin at whole minutes
    (of a count of 60), so a strip moves once in a minute and not at every look.
    """
    seconds = WINDOW_SECONDS / count
    end = now // seconds + 1
    letters = [_NOT_KNOWN] * count
    for segment, until in _spans(segments, now):
        letter = _LETTERS.get(segment.health, _OTHER)
        first = max(0, int(segment.since // seconds - end) + count)
        last = min(count - 1, int(until // seconds - end) + count)
        for slot in range(first, last + 1):
            if _RANKS[letter] > _RANKS[letters[slot]]:
                letters[slot] = letter
    return "".join(letters)


def _spans(segments: Sequence[Segment], now: float) -> Iterator[tuple[Segment, float]]:
    for number, segment in enumerate(segments):
        yield segment, segments[number + 1].since if number + 1 < len(segments) else now
